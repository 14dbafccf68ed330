"""A scene with a renderer: images and exact depth from any pose."""

from __future__ import annotations

import numpy as np

from lgc_ros.errors import ConfigError
from lgc_ros.geometry.camera import Camera
from lgc_ros.synthetic.lighting import bake
from lgc_ros.synthetic.materials import Brush
from lgc_ros.synthetic.renderer import Rays, Renderer
from lgc_ros.synthetic.room import build_room
from lgc_ros.synthetic.scene import Scene
from lgc_ros.synthetic.street import build_street

BUILDERS = {"room": build_room, "street": build_street}


def build_scene(seed: int, kind: str = "room", detail: float = 1.0) -> Scene:
    """Lay out and paint a scene; `detail` scales the texture resolution, not the layout."""
    if kind not in BUILDERS:
        raise ConfigError(f"unknown kind of world '{kind}': use one of {', '.join(BUILDERS)}")
    layout, paint = (np.random.default_rng((seed, part)) for part in range(2))
    return BUILDERS[kind](layout, Brush.make(paint, detail))


class World:
    """A textured static scene; equal arguments give identical images."""

    def __init__(self, seed: int = 0, kind: str = "room", detail: float = 1.0):
        self.scene = build_scene(seed, kind, detail)
        quads = self.scene.quads
        frames = np.stack([np.column_stack([q.edge_u, q.edge_v, q.origin]) for q in quads])
        self._renderer = Renderer(frames, bake(self.scene, np.random.default_rng((seed, 2))))
        self._camera: Camera | None = None
        self._rays: Rays | None = None

    def render(self, camera: Camera, T_wc: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """BGR uint8 image and float32 depth z in meters (0 where no surface is visible)."""
        if self._rays is None or camera is not self._camera:
            self._camera, self._rays = camera, Rays.of(camera)
        T_cw = np.eye(4)
        T_cw[:3, :3] = T_wc[:3, :3].T
        T_cw[:3, 3] = -T_cw[:3, :3] @ T_wc[:3, 3]
        return self._renderer.render(self._rays, T_cw)

"""A synthetic world to look at: `World(seed).render(camera, T_wc)` gives image and exact depth."""

from __future__ import annotations

import numpy as np

from lgc_ros.camera import Camera
from lgc_ros.sources.world.lighting import bake
from lgc_ros.sources.world.renderer import Rays, Renderer
from lgc_ros.sources.world.room import build_room
from lgc_ros.sources.world.street import build_street

BUILDERS = {"room": build_room, "street": build_street}


class World:
    """A textured static scene; the same kind and seed give the same bytes."""

    def __init__(self, seed: int = 0, kind: str = "room"):
        rng = np.random.default_rng(seed)
        self.scene = BUILDERS[kind](rng)
        textures = bake(self.scene, rng)
        quads = self.scene.quads
        frames = np.stack([np.column_stack([q.edge_u, q.edge_v, q.origin]) for q in quads])
        self._renderer = Renderer(frames, textures)
        self._rays: dict[int, tuple[Camera, Rays]] = {}

    def render(self, camera: Camera, T_wc: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the camera sees: BGR uint8 image and float32 depth z in metres (0: nothing)."""
        if id(camera) not in self._rays:
            self._rays[id(camera)] = camera, Rays.of(camera)
        R_cw = T_wc[:3, :3].T
        T_cw = np.eye(4)
        T_cw[:3, :3], T_cw[:3, 3] = R_cw, -R_cw @ T_wc[:3, 3]
        return self._renderer.render(self._rays[id(camera)][1], T_cw)

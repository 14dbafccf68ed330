"""Rendered synthetic worlds: exact poses, real feature extraction, one world per seed.

A scene is one world. Its views show a few targets from all sides, with different cameras, light
and sharpness. Rendering takes longer than a training step, so these pairs are prepared into a dump
like any other images; they are rendered only when their features are extracted.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
from pathlib import Path

import cv2
import numpy as np
from transforms3d.axangles import axangle2mat

from lgc_ros.errors import ConfigError
from lgc_ros.geometry.camera import Camera
from lgc_ros.synthetic import World, build_scene
from lgc_ros.synthetic.renderer import ALIGN, Rays, Renderer
from lgc_ros.synthetic.scene import Scene
from training.data.scene import PosedImage, PosedScene
from training.data.sun3d import LOOKUP_STEP, depth_visibility

VIEWS_PER_TARGET = 6
MIN_CLEARANCE_M = 0.4
MIN_MEDIAN_DEPTH_M = 0.8
LAYOUT_DETAIL = 0.05  # textures do not matter for depth
ASPECTS = (3 / 4, 2 / 3, 9 / 16, 4 / 3)


def world_paths(pattern: str) -> list[str]:
    """The worlds of a pattern such as ``room/0-39``: ``room/0``, ``room/1``, …"""
    found = re.fullmatch(r"(\w+)/(\d+)(?:-(\d+))?", pattern)
    if not found:
        raise ConfigError(
            f"'{pattern}' names no rendered worlds: give their kind and seeds, e.g. room/0-39"
        )
    kind, first, last = found.groups()
    return [f"{kind}/{seed}" for seed in range(int(first), int(last or first) + 1)]


def read_rendered(
    path: Path,
    views: int = 18,
    overlap_above: float = 0.15,
    overlap_below: float = 0.85,
    max_turn_deg: float = 60.0,
) -> PosedScene:
    """The world ``<kind>/<seed>``, kind being ``room`` or ``street``, in ``views`` images.

    A pair is kept if the overlap of the images, computed from depth in both directions, is between
    the two bounds, and if the optical axes are less than `max_turn_deg` apart, beyond which no
    detector finds the same points.
    """
    kind, number = Path(path).parts[-2:]
    if not number.isdigit():
        raise ConfigError(f"'{path}' names no rendered world: give <kind>/<seed>, e.g. room/7")
    seed = int(number)
    depth_of = _DepthRenderer(build_scene(seed, kind, LAYOUT_DETAIL))
    rng = np.random.default_rng((seed, 4))
    images, depths = [], []
    while len(images) < views:
        target = _random_target(rng, depth_of)
        common = random_camera(rng)
        while len(images) < views:
            camera = common if rng.random() < 0.5 else random_camera(rng)
            T_wc = _look_at(rng, _random_position(rng, depth_of.layout), target)
            depth = depth_of(camera, T_wc)
            if np.median(depth) < MIN_MEDIAN_DEPTH_M:
                continue  # a surface fills the view
            load = partial(render_view, kind, seed, len(images), camera, T_wc)
            R_cw = T_wc[:3, :3].T
            name = f"{len(images):03d}.png"
            images.append(PosedImage(name, camera, R_cw, -R_cw @ T_wc[:3, 3], load))
            depths.append(depth)
            if len(images) % VIEWS_PER_TARGET == 0:
                break
    seen = depth_visibility(images, depths)
    overlap = np.stack([seen, seen.T])
    axes = np.stack([image.R_cw[2] for image in images])
    pairs = np.argwhere(
        (overlap.min(axis=0) > overlap_above)
        & (overlap.max(axis=0) < overlap_below)
        & (axes @ axes.T > np.cos(np.radians(max_turn_deg)))
        & ~np.eye(views, dtype=bool)
    )
    return PosedScene(f"{kind}-{seed}", tuple(images), pairs)


def render_view(kind: str, seed: int, view: int, camera: Camera, T_wc: np.ndarray) -> np.ndarray:
    """The photograph (BGR uint8) of a view of a world."""
    image, _ = _world(kind, seed).render(camera, T_wc)
    return photograph(np.random.default_rng((seed, 5, view)), image)


@lru_cache(maxsize=1)
def _world(kind: str, seed: int) -> World:
    return World(seed, kind)


def photograph(rng: np.random.Generator, image: np.ndarray) -> np.ndarray:
    """The image as taken by a random camera: blur, exposure, noise, compression."""
    light = image.astype(np.float32) / 255
    if rng.random() < 0.3:
        light = cv2.filter2D(light, -1, _motion_blur(rng.uniform(2, 7), rng.uniform(0, np.pi)))
    light = cv2.GaussianBlur(light, (0, 0), rng.uniform(0.2, 1.2))
    gain = rng.uniform(0.5, 1.6) * rng.uniform(0.85, 1.15, 3)  # exposure and white balance
    light = np.clip(light * gain.astype(np.float32), 0, 1) ** np.float32(rng.uniform(0.7, 1.4))
    light += np.float32(rng.uniform(0, 0.03)) * rng.standard_normal(light.shape, np.float32)
    pixels = np.clip(255 * light + 0.5, 0, 255).astype(np.uint8)
    quality = int(rng.integers(60, 96))
    _, jpeg = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return cv2.imdecode(jpeg, cv2.IMREAD_COLOR)


def _motion_blur(length_px: float, angle: float) -> np.ndarray:
    """A kernel that blurs along a line."""
    size = 2 * int(np.ceil(length_px / 2)) + 1
    along = np.linspace(-length_px / 2, length_px / 2, 4 * size)
    kernel = np.zeros((size, size), np.float32)
    columns, rows = (
        np.rint(along * part).astype(int) + size // 2 for part in (np.cos(angle), np.sin(angle))
    )
    np.add.at(kernel, (rows, columns), 1)
    return kernel / kernel.sum()


def random_camera(rng: np.random.Generator) -> Camera:
    """A pinhole camera, long side 640 to 1024 px, horizontal field of view 35 to 85 degrees."""
    aspect = rng.choice(ASPECTS)
    longest = rng.integers(640, 1025)
    width, height = round(longest / max(aspect, 1)), round(longest * min(aspect, 1))
    view = np.radians(np.exp(rng.uniform(np.log(35), np.log(85))))
    focal = width / 2 / np.tan(view / 2)
    K = np.array([[focal, 0, (width - 1) / 2], [0, focal, (height - 1) / 2], [0, 0, 1]])
    return Camera.from_K(K, width, height)


class _DepthRenderer:
    """Depth of a layout as `depth_visibility` takes it: every LOOKUP_STEP-th row and column."""

    def __init__(self, layout: Scene) -> None:
        self.layout = layout
        quads = layout.quads
        frames = np.stack([np.column_stack([q.edge_u, q.edge_v, q.origin]) for q in quads])
        blank = np.zeros((ALIGN, ALIGN, 3), np.uint8)
        self._renderer = Renderer(frames, [blank] * len(quads))

    def __call__(self, camera: Camera, T_wc: np.ndarray) -> np.ndarray:
        K = np.diag([1 / LOOKUP_STEP, 1 / LOOKUP_STEP, 1]) @ camera.K
        width, height = (-(-side // LOOKUP_STEP) for side in camera.size)
        rays = Rays.of(Camera.from_K(K, width, height))
        return self._renderer.render(rays, np.linalg.inv(T_wc))[1]


def _random_position(rng: np.random.Generator, layout: Scene) -> np.ndarray:
    """A free position in or beside the aisle, at the height of a hand-held camera."""
    while True:
        angle, reach = rng.uniform(0, 2 * np.pi), 1.3 * np.sqrt(rng.random())
        x, y = reach * layout.aisle * (np.cos(angle), np.sin(angle))
        position = np.array([x, y, rng.uniform(0.8, 2.2)])
        if layout.clearance(position[None])[0] > MIN_CLEARANCE_M:
            return position


def _random_target(rng: np.random.Generator, depth_of: _DepthRenderer) -> np.ndarray:
    """The surface point hit by a random viewing ray from a random position."""
    position = _random_position(rng, depth_of.layout)
    yaw = rng.uniform(0, 2 * np.pi)
    pitch = depth_of.layout.pitch + rng.normal(0, 0.15)
    forward = np.array([np.cos(yaw) * np.cos(pitch), np.sin(yaw) * np.cos(pitch), np.sin(pitch)])
    T_wc = _pose(position, forward, roll=0.0)
    depth = depth_of(random_camera(rng), T_wc)
    return position + forward * depth[depth.shape[0] // 2, depth.shape[1] // 2]


def _look_at(rng: np.random.Generator, position: np.ndarray, target: np.ndarray) -> np.ndarray:
    """T_wc of a hand-held camera at the position with the target somewhere in its view."""
    distance = np.linalg.norm(target - position)
    aside = target + 0.12 * distance * rng.standard_normal(3)
    roll = rng.normal(0, 5) if rng.random() < 0.9 else rng.uniform(-90, 90)
    return _pose(position, aside - position, np.radians(roll))


def _pose(position: np.ndarray, forward: np.ndarray, roll: float) -> np.ndarray:
    """T_wc of a camera that looks along `forward`, upright but for `roll` (radians)."""
    forward = forward / np.linalg.norm(forward)
    right = np.cross(forward, [0, 0, 1.0])
    right /= np.linalg.norm(right)
    upright = np.column_stack([right, np.cross(forward, right), forward])
    T_wc = np.eye(4)
    T_wc[:3, :3] = upright @ axangle2mat([0, 0, 1], roll)
    T_wc[:3, 3] = position
    return T_wc

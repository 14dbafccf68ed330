"""Light baked into textures: lamps with soft shadows, and ambient occlusion."""

from __future__ import annotations

import cv2
import numpy as np

from lgc_ros.synthetic.scene import Quad, Scene, Solid

LAMP_SAMPLES = 5
SKY_SAMPLES = 12
REACH_M = 0.9  # range of ambient occlusion

# Brightness to 8 bits. A soft shoulder instead of clipping keeps texture in bright spots.
_VALUES = np.linspace(0, 2, 1024)
TONE = np.where(_VALUES < 0.75, _VALUES, 0.75 + 0.25 * np.tanh((_VALUES - 0.75) / 0.25))
TONE = (255 * TONE + 0.5).astype(np.uint8)


def bake(scene: Scene, rng: np.random.Generator) -> list[np.ndarray]:
    """The uint8 BGR texture of every quad, lit by the lamps of the scene."""
    lit = [quad for quad in scene.quads if not quad.emissive]
    grids = [_grid(quad, scene.light_points_per_m) for quad in lit]
    counts = np.cumsum([0] + [len(points) for _, points in grids])
    points = np.concatenate([points for _, points in grids]).astype(np.float32)
    normals = np.repeat([quad.normal for quad in lit], np.diff(counts), axis=0)
    light = _irradiance(scene, points, normals.astype(np.float32), rng)
    # Albedo is in display values, light is linear; the exponent converts it.
    light = (light / np.percentile(light.mean(axis=1), 75)) ** 0.65
    fields = (
        f.reshape(*shape, 3)
        for f, (shape, _) in zip(np.split(light, counts[1:-1]), grids, strict=True)
    )
    return [_texture(quad, None if quad.emissive else next(fields)) for quad in scene.quads]


def _texture(quad: Quad, light: np.ndarray | None) -> np.ndarray:
    """Albedo times a coarse field of light, in 8 bits."""
    shaded = quad.albedo
    if light is not None:
        light = cv2.GaussianBlur(light, (3, 3), 0, borderType=cv2.BORDER_REPLICATE)
        shaded = shaded * cv2.resize(light, shaded.shape[1::-1], interpolation=cv2.INTER_LINEAR)
    return TONE[np.minimum(shaded * 511.5, 1023).astype(np.uint16)]


def _grid(quad: Quad, points_per_m: float) -> tuple[tuple[int, int], np.ndarray]:
    """Cell centers on a quad: shape (rows, columns) and world points (rows * columns, 3)."""
    edges = quad.edge_v, quad.edge_u
    rows, columns = (max(int(np.linalg.norm(e) * points_per_m), 2) for e in edges)
    v, u = ((np.arange(n) + 0.5)[:, None] / n for n in (rows, columns))
    points = quad.origin + (v * quad.edge_v)[:, None] + (u * quad.edge_u)[None]
    return (rows, columns), points.reshape(-1, 3)


def _irradiance(scene: Scene, points, normals, rng) -> np.ndarray:
    """BGR irradiance (N, 3) of each point."""
    start = points + 0.01 * normals
    light = scene.ambient * _openness(scene, start, normals, rng)[:, None]
    for lamp in scene.lamps:
        for u, v in rng.random((LAMP_SAMPLES, 2)):
            ray = (lamp.origin + u * lamp.edge_u + v * lamp.edge_v - start).astype(np.float32)
            distance = np.linalg.norm(ray, axis=1)
            ray /= distance[:, None]
            cosines = _dot(ray, normals).clip(0) * (ray @ -lamp.direction.astype(np.float32)).clip(
                0
            )
            strength = cosines / (0.5 + distance**2)
            lit = np.flatnonzero(strength > 0)
            free = _first_hit(scene.solids, start[lit], ray[lit], distance[lit]) >= distance[lit]
            strength[lit] *= free
            light += strength[:, None] * lamp.power / LAMP_SAMPLES
    return light.astype(np.float32)


def _openness(scene: Scene, start, normals, rng) -> np.ndarray:
    """Ambient occlusion: the unobstructed share of the surroundings of each point, in [0, 1]."""
    half = (scene.size / 2).astype(np.float32)
    center = np.array([0, 0, half[2]], np.float32)
    total = np.zeros(len(start), np.float32)
    for _ in range(SKY_SAMPLES):
        ray = rng.standard_normal(start.shape, np.float32)
        ray = normals + ray / np.linalg.norm(ray, axis=1, keepdims=True)  # cosine weighted
        ray /= np.linalg.norm(ray, axis=1, keepdims=True) + 1e-6
        with np.errstate(divide="ignore", invalid="ignore"):
            to_hull = (np.sign(ray) * half - (start - center)) / ray
        reach = np.fmin.reduce(np.maximum(to_hull, 0), axis=1).clip(0, REACH_M)
        total += _first_hit(scene.solids, start, ray, reach) / REACH_M
    return total / SKY_SAMPLES


def _first_hit(solids: list[Solid], start, ray, reach) -> np.ndarray:
    """Distance along each unit ray to the nearest solid, at most `reach`."""
    nearest = reach.astype(np.float32).copy()
    for solid in solids:
        half = solid.half.astype(np.float32)
        radius = np.linalg.norm(half)
        to_center = solid.center.astype(np.float32) - start
        along = _dot(to_center, ray)
        off_axis = _dot(to_center, to_center) - along**2
        close = (off_axis < radius**2) & (along > -radius) & (along < nearest + radius)
        some = np.flatnonzero(close)
        if not len(some):
            continue
        p, d = solid.to_local(-to_center[some]), solid.to_local(ray[some])
        with np.errstate(divide="ignore", invalid="ignore"):
            a, b = (-half - p) / d, (half - p) / d
        enter, leave = np.minimum(a, b).max(1), np.maximum(a, b).min(1)
        hit = (enter < leave) & (enter > 0)
        nearest[some] = np.where(hit, np.minimum(nearest[some], enter), nearest[some])
    return nearest


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", a, b)

"""Rendering of textured rectangles with exact depth, in numpy and OpenCV.

In camera coordinates a rectangle is z (x, y, 1) = O + u U + v V, so with G = [U V O]^-1 the three
numbers G (x, y, 1) = (u, v, 1) / z are affine in the normalized image coordinates: visibility is
a comparison of 1/z, and it stays exact for distorted lenses because x and y come from the camera.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from lgc_ros.geometry.camera import Camera

LEVELS = 6  # mip levels
ALIGN = 2 ** (LEVELS - 1)  # texture sides are multiples of it, so that no level mixes textures
STRIP = 1 << 15  # pixels shaded at a time, so that intermediate arrays fit in the cache
TAPS = 2  # texture samples per pixel, spread along the longer axis of its footprint
NEAR_M = 0.02
SUBPIXELS = ((-0.375, -0.125), (0.125, -0.375), (0.375, 0.125), (-0.125, 0.375))


@dataclass(frozen=True, eq=False)
class Rays:
    """Normalized coordinates of every pixel; (1, W) and (H, 1) where the lens allows it."""

    x: np.ndarray
    y: np.ndarray
    focal: float

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the image."""
        return len(self.y), self.x.shape[1]

    @classmethod
    def of(cls, camera: Camera) -> Rays:
        """The rays of a camera's pixel centers."""
        width, height = camera.size
        straight = camera.model != "equidistant" and not camera.D.any() and camera.K[0, 1] == 0
        if straight:
            columns = np.column_stack([np.arange(width), np.zeros(width)])
            rows = np.column_stack([np.zeros(height), np.arange(height)])
            x = camera.normalize(columns)[:, 0][None]
            y = camera.normalize(rows)[:, 1][:, None]
        else:
            grid = np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1)
            normalized = camera.normalize(grid.reshape(-1, 2).astype(float))
            x, y = np.moveaxis(normalized.reshape(height, width, 2), -1, 0)
        x, y = (np.ascontiguousarray(a, np.float32) for a in (x, y))
        return cls(x, y, camera.focal)


class Atlas:
    """All textures and their mip levels in one image, so that one remap samples any of them."""

    def __init__(self, textures: list[np.ndarray]):
        sizes = np.array([(t.shape[1], t.shape[0]) for t in textures])
        if (sizes % ALIGN).any():
            raise ValueError(f"texture sizes must be multiples of {ALIGN}")
        corners, (width, height) = _pack(sizes)
        base: np.ndarray = np.zeros((height, width, 3), np.uint8)
        for texture, (x, y) in zip(textures, corners, strict=True):
            base[y : y + texture.shape[0], x : x + texture.shape[1]] = texture
        self.image = np.zeros((height, width + width // 2, 3), np.uint8)
        self.image[:, :width] = base
        offsets, y = [(0, 0)], 0
        for _ in range(1, LEVELS):
            base = cv2.resize(base, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
            self.image[y : y + base.shape[0], width : width + base.shape[1]] = base
            offsets.append((width, y))
            y += base.shape[0]
        self.corners = corners.astype(np.float32)
        self.sizes = sizes.astype(np.float32)
        # Rows: scale, half a texel in texels of level 0, position of the level in the image.
        scale = 0.5 ** np.arange(LEVELS)
        self.levels = np.stack([scale, 0.5 / scale, *(np.array(offsets).T - 0.5)])
        self.levels = self.levels.astype(np.float32)


def _pack(sizes: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
    """Place rectangles in rows, tallest first; returns corners (N, 2) and the total size."""
    area = sizes.prod(axis=1).sum()
    width = max(sizes[:, 0].max(), int(np.sqrt(area) // (2 * ALIGN) + 1) * 2 * ALIGN)
    width += -width % (2 * ALIGN)
    corners = np.zeros_like(sizes)
    x = y = row_height = 0
    for i in np.argsort(-sizes[:, 1], kind="stable"):
        if x + sizes[i, 0] > width:
            x, y, row_height = 0, y + row_height, 0
        corners[i] = x, y
        x += sizes[i, 0]
        row_height = max(row_height, sizes[i, 1])
    return corners, (int(width), int(y + row_height))


class Renderer:
    """Renders fixed quads, `frames` (N, 3, 3) holding edge_u, edge_v, origin as columns."""

    def __init__(self, frames: np.ndarray, textures: list[np.ndarray]):
        self.frames = frames
        self.atlas = Atlas(textures)

    def render(self, rays: Rays, T_cw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """BGR uint8 image and float32 depth z in meters (0 where no surface is visible)."""
        M = T_cw[:3, :3] @ self.frames
        M[:, :, 2] += T_cw[:3, 3]
        front = np.flatnonzero(np.linalg.det(M) > 1e-9)
        G = np.zeros_like(M)
        G[front] = np.linalg.inv(M[front])
        G = G.astype(np.float32)
        owner, inverse_z = self._visible(rays, M, G, front)
        x, y = (np.broadcast_to(a, rays.shape) for a in (rays.x, rays.y))
        image = self._shade(owner, x, y, G, rays.focal)
        self._smooth_edges(image, owner, x, y, G, rays.focal)
        seen = owner >= 0
        image[~seen] = 0
        depth = np.divide(1, inverse_z, out=np.zeros(rays.shape, np.float32), where=seen)
        return image, depth

    def _visible(self, rays: Rays, M, G, front) -> tuple[np.ndarray, np.ndarray]:
        """Index of the nearest quad for every pixel (-1: none) and its 1/z."""
        owner = np.full(rays.shape, -1, np.int16)
        nearest = np.zeros(rays.shape, np.float32)
        for k, window in zip(front, _windows(rays, _bounds(M[front])), strict=True):
            depth = nearest[window]
            if not depth.size:
                continue
            rows, columns = window
            x = rays.x[window] if rays.x.shape[0] > 1 else rays.x[:, columns]
            y = rays.y[window] if rays.y.shape[1] > 1 else rays.y[rows]
            u, v, w = (g[0] * x + (g[1] * y + g[2]) for g in G[k])
            hit = w > depth
            hit &= u >= 0
            hit &= v >= 0
            hit &= u <= w
            hit &= v <= w
            np.copyto(depth, w, where=hit)
            np.copyto(owner[window], np.int16(k), where=hit)
        return owner, nearest

    def _shade(self, owner, x, y, G, focal) -> np.ndarray:
        """Filtered texture color of quad `owner` (H, W) at normalized x, y (H, W)."""
        table = np.column_stack([G.reshape(-1, 9), self.atlas.sizes, self.atlas.corners]).T.copy()
        color = np.empty((*owner.shape, 3), np.uint8)
        step = max(STRIP // owner.shape[1], 1)
        for start in range(0, len(owner), step):
            rows = slice(start, start + step)
            quad = np.maximum(owner[rows], 0).astype(np.intp)
            values = [np.take(row, quad) for row in table]
            color[rows] = self._sample(values, x[rows], y[rows], focal)
        return color

    def _sample(self, values, x, y, focal) -> np.ndarray:
        """Filtered texture color, given the rows of G, texture size and corner per sample."""
        *g, width, height, left, top = values
        z = 1 / np.maximum(g[6] * x + g[7] * y + g[8], 1e-6)
        u = (g[0] * x + g[1] * y + g[2]) * z
        v = (g[3] * x + g[4] * y + g[5]) * z
        # Texels per pixel along the image's x and y: the footprint of the pixel.
        su, sv = width * z / focal, height * z / focal
        xu, xv = (g[0] - u * g[6]) * su, (g[3] - v * g[6]) * sv
        yu, yv = (g[1] - u * g[7]) * su, (g[4] - v * g[7]) * sv
        along_x, along_y = xu * xu + xv * xv, yu * yu + yv * yv
        wide = along_x > along_y
        major = np.sqrt(np.where(wide, along_x, along_y))
        minor = np.abs(xu * yv - xv * yu) / np.maximum(major, 1e-9)
        step_u, step_v = np.where(wide, xu, yu), np.where(wide, xv, yv)
        level = np.log2(np.maximum(np.maximum(minor, major / TAPS), 1e-3))
        s, t = u * width, v * height
        total = np.zeros((*x.shape, 3), np.float32)
        for tap in range(TAPS):
            # The taps straddle the pixel; rounding the level differently in each also blends
            # neighboring mip levels, so no line shows where the level changes.
            fraction = (tap + 0.5) / TAPS
            n = np.clip(level + fraction, 0, LEVELS - 1).astype(np.intp)
            shrink, inset, offset_s, offset_t = (np.take(row, n) for row in self.atlas.levels)
            offset = np.float32(fraction - 0.5)
            map_s = np.minimum(np.maximum(s + offset * step_u, inset), width - inset)
            map_t = np.minimum(np.maximum(t + offset * step_v, inset), height - inset)
            map_s = (map_s + left) * shrink + offset_s
            map_t = (map_t + top) * shrink + offset_t
            cv2.accumulate(cv2.remap(self.atlas.image, map_s, map_t, cv2.INTER_LINEAR), total)
        return total / TAPS + 0.5

    def _smooth_edges(self, image, owner, x, y, G, focal) -> None:
        """Average four samples per pixel where quads meet, in place."""
        kernel = cv2.getStructuringElement(cv2.MORPH_CROSS, (3, 3))
        low, high = cv2.erode(owner, kernel), cv2.dilate(owner, kernel)
        rows, columns = np.nonzero(low != high)
        if not len(rows):
            return
        candidates = np.stack([a[rows, columns] for a in (owner, low, high)])[:, :, None]
        shift = np.array(SUBPIXELS, np.float32) / focal
        sub_x = x[rows, columns][:, None] + shift[:, 0]
        sub_y = y[rows, columns][:, None] + shift[:, 1]
        best, best_owner = np.zeros_like(sub_x), np.broadcast_to(candidates[0], sub_x.shape).copy()
        for candidate in candidates:
            g = np.moveaxis(G[candidate[:, 0]], 0, -1)[..., None]
            u, v, w = (r[0] * sub_x + r[1] * sub_y + r[2] for r in g)
            hit = (w > best) & (u >= 0) & (v >= 0) & (u <= w) & (v <= w) & (candidate >= 0)
            np.copyto(best, w, where=hit)
            np.copyto(best_owner, candidate, where=hit)
        samples = self._shade(best_owner, sub_x, sub_y, G, focal)
        image[rows, columns] = samples.mean(axis=1, dtype=np.float32) + 0.5


def _bounds(M: np.ndarray) -> np.ndarray:
    """Normalized x and y ranges (N, 4) of quads cut at the near plane; NaN when behind it."""
    u, v, o = M[:, :, 0], M[:, :, 1], M[:, :, 2]
    a = np.stack([o, o + u, o + u + v, o + v], 1)
    b = np.roll(a, -1, axis=1)
    za, zb = a[..., 2:], b[..., 2:]
    with np.errstate(divide="ignore", invalid="ignore"):
        cut = a + (b - a) * ((NEAR_M - za) / (zb - za))
        cut[((za < NEAR_M) == (zb < NEAR_M))[..., 0]] = np.nan
        corners = np.where(za < NEAR_M, np.nan, a)
        points = np.concatenate([corners, cut], 1)
        xy = points[..., :2] / points[..., 2:]
    low, high = np.fmin.reduce(xy, axis=1), np.fmax.reduce(xy, axis=1)
    return np.stack([low[:, 0], high[:, 0], low[:, 1], high[:, 1]], -1)


def _windows(rays: Rays, bounds: np.ndarray) -> list[tuple[slice, slice]]:
    """Rows and columns whose rays may fall into each of the ranges of `_bounds`."""
    spans = []
    for coordinate, axis, low, high in ((rays.y, 1, *bounds.T[2:]), (rays.x, 0, *bounds.T[:2])):
        # Accumulated, so that the bounds stay valid where strong distortion folds the rays.
        most = np.maximum.accumulate(np.fmax.reduce(coordinate, axis))
        least = np.minimum.accumulate(np.fmin.reduce(coordinate, axis)[::-1])[::-1]
        first, last = most.searchsorted(low), least.searchsorted(high, "right")
        spans.append([slice(a, b) for a, b in zip(first, last, strict=True)])
    return list(zip(*spans, strict=True))

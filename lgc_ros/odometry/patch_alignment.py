"""Sub-pixel alignment of image patches: where points of one image are in another.

Inverse-compositional Lucas-Kanade over an image pyramid, coarse to fine. A patch of the template
is warped by a predicted affine map first, so that it still fits when the camera has come closer
or turned. Patches are compared after normalizing their mean and contrast, so that changes of the
exposure do not shift them.
"""

from __future__ import annotations

import cv2
import numpy as np

from lgc_ros.runtime.jit import compiled_for_vectors

HALF = 5
"""Patches have a side of 2 HALF + 1 pixels at every pyramid level."""
SIDE = 2 * HALF + 1
LEVELS = 5
"""Levels of a pyramid, each half the size of the one below."""
MAX_STEPS = 12
# Converged when a step is shorter, in pixels of the pyramid level.
CONVERGED_PX = 0.02
# A patch that moves further than this at one level, in its pixels, has found another one.
MAX_SHIFT_PX = 2 * HALF
# Smallest correlation of an aligned patch with its template, after gain and offset.
MIN_CORRELATION = 0.7
# Smallest mean squared gradient across any direction, in gray levels per pixel: no texture below.
MIN_GRADIENT = 2.0


def image_pyramid(gray: np.ndarray) -> list[np.ndarray]:
    """The image and smaller ones; pixel x of a level is pixel 2 x of the one below."""
    levels = [np.ascontiguousarray(gray)]
    while len(levels) < LEVELS and min(levels[-1].shape) >= 4 * SIDE:
        levels.append(cv2.pyrDown(levels[-1]))
    return levels


def warm_up() -> None:
    """Compile the alignment, so that no frame waits for it."""
    image = image_pyramid(np.zeros((8 * SIDE, 8 * SIDE), np.uint8))
    middle = np.full((1, 2), 4.0 * SIDE)
    align_patches(image, middle, image, middle, np.eye(2)[None], 0)


def align_patches(
    template: list[np.ndarray],
    points: np.ndarray,
    image: list[np.ndarray],
    guesses: np.ndarray,
    warps: np.ndarray,
    coarsest: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Find patches of the template in an image.

    Args:
        template, image: pyramids.
        points: (N, 2) centers of the patches in the template, pixels.
        guesses: (N, 2) where they may be in the image, pixels; NaN if unknown.
        warps: (N, 2, 2) maps offsets in the template to offsets in the image.
        coarsest: pyramid level to begin with. The search reaches about HALF times 2^coarsest
            pixels.

    Returns:
        (N, 2) pixels, and a mask (N,) of the patches that were found there.
    """
    positions = np.array(guesses, np.float64)
    found = np.asarray(np.isfinite(positions).all(axis=1))
    inverses = np.linalg.inv(warps)
    points = np.ascontiguousarray(points, np.float64)
    top = min(coarsest, len(template) - 1, len(image) - 1)
    for level in range(top, -1, -1):
        _align_level(template[level], image[level], points, inverses, positions, found, level)
    return positions, found


@compiled_for_vectors
def _align_level(template, image, points, inverses, positions, found, level):
    """Improve `positions` at one level; patches that are not found there are marked in `found`."""
    scale, count = 1.0 / 2**level, SIDE * SIDE
    patch = np.empty((SIDE + 2, SIDE + 2), np.float32)
    gx, gy = np.empty((SIDE, SIDE), np.float32), np.empty((SIDE, SIDE), np.float32)
    seen = np.empty((SIDE, SIDE), np.float32)
    for n in range(len(points)):
        if not found[n]:
            continue
        x0, y0 = scale * points[n, 0], scale * points[n, 1]
        if not _sample_warped(template, x0, y0, inverses[n], patch):
            # Too close to the border for this level; a finer one may do.
            if level == 0:
                found[n] = False
            continue
        xx, xy, yy, sx, sy, xt, yt, tt = _gradients(patch, gx, gy)
        determinant = xx * yy - xy * xy
        smaller = 0.5 * (xx + yy - np.sqrt((xx - yy) ** 2 + 4 * xy * xy))
        if smaller < MIN_GRADIENT**2 * count:
            if level == 0:
                found[n] = False
            continue
        x, y = scale * positions[n, 0], scale * positions[n, 1]
        start_x, start_y = x, y
        inside = converged = False
        for _ in range(MAX_STEPS):
            inside = _sample(image, x, y, seen)
            if not inside:
                break
            r = rr = rx = ry = np.float32(0.0)
            for i in range(SIDE):
                for j in range(SIDE):
                    e = seen[i, j]
                    r += e
                    rr += e * e
                    rx += gx[i, j] * e
                    ry += gy[i, j] * e
            contrast = np.sqrt(max(rr - r * r / count, 1.0) / tt)
            rx = (rx - sx * r / count) / contrast - xt
            ry = (ry - sy * r / count) / contrast - yt
            dx = (yy * rx - xy * ry) / determinant
            dy = (xx * ry - xy * rx) / determinant
            x, y = x - dx, y - dy
            if (x - start_x) ** 2 + (y - start_y) ** 2 > MAX_SHIFT_PX**2:
                break
            if dx * dx + dy * dy < CONVERGED_PX**2:
                converged = True
                break
        if level > 0:
            if converged:
                positions[n, 0], positions[n, 1] = x / scale, y / scale
            continue
        if not (converged and inside and _sample(image, x, y, seen)):
            found[n] = False
            continue
        found[n] = _correlation(patch, seen) > MIN_CORRELATION
        positions[n, 0], positions[n, 1] = x, y


@compiled_for_vectors
def _gradients(patch, gx, gy):
    """Fill the gradients of a template, which has a border of one pixel.

    Returns:
        Their second moments xx, xy and yy, their sums x and y, their products with the template,
        and its own second moment. All moments are about the mean, since the brightness of patches
        may differ.
    """
    xx = xy = yy = sx = sy = xt = yt = t = tt = np.float32(0.0)
    for i in range(SIDE):
        for j in range(SIDE):
            a = np.float32(0.5) * (patch[i + 1, j + 2] - patch[i + 1, j])
            b = np.float32(0.5) * (patch[i + 2, j + 1] - patch[i, j + 1])
            c = patch[i + 1, j + 1]
            gx[i, j], gy[i, j] = a, b
            xx += a * a
            xy += a * b
            yy += b * b
            sx += a
            sy += b
            xt += a * c
            yt += b * c
            t += c
            tt += c * c
    count = SIDE * SIDE
    xx, xy, yy = xx - sx * sx / count, xy - sx * sy / count, yy - sy * sy / count
    xt, yt, tt = xt - sx * t / count, yt - sy * t / count, tt - t * t / count
    return xx, xy, yy, sx, sy, xt, yt, tt


@compiled_for_vectors
def _correlation(patch, seen):
    """Of a template, which has a border of one pixel, and a patch."""
    s = t = ss = st = tt = np.float32(0.0)
    for i in range(SIDE):
        for j in range(SIDE):
            a, b = patch[i + 1, j + 1], seen[i, j]
            s += a
            t += b
            ss += a * a
            st += a * b
            tt += b * b
    count = SIDE * SIDE
    ss, st, tt = ss - s * s / count, st - s * t / count, tt - t * t / count
    return st / np.sqrt(ss * tt + 1e-9)


@compiled_for_vectors
def _sample(image, x, y, patch):
    """Fill `patch` with the pixels around (x, y), interpolated; False if it leaves the image."""
    left, top = int(np.floor(x)) - HALF, int(np.floor(y)) - HALF
    if left < 0 or top < 0 or left + SIDE >= image.shape[1] or top + SIDE >= image.shape[0]:
        return False
    u, v = x - np.floor(x), y - np.floor(y)
    a, b = np.float32((1 - u) * (1 - v)), np.float32(u * (1 - v))
    c, d = np.float32((1 - u) * v), np.float32(u * v)
    for i in range(SIDE):
        for j in range(SIDE):
            patch[i, j] = (
                a * np.float32(image[top + i, left + j])
                + b * np.float32(image[top + i, left + j + 1])
                + c * np.float32(image[top + i + 1, left + j])
                + d * np.float32(image[top + i + 1, left + j + 1])
            )
    return True


@compiled_for_vectors
def _sample_warped(image, x, y, inverse, patch):
    """Fill `patch`, with a border of one pixel, through an affine map; False if it leaves."""
    reach = HALF + 1
    reach_x = reach * (abs(inverse[0, 0]) + abs(inverse[0, 1]))
    reach_y = reach * (abs(inverse[1, 0]) + abs(inverse[1, 1]))
    if x - reach_x < 0 or y - reach_y < 0:
        return False
    if x + reach_x >= image.shape[1] - 1 or y + reach_y >= image.shape[0] - 1:
        return False
    for i in range(SIDE + 2):
        for j in range(SIDE + 2):
            dx, dy = j - reach, i - reach
            px = x + inverse[0, 0] * dx + inverse[0, 1] * dy
            py = y + inverse[1, 0] * dx + inverse[1, 1] * dy
            column, row = int(px), int(py)
            u, v = px - column, py - row
            patch[i, j] = (1 - v) * (
                (1 - u) * image[row, column] + u * image[row, column + 1]
            ) + v * ((1 - u) * image[row + 1, column] + u * image[row + 1, column + 1])
    return True

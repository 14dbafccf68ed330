"""How precisely keypoints are located along one direction of an image against another.

Fast turns blur images along the way they turn: keypoints there are two to three times less precise
than across. Taken for equally precise, they pull every motion towards the direction of the blur,
where depths can explain all that does not fit.
"""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np

from lgc_ros.features.base import Extractor, Features

# Gradients are taken in the image smoothed by a window and a deviation of so many pixels, around
# about this many keypoints, weak and strong ones, at points so far from them.
WINDOW_PX, SMOOTHING_PX = 5, 1.5
SOME_KEYPOINTS = 300
OFFSETS_PX = np.stack(np.meshgrid(*2 * [np.arange(-6, 7, 3)]), axis=-1).reshape(-1, 2)
# Kinds of keypoints that lie on whole pixels: their noise is the grid's, equal all around.
ON_PIXELS = ("orb",)
# Directions differ at most by this: no image says more about the noise of its keypoints.
MAX_RATIO = 10.0


def with_sharpness(extract: Extractor) -> Extractor:
    """The same extractor, whose features know the sharpness of their image."""

    def measured(image: np.ndarray) -> Features:
        features = extract(image)
        if features.kind in ON_PIXELS:
            return features
        return replace(features, sharpness=sharpness(image, features.points))

    return measured


def sharpness(image: np.ndarray, points: np.ndarray) -> np.ndarray:
    """A symmetric (2, 2), determinant 1, that makes the noise of keypoints equal all around.

    A keypoint is where second derivatives balance noise. They fall with the square of a blur's
    length, as does the mean square of gradients, the structure tensor: it is what is returned, of
    the usual keypoint (median). In an image without texture all directions are equal.
    """
    if len(points) == 0:
        return np.eye(2)
    gray = image if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    smooth = cv2.GaussianBlur(gray, (WINDOW_PX, WINDOW_PX), SMOOTHING_PX)
    some = points[:: 1 + len(points) // SOME_KEYPOINTS, None]
    around = np.round(some).astype(int) + OFFSETS_PX
    column, row = np.clip(around, 0, np.array(gray.shape[::-1]) - 1).transpose(2, 0, 1)
    gx, gy = (gradient[row, column].astype(np.float64) for gradient in cv2.spatialGradient(smooth))
    xx, xy, yy = (np.median((a * b).mean(axis=1)) for a, b in ((gx, gx), (gx, gy), (gy, gy)))
    values, vectors = np.linalg.eigh([[xx, xy], [xy, yy]])
    values = np.maximum(values, max(values[1] / MAX_RATIO, 1e-9))
    return (vectors * values / np.sqrt(values.prod())) @ vectors.T

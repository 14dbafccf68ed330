"""Features of one image, and the selection of keypoints that extractors share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace

import cv2
import numpy as np

# With `spread`, the image is divided into square cells of about this many keypoints each.
KEYPOINTS_PER_CELL = 4
# Kinds of bit-string descriptors; the numbers of all others become float32, whatever holds them.
BINARY_KINDS = ("orb", "akaze")


@dataclass(frozen=True, eq=False)
class Features:
    """Keypoints of one image; unknown sizes are 1, unknown angles and responses 0."""

    points: np.ndarray  # (N, 2) float32, x and y in pixels
    descriptors: np.ndarray  # (N, D) float32, or uint8 with 8 bits per byte for binary kinds
    sizes: np.ndarray  # (N,) float32, diameter in pixels
    angles: np.ndarray  # (N,) float32, degrees
    responses: np.ndarray  # (N,) float32, strength, comparable within one extractor only
    kind: str  # descriptor type; only features of the same kind can be matched
    sharpness: np.ndarray = field(default_factory=lambda: np.eye(2))  # see image_sharpness.py

    def __len__(self) -> int:
        return len(self.points)

    def subset(self, selection: np.ndarray | slice) -> Features:
        """The features selected by a mask, an index array (in its order) or a slice."""
        of_image = ("kind", "sharpness")
        by_keypoint = [f.name for f in fields(self) if f.name not in of_image]
        return replace(self, **{name: getattr(self, name)[selection] for name in by_keypoint})


Extractor = Callable[[np.ndarray], Features]
"""Features of a uint8 image, gray (H, W) or BGR (H, W, 3)."""


def features_from_rows(kind: str, rows: np.ndarray, descriptors: np.ndarray) -> Features:
    """Features from rows of x, y, size, angle and response; trailing columns may be missing."""
    complete = np.tile(np.array([0, 0, 1, 0, 0], np.float32), (len(rows), 1))
    known = min(rows.shape[1], 5)
    complete[:, :known] = rows[:, :known]
    _, _, sizes, angles, responses = complete.T.copy()
    return Features(complete[:, :2].copy(), descriptors, sizes, angles, responses, kind)


def no_features() -> Features:
    """Features of an image from which none were extracted."""
    return features_from_rows("", np.empty((0, 5), np.float32), np.empty((0, 0), np.float32))


def descriptor_dtype(kind: str) -> type:
    """Type of the descriptors of a kind."""
    return np.uint8 if kind in BINARY_KINDS else np.float32


def to_gray(image: np.ndarray) -> np.ndarray:
    """Grayscale version of a gray or BGR image."""
    return image if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)


def strongest(responses: np.ndarray, count: int | None) -> np.ndarray:
    """Indices of the `count` largest responses (None: all), largest first, ties in order."""
    return np.argsort(-responses, kind="stable")[:count]


def strongest_spread(points: np.ndarray, count: int, size: tuple[int, int]) -> np.ndarray:
    """Indices of `count` keypoints spread over an image of this width and height.

    `points` are sorted by decreasing response. The cells of a grid take turns: each round takes
    the strongest keypoint left in every cell. The cost is a few sorts, far below a detection.
    """
    side = np.sqrt(size[0] * size[1] * KEYPOINTS_PER_CELL / count)
    column, row = (points // side).astype(np.int64).T
    cells = row * (int(size[0] // side) + 1) + column
    by_cell = np.argsort(cells, kind="stable")
    _, starts, counts = np.unique(cells[by_cell], return_index=True, return_counts=True)
    turn = np.empty_like(cells)
    turn[by_cell] = np.arange(len(cells)) - np.repeat(starts, counts)
    return np.sort(np.argsort(turn, kind="stable")[:count])

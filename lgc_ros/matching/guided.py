"""Guided matching: search for known points around their predicted positions."""

from __future__ import annotations

import numpy as np

from lgc_ros.matching.correspondences import row_distances

NOT_FOUND = -1
# Ratio test between the two best candidates within the search window.
MAX_RATIO = 0.8


def match_guided(
    expected: np.ndarray,
    descriptors: np.ndarray,
    points: np.ndarray,
    candidates: np.ndarray,
    radius: float,
    max_distance: float,
) -> np.ndarray:
    """(L,) index of the keypoint that matches each predicted point, or NOT_FOUND.

    A keypoint is assigned to one predicted point at most.

    Args:
        expected: (L, 2) predicted positions.
        descriptors: (L, D) their known descriptors.
        points: (N, 2) keypoints, in the unit of the predicted positions.
        candidates: (N, D) descriptors of the keypoints.
        radius: half the side of the square search window.
        max_distance: maximum distance between descriptors of the same point.
    """
    target, keypoint = _pairs_within(expected, points, radius)
    distance = row_distances(descriptors[target], candidates[keypoint])
    order = np.lexsort((distance, target))
    target, keypoint, distance = target[order], keypoint[order], distance[order]
    first = np.diff(target, prepend=NOT_FOUND) > 0
    next_distance = np.append(distance[1:], np.inf)
    next_distance[np.append(first[1:], True)] = np.inf
    good = first & (distance < max_distance) & (distance < MAX_RATIO * next_distance)
    target, keypoint, distance = target[good], keypoint[good], distance[good]
    nearest = np.argsort(distance, kind="stable")
    _, winners = np.unique(keypoint[nearest], return_index=True)
    winners = nearest[winners]
    found = np.full(len(expected), NOT_FOUND)
    found[target[winners]] = keypoint[winners]
    return found


def _pairs_within(
    expected: np.ndarray, points: np.ndarray, radius: float
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of predicted positions and keypoints within `radius` in both coordinates."""
    order = np.argsort(points[:, 0])
    across = points[order, 0]
    begin = np.searchsorted(across, expected[:, 0] - radius)
    counts = np.searchsorted(across, expected[:, 0] + radius, side="right") - begin
    target = np.repeat(np.arange(len(expected)), counts)
    skipped = np.repeat(np.cumsum(counts) - counts - begin, counts)
    keypoint = order[np.arange(len(target)) - skipped]
    near = np.abs(points[keypoint, 1] - expected[target, 1]) <= radius
    return target[near], keypoint[near]

"""Guided matching: what is known is looked for where it should be seen, and nowhere else."""

from __future__ import annotations

import numpy as np

from lgc_ros.matching.correspondences import row_distances

NOT_FOUND = -1
# The best candidate must be this much nearer, as descriptors go, than the second best nearby.
MAX_RATIO = 0.8


def match_guided(
    expected: np.ndarray,
    descriptors: np.ndarray,
    points: np.ndarray,
    candidates: np.ndarray,
    radius: float,
    max_distance: float,
) -> np.ndarray:
    """(L,) the keypoint near each expected place that looks like what is expected there.

    NOT_FOUND where none does; a keypoint answers to one place at most.

    Args:
        expected: (L, 2) where something should be seen.
        descriptors: (L, D) what it should look like.
        points: (N, 2) keypoints, in the unit of the places.
        candidates: (N, D) their descriptors.
        radius: half the side of the square around a place that is searched.
        max_distance: of two descriptors of the same thing.
    """
    place, keypoint = _pairs_within(expected, points, radius)
    distance = row_distances(descriptors[place], candidates[keypoint])
    order = np.lexsort((distance, place))
    place, keypoint, distance = place[order], keypoint[order], distance[order]
    first = np.diff(place, prepend=NOT_FOUND) > 0
    next_distance = np.append(distance[1:], np.inf)
    next_distance[np.append(first[1:], True)] = np.inf
    good = first & (distance < max_distance) & (distance < MAX_RATIO * next_distance)
    place, keypoint, distance = place[good], keypoint[good], distance[good]
    nearest = np.argsort(distance, kind="stable")
    _, winners = np.unique(keypoint[nearest], return_index=True)
    winners = nearest[winners]
    found = np.full(len(expected), NOT_FOUND)
    found[place[winners]] = keypoint[winners]
    return found


def _pairs_within(
    expected: np.ndarray, points: np.ndarray, radius: float
) -> tuple[np.ndarray, np.ndarray]:
    """Places and keypoints that are within the radius of each other in both coordinates."""
    order = np.argsort(points[:, 0])
    across = points[order, 0]
    begin = np.searchsorted(across, expected[:, 0] - radius)
    counts = np.searchsorted(across, expected[:, 0] + radius, side="right") - begin
    place = np.repeat(np.arange(len(expected)), counts)
    skipped = np.repeat(np.cumsum(counts) - counts - begin, counts)
    keypoint = order[np.arange(len(place)) - skipped]
    near = np.abs(points[keypoint, 1] - expected[place, 1]) <= radius
    return place[near], keypoint[near]

"""Keypoints, scores and descriptors among the outputs of a network that chooses keypoints itself.

Exporters differ in names, order, batch dimensions, and in the unit of the coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

# Part of an output's name, and the role of the output; `keypoint_scores` are scores. The scales
# that XFeat's multiscale exports return (`sc`, `scales`) have no use here.
ROLES = {
    "score": "scores",
    "desc": "descriptors",
    "keypoint": "keypoints",
    "kpt": "keypoints",
    "scale": "",
}
# Scores of the pixels that fill up a fixed number of keypoints: suppressed, or at the border.
FILLERS = (0, -1)
# Lengths of descriptors differ by less than this if the network normalizes them.
UNIT_LENGTH_TOLERANCE = 1e-2


@dataclass(frozen=True, eq=False)
class GivenKeypoints:
    """Keypoints of one image as a network returns them."""

    points: np.ndarray  # (N, 2) float64, x and y in the network's unit
    scores: np.ndarray  # (N,) float64; all zero if it returns none
    descriptors: np.ndarray  # (N, D)


def find_keypoints(outputs: Mapping[str, np.ndarray]) -> GivenKeypoints | None:
    """The keypoints among the outputs of a network; None if it returns none.

    Keypoints are (N, 2), descriptors (N, D) or (D, N), scores (N,), each with or without a batch
    dimension of 1. They are recognized by their names, otherwise by their shapes; further outputs
    are ignored. Keypoints that only fill up a fixed number are left out.
    """
    by_role = _by_role(outputs)
    points = next((p for p in by_role["keypoints"] if p.ndim == 2 and p.shape[1] == 2), None)
    if points is None:
        return None
    count = len(points)
    tables = (d for d in by_role["descriptors"] if d.ndim == 2 and count in d.shape)
    descriptors = next(tables, None)
    scores = next((s for s in by_role["scores"] if s.size == count), None)
    if descriptors is None or (scores is None and by_role["scores"]):
        return None
    if scores is None:
        scores = np.zeros(count)
    scores = scores.astype(np.float64).reshape(-1)
    found = GivenKeypoints(points.astype(np.float64), scores, _by_row(descriptors, count))
    filler = np.isin(scores, FILLERS)
    if filler.all():
        return found
    return GivenKeypoints(found.points[~filler], scores[~filler], found.descriptors[~filler])


def unit_of(points: np.ndarray) -> str:
    """The unit of coordinates (N, 2), a key of `TO_PIXELS`; the more points, the surer."""
    if not len(points) or np.abs(points).max() > 1:
        return "pixels"
    return "from -1 to 1" if points.min() < 0 else "from 0 to 1"


TO_PIXELS = {
    "pixels": lambda points, size: points,
    # The centers of the first and last pixels, as ALIKED has it.
    "from -1 to 1": lambda points, size: (points + 1) / 2 * (size - 1),
    # Pixels divided by the size, as SuperPoint of Hugging Face has it.
    "from 0 to 1": lambda points, size: points * size,
}
"""Pixels from coordinates (N, 2) and the width and height (2,) of the network's input."""


def _by_role(outputs: Mapping[str, np.ndarray]) -> dict[str, list[np.ndarray]]:
    """Outputs without batch dimensions by what they are, the named before the guessed ones."""
    named: dict[str, list[np.ndarray]] = {role: [] for role in ROLES.values()}
    guessed: dict[str, list[np.ndarray]] = {role: [] for role in ROLES.values()}
    for name, value in outputs.items():
        value = value[0] if value.ndim == 3 and len(value) == 1 else value
        role = _role(name.lower())
        is_list = value.ndim == 1 or (value.ndim == 2 and 1 in value.shape)
        if role == "scores" and not is_list:
            continue  # a map of scores
        if role is not None:
            named[role].append(value)
        elif is_list:
            guessed["scores"].append(value)
        elif value.ndim == 2:
            guessed["keypoints" if value.shape[1] == 2 else "descriptors"].append(value)
    return {role: named[role] + guessed[role] for role in named}


def _role(name: str) -> str | None:
    """What an output of this name is, "" for nothing of use; None if the name does not say."""
    if name == "sc":
        return ""
    return next((role for part, role in ROLES.items() if part in name), None)


def _by_row(descriptors: np.ndarray, count: int) -> np.ndarray:
    """Descriptors (N, D) from (N, D) or (D, N); if N = D, the one with rows of equal length."""
    if descriptors.shape == (count, count) and count > 1:
        spread = [np.ptp(np.linalg.norm(descriptors, axis=axis)) for axis in (1, 0)]
        return descriptors.T if spread[1] < UNIT_LENGTH_TOLERANCE <= spread[0] else descriptors
    return descriptors if len(descriptors) == count else descriptors.T

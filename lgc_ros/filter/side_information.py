"""Side information: network inputs of a match in addition to its coordinates.

`ratio` and `mutual` measure how distinctive a match is, `descriptor_distance` how similar its
keypoints look. `consensus` measures how many distinctive matches of the pair changed keypoint
scale and orientation as this one did: true matches agree, outliers do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

SIDE = ("ratio", "mutual", "consensus", "descriptor_distance")
ROLL_BINS = 36  # 10 degrees each
ZOOM_BINS = 24  # a quarter octave each
MAX_ZOOM_OCTAVES = 3.0  # in either direction
SMOOTHING = {-2: 0.06, -1: 0.24, 0: 0.4, 1: 0.24, 2: 0.06}  # over neighboring bins

# Smoothing matrices of the histogram; roll is cyclic.
SMOOTH_ROLL = sum(s * np.roll(np.eye(ROLL_BINS), k, axis=0) for k, s in SMOOTHING.items())
SMOOTH_ZOOM = sum(s * np.eye(ZOOM_BINS, k=k) for k, s in SMOOTHING.items())


class SideInformation(Protocol):
    """What is known of N matches besides coordinates: (N,) arrays as in `Correspondences`.

    Without keypoint scale and orientation, `zoom` and `roll` are None and there is no consensus.
    """

    @property
    def ratio(self) -> np.ndarray: ...

    @property
    def mutual(self) -> np.ndarray: ...

    @property
    def zoom(self) -> np.ndarray | None: ...

    @property
    def roll(self) -> np.ndarray | None: ...

    @property
    def descriptor_distance(self) -> np.ndarray | None: ...


def side_information_error(names: Iterable[str]) -> str:
    """Error message for unknown names of side information; empty if all are known."""
    unknown = [name for name in names if name not in SIDE]
    if not unknown:
        return ""
    return f"unknown side information {', '.join(unknown)}; known are {', '.join(SIDE)}"


def network_inputs(
    x0: np.ndarray, x1: np.ndarray, known: SideInformation, names: Sequence[str]
) -> np.ndarray:
    """(N, 4 + len(names)) float32 network inputs: coordinates (equation 1), side information.

    Args:
        x0, x1: (N, 2) normalized coordinates.
        known: side information of the matches; only what `names` need is read.
        names: side information that the network takes, in order.
    """
    side = [consensus(known) if name == "consensus" else getattr(known, name) for name in names]
    return np.column_stack([x0, x1, *side]).astype(np.float32)


def consensus(known: SideInformation) -> np.ndarray:
    """(N,) in [0, 1]: votes of distinctive matches for each match's zoom and roll.

    Mutual matches vote in a histogram of zoom and roll with the weight 1 - ratio. The bin with
    most votes has the value 1.
    """
    assert known.roll is not None
    assert known.zoom is not None
    roll = (known.roll / (2 * np.pi) % 1 * ROLL_BINS).astype(np.int64) % ROLL_BINS
    zoom = (known.zoom + MAX_ZOOM_OCTAVES) / (2 * MAX_ZOOM_OCTAVES) * ZOOM_BINS
    zoom = np.clip(zoom, 0, ZOOM_BINS - 1).astype(np.int64)
    weight = known.mutual * (1 - known.ratio)
    votes = np.bincount(roll * ZOOM_BINS + zoom, weight, ROLL_BINS * ZOOM_BINS)
    smooth = SMOOTH_ROLL @ votes.reshape(ROLL_BINS, ZOOM_BINS) @ SMOOTH_ZOOM
    return smooth[roll, zoom] / max(smooth.max(), np.finfo(float).tiny)

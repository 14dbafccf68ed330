"""Side information: what is known of a match beside its coordinates, as the network takes it.

`ratio` and `mutual` tell how distinctive a match is. `consensus` tells how many distinctive
matches of the pair grew and turned as this one did: right matches do so together, wrong ones
each for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

SIDE = ("ratio", "mutual", "consensus")
ROLL_BINS = 36  # of 10 degrees
ZOOM_BINS = 24  # of a quarter octave
ZOOM_LIMIT = 3.0  # octaves either way
SMOOTHING = {-2: 0.06, -1: 0.24, 0: 0.4, 1: 0.24, 2: 0.06}  # neighbours count: both vary

# What blurs votes in either direction; roll is an angle and has no ends.
OVER_ROLL = sum(s * np.roll(np.eye(ROLL_BINS), k, axis=0) for k, s in SMOOTHING.items())
OVER_ZOOM = sum(s * np.eye(ZOOM_BINS, k=k) for k, s in SMOOTHING.items())


def side_information_error(names: Iterable[str]) -> str:
    """What is wrong with the names of side information; empty if nothing is."""
    unknown = [name for name in names if name not in SIDE]
    if not unknown:
        return ""
    return f"unknown side information {', '.join(unknown)}; known are {', '.join(SIDE)}"


def network_inputs(
    x0: np.ndarray, x1: np.ndarray, known: object, names: Sequence[str]
) -> np.ndarray:
    """(N, 4 + len(names)) float32 rows of the network: coordinates, then side information.

    Args:
        x0, x1: (N, 2) normalized coordinates.
        known: has `ratio`, `mutual`, `zoom` and `roll` of the matches, as far as they are needed.
        names: which side information the network takes, in order.
    """
    side = [consensus(known) if name == "consensus" else getattr(known, name) for name in names]
    return np.column_stack([x0, x1, *side]).astype(np.float32)


def consensus(known: object) -> np.ndarray:
    """(N,) in [0, 1]: votes of distinctive matches for each match's zoom and roll.

    All matches vote, mutual ones with as much weight as they pass the ratio test by; 1 is where
    the pair's votes culminate.
    """
    roll = (known.roll / (2 * np.pi) % 1 * ROLL_BINS).astype(np.int64) % ROLL_BINS
    zoom = (known.zoom + ZOOM_LIMIT) / (2 * ZOOM_LIMIT) * ZOOM_BINS
    zoom = np.clip(zoom, 0, ZOOM_BINS - 1).astype(np.int64)
    weight = known.mutual * (1 - known.ratio)
    votes = np.bincount(roll * ZOOM_BINS + zoom, weight, ROLL_BINS * ZOOM_BINS)
    votes = OVER_ROLL @ votes.reshape(ROLL_BINS, ZOOM_BINS) @ OVER_ZOOM
    return votes[roll, zoom] / max(votes.max(), np.finfo(float).tiny)

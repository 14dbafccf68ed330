"""Side information: what is known of a match beside its coordinates, as the network takes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

# Channels that each kind of side information takes. `ratio` and `mutual` tell how distinctive a
# match is; `zoom` and `roll`, by which its keypoint grew and turned, are alike for the right
# matches of a pair and anything for wrong ones.
CHANNELS = {"ratio": 1, "mutual": 1, "zoom": 1, "roll": 2}


def unknown_side(names: Iterable[str]) -> str:
    """What is wrong with the names of side information; empty if nothing is."""
    unknown = [name for name in names if name not in CHANNELS]
    if not unknown:
        return ""
    return f"unknown side information {', '.join(unknown)}; known are {', '.join(CHANNELS)}"


def channel_count(names: Iterable[str]) -> int:
    """Number of input channels that the named side information takes."""
    return sum(CHANNELS[name] for name in names)


def network_inputs(
    x0: np.ndarray, x1: np.ndarray, known: object, names: Sequence[str]
) -> np.ndarray:
    """(N, 4 + channels) float32 rows of the network: coordinates, then side information.

    Args:
        x0, x1: (N, 2) normalized coordinates.
        known: has the side information as attributes, (N,) each.
        names: which of it the network takes, in order. An angle enters as cosine and sine.
    """
    columns = [x0, x1]
    for name in names:
        values = getattr(known, name)
        columns += [np.cos(values), np.sin(values)] if name == "roll" else [values]
    return np.column_stack(columns).astype(np.float32)

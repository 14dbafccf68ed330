"""Whether one method is better than another by more than chance, on the same pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lgc_ros.evaluation.pair_metrics import (
    BOOTSTRAP_SAMPLES,
    INTERVAL_PERCENT,
    map_at,
)


@dataclass(frozen=True)
class Difference:
    """Difference of two mean mAP values, and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


def paired_difference(
    first: Sequence[np.ndarray], second: Sequence[np.ndarray], threshold_deg: int
) -> Difference:
    """Mean over the sequences of mAP of the first method minus that of the second.

    Args:
        first, second: pose errors in degrees of the same pairs, one array per sequence.
        threshold_deg: threshold of mAP.

    Pairs are resampled within each sequence, with both methods on the same pairs: a pair that is
    easy or hard for both does not widen the interval.
    """
    rng = np.random.default_rng(0)
    means, samples = [], []
    for errors in zip(first, second, strict=True):
        both = np.stack([np.asarray(e, dtype=np.float64) for e in errors])
        drawn = rng.integers(0, both.shape[1], (BOOTSTRAP_SAMPLES, both.shape[1]))
        means.append(map_at(both, threshold_deg))
        samples.append(map_at(both[:, drawn], threshold_deg))
    mean = np.mean(means, axis=0)
    sample = np.mean(samples, axis=0)
    low, high = np.percentile(sample[0] - sample[1], INTERVAL_PERCENT)
    return Difference(float(mean[0] - mean[1]), float(low), float(high))

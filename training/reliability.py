"""How well the scores of a model are calibrated: reliability diagram and calibration error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from torch import nn

from lgc_ros.estimation.two_view import LABEL_THRESHOLD
from lgc_ros.filter.checkpoint import ModelInfo
from lgc_ros.filter.correspondence_filter import interpret
from lgc_ros.visualization.figures import load_pyplot, save_figure
from training.data.dump import Dump
from training.validation import network_output

BINS = 15


def scores_and_labels(
    network: nn.Module, info: ModelInfo, dumps: Sequence[Dump]
) -> tuple[np.ndarray, np.ndarray]:
    """Scores of all matches of all pairs, and whether each match is true."""

    def pairs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for dump in dumps:
            for index in range(len(dump)):
                pair = dump[index]
                scores = interpret(network_output(network, info, pair), info).scores
                yield scores, pair.ys < LABEL_THRESHOLD

    scores, labels = zip(*pairs(), strict=True)
    return np.concatenate(scores), np.concatenate(labels)


def reliability(scores: np.ndarray, true: np.ndarray) -> np.ndarray:
    """(BINS, 3) mean score, share of true matches and count of equally wide bins of scores.

    Mean and share of an empty bin are NaN.
    """
    bins = np.minimum((scores * BINS).astype(int), BINS - 1)
    count = np.bincount(bins, minlength=BINS)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(bins, scores, BINS) / count
        share = np.bincount(bins, true, BINS) / count
    return np.column_stack([mean, share, count])


def expected_calibration_error(scores: np.ndarray, true: np.ndarray) -> float:
    """Mean difference of score and share of true matches over the bins, weighted by count."""
    mean, share, count = reliability(scores, true).T
    return float(np.nansum(count * np.abs(mean - share)) / max(count.sum(), 1))


def plot_reliability(path: Path, scores: np.ndarray, true: np.ndarray, title: str = "") -> None:
    """Share of true matches by score, and the histogram of the scores."""
    mean, share, count = reliability(scores, true).T
    figure, (top, bottom) = load_pyplot().subplots(
        2, 1, figsize=(4.2, 5.0), height_ratios=(3, 1), sharex=True, layout="constrained"
    )
    top.plot([0, 1], [0, 1], color="0.7", linewidth=1, label="perfect calibration")
    error = expected_calibration_error(scores, true)
    top.plot(mean, share, marker="o", markersize=4, label=f"scores, ECE {error:.3f}")
    top.set(ylabel="share of true matches", xlim=(0, 1), ylim=(0, 1), title=title)
    top.legend(frameon=False)
    bottom.bar((np.arange(BINS) + 0.5) / BINS, count / count.sum(), 0.9 / BINS, log=True)
    bottom.set(xlabel="score", ylabel="share of matches")
    for axis in (top, bottom):
        axis.grid(alpha=0.3)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    save_figure(path, figure)

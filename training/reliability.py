"""How well the scores of a model are calibrated: reliability diagram and calibration error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from torch import nn

from lgc_ros.estimation.two_view import LABEL_THRESHOLD
from lgc_ros.filter.checkpoint import ModelInfo
from lgc_ros.filter.correspondence_filter import interpret
from lgc_ros.visualization.figures import load_pyplot, save_figure
from training.data.dump import Dump
from training.validation import network_output, solved

BINS = 15
FILTER, WITH_POSE = "filter", "filter and pose"


def scores_and_labels(
    network: nn.Module, info: ModelInfo, dumps: Sequence[Dump]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Scores of all matches of all pairs by what they rest on, and whether each match is true."""
    scores: dict[str, list[np.ndarray]] = {FILTER: [], WITH_POSE: []}
    labels = []
    for dump in dumps:
        for index in range(len(dump)):
            pair = dump[index]
            filtered = interpret(network_output(network, info, pair), info)
            scores[FILTER].append(filtered.scores)
            scores[WITH_POSE].append(solved("cn", filtered, pair).scores)
            labels.append(pair.ys < LABEL_THRESHOLD)
    return {name: np.concatenate(parts) for name, parts in scores.items()}, np.concatenate(labels)


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


def plot_reliability(
    path: Path, scores: Mapping[str, np.ndarray], true: np.ndarray, title: str = ""
) -> None:
    """Share of true matches by score, and the histogram of the scores, for each kind of scores."""
    figure, (top, bottom) = load_pyplot().subplots(
        2, 1, figsize=(4.2, 5.0), height_ratios=(3, 1), sharex=True, layout="constrained"
    )
    top.plot([0, 1], [0, 1], color="0.7", linewidth=1, label="perfect calibration")
    edges = np.linspace(0, 1, BINS + 1)
    for name, values in scores.items():
        mean, share, count = reliability(values, true).T
        error = expected_calibration_error(values, true)
        top.plot(mean, share, marker="o", markersize=4, label=f"{name}, ECE {error:.3f}")
        bottom.stairs(count / count.sum(), edges, linewidth=1.5)
    bottom.set_yscale("log")
    top.set(ylabel="share of true matches", xlim=(0, 1), ylim=(0, 1), title=title)
    top.legend(frameon=False)
    bottom.set(xlabel="score", ylabel="share of matches")
    for axis in (top, bottom):
        axis.grid(alpha=0.3)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    save_figure(path, figure)

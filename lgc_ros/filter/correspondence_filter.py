"""Scores for the putative matches of a pair, and which of them to keep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lgc_ros.errors import CheckpointError
from lgc_ros.filter.backends.engines import make_engine
from lgc_ros.filter.checkpoint import ModelInfo, load_checkpoint
from lgc_ros.filter.network import COORDINATES
from lgc_ros.filter.probability import prior_log_odds, sigmoid
from lgc_ros.filter.side_information import network_inputs
from lgc_ros.matching.correspondences import Correspondences

WARM_UP_MATCHES = 2000
# Matches that a pose is estimated from.
MIN_TRUSTED, MAX_TRUSTED = 100, 500


@dataclass(frozen=True, eq=False)
class FilterResult:
    """Scores of the matches of a pair.

    Attributes:
        logits: (N,) float64, higher is better; matches above 0 have a weight.
        weights: (N,) float64 in [0, 1), the weights of the weighted 8-point algorithm.
        scores: (N,) float64 in (0, 1), probability that each match is true.
        kept: (N,) bool, matches with a logit above the model's threshold.
        trust_score: score from which on a pose is estimated from a match.
    """

    logits: np.ndarray
    weights: np.ndarray
    scores: np.ndarray
    kept: np.ndarray
    trust_score: float


class CorrespondenceFilter:
    """Runs a trained network on the matches of one pair at a time.

    Args:
        model: name of a shipped model or path of a model file.
        device: ``auto`` (the GPU if there is one), ``cpu``, ``cuda`` or ``cuda:N``. A missing GPU
            is replaced by the CPU, with a warning in the log.
        engine: backend, a key of :data:`lgc_ros.filter.backends.engines.ENGINES`; ``auto`` is the
            fastest that is installed.

    Attributes:
        info: metadata of the model file.
        engine: name of the backend in use.
        device: device in use.
    """

    def __init__(
        self, model: str | Path = "sift", device: str = "auto", engine: str = "auto"
    ) -> None:
        network, self.info = load_checkpoint(model)
        if self.info.network.head != "weights":
            raise CheckpointError(
                f"model {self.info.name!r} predicts a pose directly and cannot score matches: "
                "choose a model with head 'weights'"
            )
        chosen = make_engine(engine, network, self.info, device)
        self.engine, self.device, self._run = chosen.name, chosen.device, chosen.run
        channels = COORDINATES + self.info.network.side
        self._run(np.zeros((WARM_UP_MATCHES, channels), np.float32))

    def check_features(self, kind: str) -> None:
        """Raise a CheckpointError unless the model was trained on this kind of features."""
        if kind != self.info.features:
            raise CheckpointError(
                f"model {self.info.name!r} was trained on {self.info.features} features, not "
                f"{kind}: choose a model for {kind}, or extract {self.info.features}"
            )

    def __call__(self, correspondences: Correspondences) -> FilterResult:
        """Score every match of a pair."""
        c = correspondences
        if len(c) == 0:
            return interpret(np.empty(0), self.info)
        return interpret(self._run(network_inputs(c.x0, c.x1, c, self.info.side)), self.info)


def interpret(logits: np.ndarray, info: ModelInfo) -> FilterResult:
    """Weights, probabilities and decisions from the logits (N,) of all matches of a pair."""
    logits = logits.astype(np.float64)
    log_odds = logits + info.margin
    prior = prior_log_odds(log_odds) if len(logits) else 0.0
    return FilterResult(
        logits=logits,
        weights=np.tanh(np.maximum(logits, 0)),
        scores=sigmoid(log_odds + prior),
        kept=logits > info.keep_above,
        trust_score=float(sigmoid(info.trust_above + info.margin + prior)),
    )


def top_scoring(scores: np.ndarray, above: float) -> np.ndarray:
    """Mask of the matches that score at least `above`: at least 100, at most 500.

    Beyond a certain number, further true matches hardly improve a pose, while outliers that agree
    with each other ruin it.
    """
    count = np.clip(np.count_nonzero(scores >= above), MIN_TRUSTED, MAX_TRUSTED)
    mask = np.zeros(len(scores), bool)
    mask[np.argsort(-scores, kind="stable")[:count]] = True
    return mask

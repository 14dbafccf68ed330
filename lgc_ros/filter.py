"""The learned filter: a score for every putative match of a pair."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from lgc_ros.checkpoint import load_checkpoint
from lgc_ros.errors import CheckpointError, ConfigError
from lgc_ros.matching import Correspondences
from lgc_ros.side import network_inputs

log = logging.getLogger(__name__)

ENGINES = ("torch",)
WARM_UP_MATCHES = 2000


@dataclass(frozen=True, eq=False)
class FilterResult:
    """What the filter thinks of each match.

    Attributes:
        logits: (N,) float64, higher is better; 0 is the network's own decision boundary.
        weights: (N,) float64 in [0, 1), the weights of the weighted 8-point algorithm.
        kept: (N,) bool, the matches worth estimating a pose from.
    """

    logits: np.ndarray
    weights: np.ndarray
    kept: np.ndarray


class CorrespondenceFilter:
    """Runs a trained network on the matches of one pair at a time.

    Args:
        model: name of a shipped model or path of a model file.
        device: ``auto`` (the GPU if there is one), ``cpu``, ``cuda`` or ``cuda:N``. A GPU that is
            not there is replaced by the CPU, with a warning in the log.
        engine: what runs the network; ``torch``.
    """

    def __init__(
        self, model: str | Path = "sift", device: str = "auto", engine: str = "torch"
    ) -> None:
        if engine not in ENGINES:
            raise ConfigError(f"unknown engine {engine!r}: use one of {', '.join(ENGINES)}")
        self.engine, self.device = engine, choose_device(device)
        network, self.info = load_checkpoint(model)
        if self.info.network.head != "weights":
            raise CheckpointError(
                f"model {self.info.name!r} predicts a pose directly and cannot score matches: "
                "choose a model with head 'weights'"
            )
        self._network = network.to(self.device)
        self._run(np.zeros((WARM_UP_MATCHES, 4 + self.info.network.side), np.float32))

    def check_features(self, kind: str) -> None:
        """Refuse keypoints of another kind than the model was trained on."""
        if kind != self.info.features:
            raise CheckpointError(
                f"model {self.info.name!r} was trained on {self.info.features} keypoints, not "
                f"{kind}: choose a model for {kind} or extract {self.info.features}"
            )

    def __call__(self, correspondences: Correspondences) -> FilterResult:
        """Score every match of a pair."""
        if len(correspondences) == 0:
            nothing = np.empty(0)
            return FilterResult(nothing, nothing, np.empty(0, bool))
        c = correspondences
        logits = self._run(network_inputs(c.x0, c.x1, c, self.info.side))
        return FilterResult(
            logits=logits,
            weights=np.tanh(np.maximum(logits, 0)),
            kept=logits > self.info.keep_above,
        )

    def _run(self, inputs: np.ndarray) -> np.ndarray:
        half = self.device.type == "cuda"
        with torch.inference_mode(), torch.autocast(self.device.type, torch.float16, half):
            output = self._network(torch.from_numpy(inputs)[None].to(self.device))
        return output[0].double().cpu().numpy()


def choose_device(name: str) -> torch.device:
    """The torch device of a name; see :class:`CorrespondenceFilter`."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cpu":
        return torch.device("cpu")
    kind, _, index = name.partition(":")
    if kind != "cuda" or (index and not index.isdigit()) or name.endswith(":"):
        raise ConfigError(f"unknown device {name!r}: use auto, cpu, cuda or cuda:N")
    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(index or 0) >= available:
        log.warning(
            "device %s asked for, but torch sees %d CUDA device(s); running on the CPU",
            name,
            available,
        )
        return torch.device("cpu")
    return torch.device(name)

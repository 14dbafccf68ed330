"""Start of a run: initial weights, teacher, and the thresholds of the new model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from lgc_ros.errors import ConfigError
from lgc_ros.filter.checkpoint import ModelInfo, load_checkpoint
from lgc_ros.filter.network import COORDINATES, CorrespondenceNetwork
from training.config import TrainConfig


def initial_network(config: TrainConfig) -> tuple[CorrespondenceNetwork, ModelInfo | None]:
    """The network to start from, and the metadata of the model it was initialized with."""
    if not config.init:
        return CorrespondenceNetwork(config.network), None
    start, info = load_checkpoint(config.init)
    requested = config.network
    deeper = info.network.blocks > requested.blocks and requested.context != "pointnet"
    blocks = requested.blocks if deeper else info.network.blocks
    if replace(info.network, side=requested.side, blocks=blocks) != requested:
        raise ConfigError(
            f"{config.init} is {info.network}, the configuration requests {requested}"
        )
    if deeper:
        chosen = np.linspace(0, len(start.body) - 1, blocks).round().astype(int)
        start.body = nn.Sequential(*(start.body[i] for i in chosen.tolist()))
    network = CorrespondenceNetwork(requested)
    weights = start.state_dict()
    weights["input.weight"] = _input_weights(weights["input.weight"], info.side, config.side)
    weights["output.bias"] = weights["output.bias"] - (config.margin - info.margin)
    network.load_state_dict(weights)
    return network, info


def load_teacher(
    config: TrainConfig, device: torch.device
) -> tuple[nn.Module, ModelInfo] | tuple[None, None]:
    """The frozen teacher of a distillation and its metadata, if the configuration names one."""
    if not config.teacher:
        return None, None
    teacher, info = load_checkpoint(config.teacher)
    if info.side != config.side or info.network.head != "weights":
        raise ConfigError(
            f"the teacher {config.teacher} has side information {info.side} and head "
            f"{info.network.head}, the configuration requests {config.side} and weights"
        )
    return teacher.requires_grad_(False).eval().to(device), info


def thresholds(config: TrainConfig, model: ModelInfo | None) -> dict[str, float]:
    """Margin and thresholds of the new model, inherited from the initial model or the teacher.

    Logits keep their meaning except for the margin, which shifts them. Without another model,
    all matches with even balanced odds are kept and trusted.
    """
    if model is None:
        even_odds = -config.margin
        return {"keep_above": even_odds, "trust_above": even_odds, "margin": config.margin}
    margin = model.margin if config.teacher else config.margin
    shift = margin - model.margin
    return {
        "keep_above": model.keep_above - shift,
        "trust_above": model.trust_above - shift,
        "margin": margin,
    }


def _input_weights(weights: Tensor, before: Sequence[str], side: Sequence[str]) -> Tensor:
    """Weights of the first layer for other side information: new channels start at zero."""
    columns = dict(zip(before, weights.T[COORDINATES:], strict=True))
    new = weights.new_zeros(len(weights))
    return torch.stack(
        [*weights.T[:COORDINATES], *(columns.get(name, new) for name in side)], dim=1
    )

"""Teaches a trained network to drop the surely wrong matches half-way.

A linear probe looks at the features after a few blocks and foretells whether the network will keep
a match. The network itself stays as it is: what survives is scored as before, up to the
statistics that the dropped ones are sampled for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lgc_ros.checkpoint import ModelInfo, load_checkpoint, save_checkpoint
from lgc_ros.errors import CheckpointError, ConfigError
from lgc_ros.network import CorrespondenceNetwork
from lgc_ros.side import network_inputs
from training.data.batches import SourceConfig, choose_matches, open_source

MATCHES = 2000
MATCHES_PER_PAIR = 500
"""Of so many matches of each pair the probe learns."""
KEPT_WEIGHT = 8.0
"""A match to keep weighs more than one to drop: it is the one that must not be lost."""
DECAY = 1e-4
LABEL_THRESHOLD = 1e-4


@dataclass(frozen=True)
class ProbeConfig:
    """How a probe is made.

    Attributes:
        after: blocks before the probe.
        lost: share of the right matches which the network keeps that may be dropped.
        pairs: number of pairs drawn from the dump; the cut is chosen on a quarter of them.
        seed: of the draw.
    """

    after: int = 3
    lost: float = 0.002
    pairs: int = 600
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.lost < 1:
            raise ConfigError(f"lost is {self.lost}, it must lie between 0 and 1")
        if self.pairs < 4:
            raise ConfigError(f"pairs is {self.pairs}, it must be at least 4")


@dataclass(frozen=True, eq=False)
class _Seen:
    """Of some matches: features (N, C) at the probe; which the network keeps, which are right."""

    features: Tensor
    kept: Tensor
    right: Tensor


def make_probe(model: str | Path, dump: Path, out: Path, config: ProbeConfig) -> dict[str, float]:
    """Write the model with a probe that is fitted to a dump of pairs.

    Returns, of the pairs that the cut was chosen on, the share of matches that survive and the
    share of the right ones among the kept that do not.
    """
    network, info = _whole(*load_checkpoint(model))
    if not 0 < config.after < info.network.blocks:
        raise ConfigError(
            f"after is {config.after}: model {info.name!r} has {info.network.blocks} blocks, of "
            "which some must come before the probe and some behind it"
        )
    pairs = _look(network, info, dump, config)
    held_out = pairs[: config.pairs // 4]
    weight, bias = _fit(pairs[config.pairs // 4 :])
    verdicts = torch.cat([seen.features for seen in held_out]) @ weight + bias
    wanted = torch.cat([seen.kept & seen.right for seen in held_out])
    if not wanted.any():
        raise CheckpointError(
            f"model {info.name!r} keeps no right match of {dump.name}: train it first"
        )
    cut = torch.quantile(verdicts[wanted], config.lost)
    summary = {
        "survive": round(float((verdicts >= cut).float().mean()), 4),
        "lost": round(float((verdicts[wanted] < cut).float().mean()), 4),
    }
    architecture = replace(info.network, drop_after=config.after)
    dropping = CorrespondenceNetwork(architecture)
    probe = {"probe.weight": weight[None], "probe.bias": (bias - cut)[None]}
    dropping.load_state_dict(network.state_dict() | probe)
    training = info.training | {"probe": {"dump": dump.name, "pairs": config.pairs, **summary}}
    save_checkpoint(out, dropping, replace(info, network=architecture, training=training))
    return summary


def _whole(
    network: CorrespondenceNetwork, info: ModelInfo
) -> tuple[CorrespondenceNetwork, ModelInfo]:
    """The network without a probe that it may have already."""
    if (info.network.context, info.network.head) != ("cn", "weights") or info.keep_above < 0:
        raise CheckpointError(
            f"model {info.name!r} cannot drop matches: this takes context 'cn', head 'weights' "
            "and a keeping threshold that is not negative"
        )
    info = replace(info, network=replace(info.network, drop_after=0))
    whole = CorrespondenceNetwork(info.network)
    whole.load_state_dict({name: network.state_dict()[name] for name in whole.state_dict()})
    return whole.eval(), info


@torch.no_grad()
def _look(
    network: CorrespondenceNetwork, info: ModelInfo, dump: Path, config: ProbeConfig
) -> list[_Seen]:
    """What the probe will see, and what the network will say, of matches of each pair."""
    draw = open_source(SourceConfig("dump", path=str(dump), turn=True), MATCHES, info.side)
    rng = np.random.default_rng(config.seed)
    pairs = []
    for _ in range(config.pairs):
        pair = choose_matches(rng, draw(rng), MATCHES)
        rows = network_inputs(pair.xs[:, :2], pair.xs[:, 2:], pair, info.side)
        features = network.body[: config.after](network.input(torch.from_numpy(rows)[:, None]))
        logits = network.output(network.body[config.after :](features)).flatten()
        some = torch.from_numpy(rng.choice(MATCHES, MATCHES_PER_PAIR, replace=False))
        right = torch.from_numpy(pair.ys < LABEL_THRESHOLD)
        pairs.append(_Seen(features[some, 0], logits[some] > info.keep_above, right[some]))
    return pairs


def _fit(pairs: list[_Seen]) -> tuple[Tensor, Tensor]:
    """Weights (C,) and bias () of a logistic regression that foretells what is kept."""
    features = torch.cat([seen.features for seen in pairs])
    kept = torch.cat([seen.kept for seen in pairs]).float()
    importance = 1 + (KEPT_WEIGHT - 1) * kept
    mean, deviation = features.mean(0), features.std(0).clamp_min(1e-6)
    features = (features - mean) / deviation
    weight = torch.zeros(features.shape[1], requires_grad=True)
    bias = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        entropy = F.binary_cross_entropy_with_logits(features @ weight + bias, kept, importance)
        total = entropy + DECAY * weight.square().sum()
        total.backward()
        return total

    optimizer.step(loss)
    weight, bias = weight.detach() / deviation, bias.detach()
    return weight, bias - weight @ mean

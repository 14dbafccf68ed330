"""The training objective: losses of a batch, weighted by the configuration."""

from __future__ import annotations

import torch
from torch import Tensor

from lgc_ros.filter.network import CorrespondenceNetwork
from training.config import TrainConfig
from training.data.batches import Batch
from training.losses import (
    classification_loss,
    distillation_loss,
    essential_loss,
    regression_loss,
)
from training.running_means import RunningMeans
from training.schedule import regression_weight


def batch_losses(
    config: TrainConfig,
    step: int,
    output: Tensor,
    batch: Batch,
    teacher_logits: Tensor | None = None,
) -> dict[str, Tensor]:
    """The total loss of a batch (key ``loss``) and its unweighted terms by name."""
    E_gt = batch.E_gt.to(output.device)
    if config.loss == "direct":
        return {"loss": essential_loss(output, E_gt)}
    labels, xs = batch.labels.to(output.device), batch.xs.to(output.device)
    alpha, beta = config.alpha, regression_weight(config, step)
    if config.loss == "classification":
        beta = 0.0
    elif config.loss == "essential":
        alpha, beta = 0.0, 1.0
    losses = {}
    if alpha:
        losses["classification"] = classification_loss(output + config.margin, labels)
    if beta:
        losses["regression"] = regression_loss(
            output, xs, E_gt, config.regression, config.conditioned, config.pair_clip
        )
    total = alpha * losses.get("classification", 0.0) + beta * losses.get("regression", 0.0)
    if teacher_logits is not None:
        losses["distillation"] = distillation_loss(output, teacher_logits)
        total = total + config.distill * losses["distillation"]
    return {"loss": total, **losses}


@torch.no_grad()
def monitored_losses(
    config: TrainConfig, network: CorrespondenceNetwork, batch: Batch
) -> dict[str, float]:
    """Losses of a fixed batch of any size with the final weight of each term, by name."""
    network.eval()
    device, means = next(network.parameters()).device, RunningMeans()
    for start in range(0, len(batch.xs), config.batch):
        some = slice(start, start + config.batch)
        part = Batch(batch.xs[some], batch.labels[some], batch.E_gt[some])
        losses = batch_losses(config, config.steps, network(part.xs.to(device)), part)
        means.add({name: value.item() for name, value in losses.items()})
    return means.take()

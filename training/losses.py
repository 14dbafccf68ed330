"""The losses of section 3.4, averaged over the pairs of a batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from lgc_ros.filter.network import match_weights
from training.torch_geometry import weighted_eight_point

TAUGHT_LIMIT = 10.0
"""Beyond this logit nothing depends on how sure a teacher is."""


def classification_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross entropy; right and wrong matches of each pair have equal say (equation 6).

    Args:
        logits: (B, N) linear output of the network.
        labels: (B, N) 1 for an inlier, 0 for an outlier.
    """
    entropy = F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
    right = (entropy * labels).sum(1) / labels.sum(1).clamp_min(1)
    wrong = (entropy * (1 - labels)).sum(1) / (1 - labels).sum(1).clamp_min(1)
    return (right + wrong).mean() / 2


def distillation_loss(logits: Tensor, taught: Tensor) -> Tensor:
    """How far logits (B, N) are from those of a teacher: Huber's loss, linear beyond 1.

    Unlike the entropy of probabilities it keeps apart what is sure from what is surer, which
    decides on the matches a pose is estimated from.
    """
    return F.huber_loss(logits, taught.clamp(-TAUGHT_LIMIT, TAUGHT_LIMIT))


def essential_loss(E: Tensor, E_gt: Tensor) -> Tensor:
    """Squared distance of unit-norm essential matrices (B, 3, 3), sign apart (equation 8)."""
    E, E_gt = _unit(E), _unit(E_gt.to(E.dtype))
    plus = (E_gt + E).square().sum((1, 2))
    minus = (E_gt - E).square().sum((1, 2))
    return torch.minimum(plus, minus).mean()


def regression_loss(logits: Tensor, xs: Tensor, E_gt: Tensor) -> Tensor:
    """Essential loss of the weighted 8-point solution of the network's weights.

    It is NaN where an input is not finite: the eigendecomposition would raise an error instead,
    in one of several processes perhaps, which the others would wait for.
    """
    xs, weights = xs[..., :4], match_weights(logits)
    finite = xs.isfinite().all(-1).all(-1) & weights.isfinite().all(-1)
    weights = torch.where(finite[:, None], weights, 0.0)
    xs = torch.where(finite[:, None, None], xs, 0.0)
    E = weighted_eight_point(xs[..., :2], xs[..., 2:], weights)
    return essential_loss(torch.where(finite[:, None, None], E, torch.nan), E_gt)


def _unit(E: Tensor) -> Tensor:
    return E / E.flatten(1).norm(dim=1).clamp_min(1e-12)[:, None, None]

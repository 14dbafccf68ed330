"""The losses of section 3.4, averaged over the pairs of a batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from lgc_ros.filter.network import match_weights
from training.torch_geometry import (
    homogeneous,
    symmetric_epipolar_distance,
    weighted_eight_point,
)

TEACHER_LOGIT_LIMIT = 10.0
"""A teacher's logits are clamped to this magnitude; beyond it, confidence does not matter."""

REGRESSIONS = ("essential", "epipolar")
VIRTUAL_MATCHES = 256
SMALLEST_DISTANCE, HALF_LOSS_DISTANCE = 1e-3, 0.05
"""Epipolar distances in normalized coordinates: the loss is smooth below the first, and reaches
half its maximum at the second, about three degrees."""


def classification_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross entropy; true matches and outliers of a pair have equal weight (equation 7).

    Args:
        logits: (B, N) linear output of the network.
        labels: (B, N) 1 for an inlier, 0 for an outlier.
    """
    entropy = F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
    true = (entropy * labels).sum(1) / labels.sum(1).clamp_min(1)
    outliers = (entropy * (1 - labels)).sum(1) / (1 - labels).sum(1).clamp_min(1)
    return (true + outliers).mean() / 2


def distillation_loss(logits: Tensor, teacher_logits: Tensor) -> Tensor:
    """Huber loss between the logits (B, N) and those of a teacher, linear beyond 1.

    Unlike a cross entropy, it preserves the order among confident matches, which decides from
    which matches a pose is estimated.
    """
    return F.huber_loss(logits, teacher_logits.clamp(-TEACHER_LOGIT_LIMIT, TEACHER_LOGIT_LIMIT))


def essential_loss(E: Tensor, E_gt: Tensor) -> Tensor:
    """Squared distance of unit-norm essential matrices (B, 3, 3), sign apart (equation 9)."""
    E, E_gt = _unit(E), _unit(E_gt.to(E.dtype))
    plus = (E_gt + E).square().sum((1, 2))
    minus = (E_gt - E).square().sum((1, 2))
    return torch.minimum(plus, minus).mean()


def regression_loss(
    logits: Tensor,
    xs: Tensor,
    E_gt: Tensor,
    kind: str = "essential",
    conditioned: bool = False,
    pair_clip: float = 0.0,
) -> Tensor:
    """Error of the weighted 8-point solution with the network's weights.

    It is NaN for non-finite input. The eigendecomposition would raise an error instead, possibly
    in one process only, while the others wait for it.

    Args:
        logits: (B, N) linear output of the network.
        xs: (B, N, 4 + side) rows of the network.
        E_gt: (B, 3, 3) ground-truth essential matrices.
        kind: ``essential`` is the paper's :func:`essential_loss`, ``epipolar`` is
            :func:`epipolar_loss`.
        conditioned: solve for conditioned points, as inference does.
        pair_clip: maximum norm of the gradient of one pair's loss with respect to its logits; 0
            for no limit.
    """
    if pair_clip:
        logits = _ClippedByPair.apply(logits, pair_clip / len(logits))
    xs, weights = xs[..., :4], match_weights(logits)
    finite = xs.isfinite().all(-1).all(-1) & weights.isfinite().all(-1)
    weights = torch.where(finite[:, None], weights, 0.0)
    xs = torch.where(finite[:, None, None], xs, 0.0)
    E = weighted_eight_point(xs[..., :2], xs[..., 2:], weights, conditioned)
    E = torch.where(finite[:, None, None], E, torch.nan)
    return epipolar_loss(E, xs, E_gt) if kind == "epipolar" else essential_loss(E, E_gt)


def epipolar_loss(E: Tensor, xs: Tensor, E_gt: Tensor) -> Tensor:
    """Mean epipolar distance d of virtual true matches as d / (d + s), between 0 and 1.

    The virtual matches are the pair's own matches, moved in image 1 to the nearest point on their
    true epipolar line: they are exact and distributed like keypoints. Unlike the distance of
    matrices, this measures the error of a pose in the images. The distance is the root mean square
    of both point-to-line distances, in normalized coordinates. It saturates softly, because poses
    with a large error still need a gradient.
    """
    x0, x1 = xs[:, :VIRTUAL_MATCHES, :2].double(), xs[:, :VIRTUAL_MATCHES, 2:4].double()
    lines1 = homogeneous(x0) @ E_gt.double().transpose(-1, -2)
    normal = lines1[..., :2]
    off = (homogeneous(x1) * lines1).sum(-1, keepdim=True)
    x1 = x1 - off * normal / normal.square().sum(-1, keepdim=True).clamp_min(1e-12)
    squared = symmetric_epipolar_distance(E, x0, x1) / 2
    distance = (squared + SMALLEST_DISTANCE**2).sqrt() - SMALLEST_DISTANCE
    return (distance / (distance + HALF_LOSS_DISTANCE)).mean()


class _ClippedByPair(torch.autograd.Function):
    """Identity on logits (B, N) that clips the norm of the gradient of each pair.

    Where the 8-point solution is nearly undetermined, its derivative is huge: a hundred times the
    median in one pair of a hundred, which would dominate the batch.
    """

    @staticmethod
    def forward(ctx, logits: Tensor, max_norm: float) -> Tensor:
        ctx.max_norm = max_norm
        return logits.view_as(logits)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        norm = grad.norm(dim=1, keepdim=True).clamp_min(torch.finfo(grad.dtype).tiny)
        return grad * (ctx.max_norm / norm).clamp_max(1.0), None


def _unit(E: Tensor) -> Tensor:
    return E / E.flatten(1).norm(dim=1).clamp_min(1e-12)[:, None, None]

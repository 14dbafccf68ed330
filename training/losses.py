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

TAUGHT_LIMIT = 10.0
"""Beyond this logit nothing depends on how sure a teacher is."""

REGRESSIONS = ("essential", "epipolar")
VIRTUAL_MATCHES = 256
SMALLEST_DISTANCE, HALF_LOSS_DISTANCE = 1e-3, 0.05
"""Epipolar distances in normalized coordinates: rounded off at the first, half the largest loss at
the second, about three degrees."""


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


def regression_loss(
    logits: Tensor,
    xs: Tensor,
    E_gt: Tensor,
    kind: str = "essential",
    conditioned: bool = False,
    pair_clip: float = 0.0,
) -> Tensor:
    """How far the weighted 8-point solution of the network's weights is from the truth.

    It is NaN where an input is not finite: the eigendecomposition would raise an error instead,
    in one of several processes perhaps, which the others would wait for.

    Args:
        logits: (B, N) linear output of the network.
        xs: (B, N, 4 + side) rows of the network.
        E_gt: (B, 3, 3) true essential matrices.
        kind: ``essential`` is the paper's :func:`essential_loss`, ``epipolar`` is
            :func:`epipolar_loss`.
        conditioned: solve for conditioned points, as inference does.
        pair_clip: largest norm of the gradient of one pair's loss in its logits; 0 for any.
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

    The virtual matches are the pair's own matches, moved in image 1 to the nearest point of their
    true epipolar line: exact, and spread as keypoints are. Unlike the distance of matrices this
    says how far off a pose is in the images. The distance is the root of the mean of both squared
    point-to-line distances, in normalized coordinates. Its bound is soft, because poses that are
    far off must still have a gradient.
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
    """Logits (B, N) as they are; the gradient of each pair is shortened to a largest norm.

    Where the 8-point is nearly undetermined its derivative is huge: a hundred times the median in
    one pair of a hundred, which would drown all others.
    """

    @staticmethod
    def forward(ctx, logits: Tensor, largest: float) -> Tensor:
        ctx.largest = largest
        return logits.view_as(logits)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        norm = grad.norm(dim=1, keepdim=True).clamp_min(torch.finfo(grad.dtype).tiny)
        return grad * (ctx.largest / norm).clamp_max(1.0), None


def _unit(E: Tensor) -> Tensor:
    return E / E.flatten(1).norm(dim=1).clamp_min(1e-12)[:, None, None]

"""The differentiable part of :mod:`lgc_ros.geometry.epipolar`, batched, for training.

All functions take (B, N, 2) normalized points and work in float64 inside: eigenvectors of a
9×9 moment matrix lose half the digits of their input.
"""

from __future__ import annotations

import torch
from torch import Tensor

RELATIVE_GAP_FLOOR = 1e-9
TINY = torch.finfo(torch.float64).tiny ** 0.5
SMALLEST_SUM, SMALLEST_SPREAD = 1e-6, 1e-12
"""Sum of weights and mean square of points below which points are not conditioned."""


class _SmallestEigenvector(torch.autograd.Function):
    """Eigenvector of the smallest eigenvalue of symmetric matrices (B, n, n).

    Its derivative divides by the gaps between eigenvalues. A gap below ``RELATIVE_GAP_FLOOR`` of
    the largest eigenvalue is damped, so the gradient stays finite when eigenvalues repeat.
    """

    @staticmethod
    def forward(ctx, A: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(A)
        ctx.save_for_backward(values, vectors)
        return vectors[..., 0]

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        values, vectors = ctx.saved_tensors
        gap = values[..., :1] - values
        floor = RELATIVE_GAP_FLOOR * values[..., -1:].abs() + TINY
        inverse_gap = gap / (gap.square() + floor.square())
        along = (vectors.transpose(-1, -2) @ grad.unsqueeze(-1)).squeeze(-1)
        direction = (vectors @ (along * inverse_gap).unsqueeze(-1)).squeeze(-1)
        outer = direction.unsqueeze(-1) * vectors[..., :1].transpose(-1, -2)
        return (outer + outer.transpose(-1, -2)) / 2


def homogeneous(points: Tensor) -> Tensor:
    return torch.cat([points, torch.ones_like(points[..., :1])], dim=-1)


def weighted_eight_point(
    x0: Tensor, x1: Tensor, weights: Tensor, conditioned: bool = False
) -> Tensor:
    """Section 3.3: unit-norm (B, 3, 3) float64 essential matrices, sign arbitrary, any rank.

    Differentiable in the points and in the (B, N) weights. ``conditioned`` moves and scales the
    points first (Hartley), as :func:`lgc_ros.geometry.epipolar.weighted_eight_point` does.
    """
    h0, h1, weights = homogeneous(x0.double()), homogeneous(x1.double()), weights.double()
    if conditioned:
        T0, T1 = _conditioning(h0, weights), _conditioning(h1, weights)
        h0, h1 = h0 @ T0.transpose(-1, -2), h1 @ T1.transpose(-1, -2)
    X = (h1.unsqueeze(-1) * h0.unsqueeze(-2)).flatten(-2)
    moments = X.transpose(-1, -2) @ (weights.unsqueeze(-1) * X)
    E = _SmallestEigenvector.apply(moments).unflatten(-1, (3, 3))
    if conditioned:
        E = T1.transpose(-1, -2) @ E @ T0
        E = E / E.flatten(-2).norm(dim=-1)[..., None, None]
    return E


def _conditioning(h: Tensor, weights: Tensor) -> Tensor:
    """(B, 3, 3) maps that give the weighted points mean 0 and mean square 2."""
    share = (weights / weights.sum(-1, keepdim=True).clamp_min(SMALLEST_SUM)).unsqueeze(-1)
    mean = (share * h[..., :2]).sum(-2)
    square = (share * (h[..., :2] - mean.unsqueeze(-2)).square()).sum((-1, -2))
    scale = (2.0 / square.clamp_min(SMALLEST_SPREAD)).sqrt()
    zero, one = torch.zeros_like(scale), torch.ones_like(scale)
    rows = [scale, zero, -scale * mean[..., 0], zero, scale, -scale * mean[..., 1]]
    return torch.stack([*rows, zero, zero, one], dim=-1).unflatten(-1, (3, 3))


def symmetric_epipolar_distance(E: Tensor, x0: Tensor, x1: Tensor) -> Tensor:
    """(B, N) squared distance to the epipolar line, summed over both images, float64."""
    h0, h1 = homogeneous(x0.double()), homogeneous(x1.double())
    lines1 = h0 @ E.double().transpose(-1, -2)
    lines0 = h1 @ E.double()
    residual = (h1 * lines1).sum(-1)
    normal1 = lines1[..., :2].square().sum(-1).clamp_min(TINY)
    normal0 = lines0[..., :2].square().sum(-1).clamp_min(TINY)
    return residual.square() * (1 / normal1 + 1 / normal0)

"""Context Normalization: how matches of a pair learn of each other (section 3.2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ContextNorm(nn.Module):
    """Context Normalization (equations 4 and 5) followed by Batch Normalization.

    After CN, each channel of each pair has mean 0 and variance 1 over its N matches. The batch
    statistics of Batch Normalization are therefore 0 and 1 for any batch, and only its learned
    affine map remains, which is folded in here.
    """

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        n, b, c = x.shape
        weight, bias = self.weight.repeat(b), self.bias.repeat(b)
        # The last argument disables cuDNN, which limits the number of channels.
        y = torch.batch_norm(
            x.reshape(n, b * c), weight, bias, None, None, True, 0.0, self.eps, False
        )
        return y.view(n, b, c)

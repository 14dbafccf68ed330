"""The network of section 3.2, and the variants of the paper's ablations (section 4.3).

Activations are laid out as (N, B, C): correspondences, pairs, channels. A perceptron is then one
product over all rows, and Context Normalization is one batch normalization over N with B·C
channels, for which torch has a fused kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

COORDINATES = 4
CONTEXTS = ("cn", "none", "pointnet")
HEADS = ("weights", "direct")


@dataclass(frozen=True)
class NetworkConfig:
    """Architecture; the defaults are the paper's.

    Attributes:
        blocks: number of residual blocks of two perceptrons each.
        width: neurons per perceptron.
        context: how information passes between matches: ``cn`` (Context Normalization), ``none``,
            or ``pointnet`` (a global feature, averaged over all matches and appended to each).
        head: ``weights`` outputs a logit per match, ``direct`` regresses the essential matrix.
        side: number of side-information channels in addition to the four coordinates.
    """

    blocks: int = 12
    width: int = 128
    context: str = "cn"
    head: str = "weights"
    side: int = 0

    def __post_init__(self) -> None:
        sizes = self.blocks, self.width, self.side
        if not all(type(size) is int for size in sizes):
            raise ValueError(f"blocks, width and side must be whole numbers, not {sizes}")
        if self.context not in CONTEXTS:
            raise ValueError(f"context must be one of {', '.join(CONTEXTS)}, not {self.context!r}")
        if self.head not in HEADS:
            raise ValueError(f"head must be one of {', '.join(HEADS)}, not {self.head!r}")
        if self.blocks < 1 or self.width < 1 or self.side < 0:
            raise ValueError("blocks and width must be positive, side must not be negative")

    def as_dict(self) -> dict:
        return asdict(self)


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


class PopulationNorm(nn.BatchNorm1d):
    """Batch Normalization over all matches of all pairs, for networks without context."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.reshape(-1, x.shape[-1])).view(x.shape)


class Perceptron(nn.Module):
    """Linear map shared by all matches, normalization, ReLU.

    Both normalizations subtract a mean that includes the bias of the linear map while training;
    Context Normalization always does, so there the bias is not even added.
    """

    def __init__(self, inputs: int, outputs: int, context: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.norm = ContextNorm(outputs) if context else PopulationNorm(outputs)
        self.context = context

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.context else self.linear.bias
        return torch.relu_(self.norm(nn.functional.linear(x, self.linear.weight, bias)))


class ResidualBlock(nn.Module):
    """Two perceptrons and a skip connection."""

    def __init__(self, width: int, context: bool) -> None:
        super().__init__()
        self.first = Perceptron(width, width, context)
        self.second = Perceptron(width, width, context)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.first(x))


class PointNetBody(nn.Module):
    """The PointNet-like baseline of section 4.3.2: point features, their mean, an output stage."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()

        def stage(inputs: int) -> nn.Sequential:
            sizes = [inputs] + [width] * layers
            return nn.Sequential(*(Perceptron(a, b, context=False) for a, b in pairwise(sizes)))

        self.points = stage(width)
        self.context = stage(width)
        self.output = stage(2 * width)

    def forward(self, x: Tensor) -> Tensor:
        points = self.points(x)
        context = self.context(points).mean(dim=0, keepdim=True)
        return self.output(torch.cat([points, context.expand_as(points)], dim=-1))


class CorrespondenceNetwork(nn.Module):
    """Scores every putative match of a pair in the context of all others.

    Input (B, N, 4 + side): normalized ``u, v`` in image 0, ``u', v'`` in image 1, side
    information. Output (B, N) logits, or (B, 3, 3) essential matrices with the direct head.
    """

    def __init__(self, config: NetworkConfig | None = None) -> None:
        super().__init__()
        config = config or NetworkConfig()
        self.config = config
        self.input = nn.Linear(COORDINATES + config.side, config.width)
        if config.context == "pointnet":
            self.body: nn.Module = PointNetBody(config.width, config.blocks)
        else:
            self.body = nn.Sequential(
                *(
                    ResidualBlock(config.width, config.context == "cn")
                    for _ in range(config.blocks)
                )
            )
        self.output = nn.Linear(config.width, 9 if config.head == "direct" else 1)

    def forward(self, x: Tensor) -> Tensor:
        features = self.body(self.input(x.transpose(0, 1).contiguous()))
        if self.config.head == "direct":
            return self.output(features.mean(dim=0)).view(-1, 3, 3)
        return self.output(features).squeeze(-1).transpose(0, 1)

    def blocks(self) -> Iterator[ResidualBlock]:
        """The residual blocks in order of application; PointNet has none."""
        return (module for module in self.body.children() if isinstance(module, ResidualBlock))

    def perceptrons(self) -> Iterator[Perceptron]:
        """All perceptrons in order of application."""
        return (module for module in self.modules() if isinstance(module, Perceptron))


def match_weights(logits: Tensor) -> Tensor:
    """The weights of section 3.2 in [0, 1): tanh of ReLU, so that outliers weigh exactly zero."""
    return torch.tanh(torch.relu(logits))

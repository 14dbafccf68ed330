"""Order-aware pooling: matches gather in a few clusters that exchange information.

Context Normalization passes only means and variances between matches. Here every match is assigned
softly to learned clusters, the clusters are compared with each other, and every match reads from
the clusters it belongs to (Zhang et al., "Learning Two-View Correspondences and Geometry Using
Order-Aware Network", ICCV 2019). The number of clusters is fixed and their order is learned, so
that ordinary perceptrons can compare them, whatever the number and order of the matches.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from lgc_ros.filter.context_norm import ContextNorm


class OrderAwarePooling(nn.Module):
    """Adds to the features (N, B, C) of every match what the clusters tell it.

    The last layer starts at zero: a network that gets such a layer scores as before.
    """

    def __init__(self, width: int, clusters: int, layers: int = 2) -> None:
        super().__init__()
        self.norm = ContextNorm(width)
        self.gather = nn.Linear(width, clusters, bias=False)
        self.mixing = nn.Sequential(*(ClusterMixing(width, clusters) for _ in range(layers)))
        self.output = nn.Linear(width, width)
        self.spread = nn.Linear(width, clusters)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def steps(self) -> Iterator[ClusterMixing]:
        """The exchanges between clusters, in order."""
        return (step for step in self.mixing if isinstance(step, ClusterMixing))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.exchange(torch.relu(self.norm(x)))

    def exchange(self, features: Tensor, valid: Tensor | None = None) -> Tensor:
        """What the clusters tell each match, (N, B, C).

        Args:
            features: (N, B, C) normalized features of the matches.
            valid: (N, B, 1) 0 for rows that are padding, which no cluster gathers.
        """
        gathered = self.gather(features)
        if valid is not None:
            gathered = gathered.masked_fill(valid == 0, -torch.inf)
        shares = torch.softmax(gathered, dim=0)  # of the matches in each cluster
        clusters = torch.einsum("nbk,nbc->kbc", shares, features)
        clusters = self.output(self.mixing(clusters))
        shares = torch.softmax(self.spread(features), dim=-1)  # of the clusters in each match
        return torch.einsum("nbk,kbc->nbc", shares, clusters)


class ClusterMixing(nn.Module):
    """Exchanges information between clusters (K, B, C), then between the channels of each."""

    def __init__(self, width: int, clusters: int) -> None:
        super().__init__()
        self.cluster_norm = ContextNorm(width)
        self.between_clusters = nn.Linear(clusters, clusters)
        self.channel_norm = ContextNorm(width)
        self.between_channels = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.relu(self.cluster_norm(x)).permute(1, 2, 0)
        x = x + self.between_clusters(rows).permute(2, 0, 1)
        return x + self.between_channels(torch.relu(self.channel_norm(x)))

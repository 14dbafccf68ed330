"""The CN network for one pair at a time, rearranged until little but its matrix products is left.

Activations are (channels, matches): Context Normalization then works on rows. For a channel of
gain g > 0 and offset b, whose products h have the deviation s over the matches,

    relu(g (h - mean) / s + b) = g / s · max(h - mean, -b s / g) + b,

and what follows takes weighted sums of channels and forgets constant shifts, as it normalizes
again. So g / s goes into the next weights, b drops out, and one clamp is left. The mean goes
through the product: a row of ones below the activations and a row -mean(W x) below the weights.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lgc_ros.filter.network import CorrespondenceNetwork

# A gain of zero, which ends a channel, must still divide.
SMALLEST_GAIN = 1e-6
# Sizes for which CUDA graphs are recorded are multiples of this.
GRAPH_STEP = 256


class FusedNetwork:
    """Logits of the matches of one pair, as `network` gives them up to rounding.

    Args:
        network: with context `cn` and head `weights`.
        device: where it runs.
        dtype: of activations and products; statistics are always float32.
    """

    @torch.no_grad()
    def __init__(
        self,
        network: CorrespondenceNetwork,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        layers = list(network.perceptrons())
        gains = torch.stack([layer.norm.weight for layer in layers])
        offsets = torch.stack([layer.norm.bias for layer in layers])
        # A channel of negative gain is that of the negated product with positive gain.
        signs = torch.where(gains < 0, -1.0, 1.0)
        gains = gains.abs().clamp_min(SMALLEST_GAIN)
        output = network.output.weight[0]
        weights = [
            (layer.linear.weight * sign[:, None]).T.contiguous()
            for layer, sign in zip(layers, signs, strict=True)
        ]

        def moved(tensor: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
            return tensor.detach().to(device, dtype)

        self._dtype = dtype
        self._channels = network.config.width
        self._eps = layers[0].norm.eps
        self._input = moved(network.input.weight, dtype)
        self._input_bias = moved(network.input.bias, dtype)[:, None]
        self._weights = [moved(weight) for weight in weights]  # (in, out)
        self._centred = [
            moved(torch.cat([weight, torch.zeros(1, self._channels)]), dtype) for weight in weights
        ]
        self._gains = moved(gains)
        self._levels = moved(-offsets / gains)
        self._output = moved(output, dtype)
        self._output_bias = moved(network.output.bias + output @ offsets[1::2].sum(0))
        self._memory = torch.empty(3, 0, device=device, dtype=dtype)

    @torch.inference_mode()
    def __call__(self, inputs: Tensor, valid: Tensor | None = None) -> Tensor:
        """(N,) logits of inputs (N, 4 + side).

        Args:
            inputs: rows of the network.
            valid: (N,) ones, and zeros where a row is filled up with zeros and does not count.
        """
        channels = self._channels
        x_1, y_1, z_1 = self._buffers(len(inputs))
        x, y, z = x_1[:channels], y_1[:channels], z_1[:channels]
        ones = 1.0 if valid is None else valid
        x_1[channels] = ones
        y_1[channels] = ones
        count = x_1[channels].sum(dtype=torch.float32)
        root = count.sqrt()
        levels = (self._levels / root).unbind()
        gains = (self._gains * root).unbind()
        least = count * self._eps

        def activate(rows: Tensor, layer: int) -> Tensor:
            """Clamp centred products; the factors that would scale them to the layer's output."""
            norm = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float32)
            deviation = torch.addcmul(least, norm, norm).sqrt_()
            rows.clamp_min_((levels[layer] * deviation).to(self._dtype)[:, None])
            if valid is not None:
                rows.mul_(valid)
            return gains[layer] / deviation

        def product(weight: Tensor, layer: int, rows_1: Tensor, out: Tensor) -> None:
            centred = self._centred[layer]
            mean = rows_1[:channels].sum(1, dtype=torch.float32).div_(-count)
            centred[channels] = weight.T @ mean
            torch.mm(centred.T, rows_1, out=out)

        torch.addmm(self._input_bias, self._input, inputs.to(self._dtype).T, out=x)
        if valid is not None:
            x.mul_(valid)
        for first in range(0, len(self._weights), 2):
            second = first + 1
            product(self._weights[first], first, x_1, y)
            factors = activate(y, first)
            weight = self._weights[second] * factors[:, None]
            self._centred[second][:channels] = weight
            product(weight, second, y_1, z)
            x.addcmul_(z, activate(z, second).to(self._dtype)[:, None])
        return (self._output @ x).float() + self._output_bias

    def _buffers(self, matches: int) -> list[Tensor]:
        """Three matrices of one row more than there are channels, reused from call to call."""
        size = (self._channels + 1) * matches
        if size > self._memory.shape[1]:
            self._memory = self._memory.new_empty(3, size)
        return [memory[:size].view(-1, matches) for memory in self._memory]


class GraphedNetwork:
    """A FusedNetwork on a GPU as recorded CUDA graphs: hundreds of small kernels, one launch.

    A graph has one size. Matches are filled up to the next multiple of GRAPH_STEP with rows that
    do not count, and the few graphs so needed are recorded when first met.
    """

    def __init__(self, network: CorrespondenceNetwork, device: torch.device) -> None:
        self._network, self._device = network, device
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor, Tensor, Tensor]] = {}

    @torch.inference_mode()
    def __call__(self, inputs: Tensor) -> Tensor:
        count = len(inputs)
        size = -(-count // GRAPH_STEP) * GRAPH_STEP
        if size not in self._graphs:
            self._graphs[size] = self._record(size, inputs.shape[1])
        graph, static_inputs, valid, logits = self._graphs[size]
        static_inputs.zero_()[:count] = inputs.to(self._device)
        valid.zero_()[:count] = 1
        graph.replay()
        return logits[:count]

    def _record(self, size: int, columns: int) -> tuple:
        # A network each: its buffers become part of the graph.
        network = FusedNetwork(self._network, self._device, torch.float16)
        inputs = torch.zeros(size, columns, device=self._device)
        valid = torch.ones(size, device=self._device, dtype=torch.float16)
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            network(inputs, valid)
        torch.cuda.current_stream(self._device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = network(inputs, valid)
        return graph, inputs, valid, logits

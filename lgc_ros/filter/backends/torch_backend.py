"""torch: half precision and CUDA graphs on a GPU, fused layers and one thread on a CPU.

The fused network takes one pair at a time and reduces each layer to a matrix product and a clamp.
Activations are (channels, matches), so that Context Normalization works on rows. For a channel of
gain g > 0 and offset b, whose products h have the standard deviation s over the matches,

    relu(g (h - mean) / s + b) = g / s · max(h - mean, -b s / g) + b.

The next layer takes weighted sums of channels and removes constant shifts when it normalizes. So
g / s is folded into its weights, b drops out, and one clamp is left. The mean is subtracted by the
product itself: through a row of ones below the activations and a row -mean(W x) below the weights.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from lgc_ros.filter.backends.devices import choose_device
from lgc_ros.filter.checkpoint import ModelInfo
from lgc_ros.filter.network import CorrespondenceNetwork
from lgc_ros.runtime.threads import single_torch_thread

# Lower bound of gains, so that a zero gain, which disables a channel, can be divided by.
MIN_GAIN = 1e-6
# CUDA graphs are recorded for multiples of this many matches.
GRAPH_STEP = 256


def load(
    network: CorrespondenceNetwork, info: ModelInfo, device: str
) -> tuple[str, Callable[[np.ndarray], np.ndarray]]:
    """The network in torch, on the given device; it needs no further package."""
    chosen = choose_device(device)
    if info.network.context != "cn":
        network = network.to(chosen)
        run = torch.inference_mode()(lambda rows: network(rows[None].to(chosen))[0])
    elif chosen.type == "cuda":
        run = GraphedNetwork(network, chosen)
    else:
        run = single_torch_thread()(FusedNetwork(network).__call__)
    return str(chosen), lambda rows: run(torch.from_numpy(rows)).cpu().numpy()


class FusedNetwork:
    """Logits of the matches of one pair, equal to those of `network` up to rounding.

    Args:
        network: with context `cn` and head `weights`.
        device: device to run on.
        dtype: type of activations and products; statistics are always float32.
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
        # A negative gain equals a positive gain on the negated product.
        signs = torch.where(gains < 0, -1.0, 1.0)
        gains = gains.abs().clamp_min(MIN_GAIN)
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
        self._centered = [
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
            valid: (N,) 1 for matches and 0 for padding rows, which are all zeros; None without
                padding.
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
            """Clamp centered products in place; returns the factors to scale them with."""
            norm = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float32)
            deviation = torch.addcmul(least, norm, norm).sqrt_()
            rows.clamp_min_((levels[layer] * deviation).to(self._dtype)[:, None])
            if valid is not None:
                rows.mul_(valid)
            return gains[layer] / deviation

        def product(weight: Tensor, layer: int, rows_1: Tensor, out: Tensor) -> None:
            centered = self._centered[layer]
            mean = rows_1[:channels].sum(1, dtype=torch.float32).div_(-count)
            centered[channels] = weight.T @ mean
            torch.mm(centered.T, rows_1, out=out)

        torch.addmm(self._input_bias, self._input, inputs.to(self._dtype).T, out=x)
        if valid is not None:
            x.mul_(valid)
        for first in range(0, len(self._weights), 2):
            second = first + 1
            product(self._weights[first], first, x_1, y)
            factors = activate(y, first)
            weight = self._weights[second] * factors[:, None]
            self._centered[second][:channels] = weight
            product(weight, second, y_1, z)
            x.addcmul_(z, activate(z, second).to(self._dtype)[:, None])
        return (self._output @ x).float() + self._output_bias

    def _buffers(self, matches: int) -> list[Tensor]:
        """Three matrices of one row more than there are channels, reused between calls."""
        size = (self._channels + 1) * matches
        if size > self._memory.shape[1]:
            self._memory = self._memory.new_empty(3, size)
        return [memory[:size].view(-1, matches) for memory in self._memory]


class GraphedNetwork:
    """A FusedNetwork on a GPU as CUDA graphs: one launch instead of hundreds of small kernels.

    A graph has a fixed size. Matches are padded to the next multiple of GRAPH_STEP, and a graph is
    recorded when its size first occurs.
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
        # Each graph needs a network of its own, whose buffers become part of the graph.
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

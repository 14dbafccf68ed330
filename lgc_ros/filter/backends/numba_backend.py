"""The CN network compiled by numba for the CPU at hand; `numba_kernels` has the compiled code."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock

import numpy as np
import torch

from lgc_ros.errors import ConfigError
from lgc_ros.filter.backends.numba_kernels import COLUMNS, ROWS, multiply_part, run_part
from lgc_ros.filter.checkpoint import ModelInfo
from lgc_ros.filter.network import CorrespondenceNetwork

# With fewer panels than this, a thread waits longer than it works.
MIN_PANELS_PER_THREAD = 4


def load(
    network: CorrespondenceNetwork, info: ModelInfo, device: str
) -> tuple[str, Callable[[np.ndarray], np.ndarray]]:
    """The compiled network; the first start spends seconds on compilation, `device` is ignored."""
    if info.network.context != "cn":
        raise ConfigError(
            f"engine numba does not support context {info.network.context!r}: use engine torch"
        )
    return "cpu", CompiledNetwork(network, torch.get_num_threads())


class CompiledNetwork:
    """Logits of the matches of one pair, equal to those of `network` up to rounding.

    Args:
        network: with context `cn` and head `weights`.
        threads: maximum number of threads that share the matches of a pair.
    """

    def __init__(self, network: CorrespondenceNetwork, threads: int = 1) -> None:
        def array(tensor) -> np.ndarray:
            return tensor.detach().numpy()

        layers = list(network.perceptrons())
        entry, weights = array(network.input.weight), [array(p.linear.weight) for p in layers]
        width = -(-len(entry) // ROWS) * ROWS
        output = array(network.output.weight)[0]
        # Normalization removes the bias of the input layer everywhere but in the output.
        output_bias = array(network.output.bias)[0] + output @ array(network.input.bias)
        self._parameters = {
            "entry": _packed(_padded(entry, width)),
            # Input layer and first layer have no nonlinearity in between: one product does both.
            "first": _packed(_padded(weights[0] @ entry, width)),
            "weights": np.stack([_packed(_padded(w, width, width)) for w in weights[1:]]),
            "gain": np.stack([_padded(array(p.norm.weight), width) for p in layers]),
            "offset": np.stack([_padded(array(p.norm.bias), width) for p in layers]),
            "eps": layers[0].norm.eps,
            "output": _padded(output, width),
            "output_bias": np.float32(output_bias),
        }
        self._layers, self._width, self._threads = len(layers), width, threads
        self._products = self._sums = np.empty((0, width, COLUMNS), np.float32)
        self._buffers_in_use = Lock()
        self._helpers = ThreadPoolExecutor(max(1, threads - 1), "filter")

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """(N,) logits of inputs (N, 4 + side)."""
        rows = np.array(inputs, np.float32, order="C")
        logits = np.empty(len(rows), np.float32)
        panels = -(-len(rows) // COLUMNS)
        parts = max(1, min(self._threads, panels // MIN_PANELS_PER_THREAD))
        moments = np.empty((self._layers, parts, self._width, 2))
        with self._buffers_in_use:
            if panels > len(self._sums):
                shape = panels, self._width, COLUMNS
                self._products, self._sums = (np.empty(shape, np.float32) for _ in range(2))
            run = partial(
                run_part,
                parts=parts,
                rows=rows,
                **self._parameters,
                products=self._products,
                sums=self._sums,
                moments=moments,
                arrived=np.zeros(1, np.int64),
                logits=logits,
            )
            self._run_parts(run, parts)
        return logits

    def products_alone(self, panels: np.ndarray, out: np.ndarray) -> None:
        """Multiply panels (M, width, COLUMNS) by each layer's weights, for the benchmark."""
        parts, weights = self._threads, self._parameters["weights"]
        run = partial(multiply_part, parts=parts, weights=weights, panels=panels, out=out)
        self._run_parts(run, parts)

    def _run_parts(self, run: Callable[[int], None], parts: int) -> None:
        """Run each part in a thread of its own, the first in the calling thread."""
        others = [self._helpers.submit(run, part) for part in range(1, parts)]
        run(0)
        for other in others:
            other.result()


def _padded(array: np.ndarray, *shape: int) -> np.ndarray:
    """An array padded with zeros along its first axes: channels that are always zero."""
    padded = np.zeros((*shape, *array.shape[len(shape) :]), np.float32)
    padded[tuple(map(slice, array.shape))] = array
    return padded


def _packed(weight: np.ndarray) -> np.ndarray:
    """(out, in) weights as (tiles, in, ROWS), the order in which tiles read them."""
    tiles = weight.reshape(-1, ROWS, weight.shape[1]).transpose(0, 2, 1)
    return np.ascontiguousarray(tiles, np.float32)

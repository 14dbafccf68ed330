"""The CN network compiled for this processor: its matrix products, with all else done in passing.

Matches are cut into panels of as many columns as one tile of a product keeps in registers. A panel
of activations (channels, columns) stays in the first cache while a layer is applied to it: it is
normalized and clamped by what the layer before has found, multiplied tile by tile, and each tile
adds to the sums of its channels while it is still in registers. Only these sums are waited for,
once per layer, where several threads share the panels.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from lgc_ros.filter.network import CorrespondenceNetwork
from lgc_ros.runtime.jit import compiled
from lgc_ros.runtime.simd import INT64, Vectors, arrays, processor_has, product_tile


def _tile_shape() -> tuple[int, int, int]:
    """Floats per vector, vectors per row and rows of a tile: what the registers hold of sums."""
    if processor_has("avx512f"):
        return 16, 3, 8
    if processor_has("avx"):
        return 8, 3, 4
    return 4, 3, 8


LANES, VECTORS, ROWS = _tile_shape()
COLUMNS = LANES * VECTORS
# A thread with fewer panels than this waits longer than it works.
FEWEST_PANELS = 4
SPINS = 1000


class CompiledNetwork:
    """Logits of the matches of one pair, as `network` gives them up to rounding.

    Args:
        network: with context `cn` and head `weights`.
        threads: among which the matches are shared, if there are enough of them.
    """

    def __init__(self, network: CorrespondenceNetwork, threads: int = 1) -> None:
        def array(tensor) -> np.ndarray:
            return tensor.detach().numpy()

        layers = list(network.perceptrons())
        entry, weights = array(network.input.weight), [array(p.linear.weight) for p in layers]
        width = -(-len(entry) // ROWS) * ROWS
        output = array(network.output.weight)[0]
        # What a bias of the input adds to all matches is normalized away but in the output.
        output_bias = array(network.output.bias)[0] + output @ array(network.input.bias)
        self._parameters = {
            "entry": _packed(_padded(entry, width)),
            # The first product is of channels that are products of a few coordinates: one does.
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
        self._one_at_a_time = Lock()
        self._helpers = ThreadPoolExecutor(max(1, threads - 1), "filter")

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """(N,) logits of inputs (N, 4 + side)."""
        rows = np.array(inputs, np.float32, order="C")
        logits = np.empty(len(rows), np.float32)
        panels = -(-len(rows) // COLUMNS)
        parts = max(1, min(self._threads, panels // FEWEST_PANELS))
        moments = np.empty((self._layers, parts, self._width, 2))
        with self._one_at_a_time:
            if panels > len(self._sums):
                shape = panels, self._width, COLUMNS
                self._products, self._sums = (np.empty(shape, np.float32) for _ in range(2))
            run = partial(
                _run_part,
                parts=parts,
                rows=rows,
                **self._parameters,
                products=self._products,
                sums=self._sums,
                moments=moments,
                arrived=np.zeros(1, np.int64),
                logits=logits,
            )
            self._share(run, parts)
        return logits

    def products_alone(self, panels: np.ndarray, out: np.ndarray) -> None:
        """Multiply panels (M, width, COLUMNS) by each layer's weights, to see what that takes."""
        parts, weights = self._threads, self._parameters["weights"]
        run = partial(_multiply_part, parts=parts, weights=weights, panels=panels, out=out)
        self._share(run, parts)

    def _share(self, run: Callable[[int], None], parts: int) -> None:
        """Run each part in a thread of its own, the first in this one."""
        others = [self._helpers.submit(run, part) for part in range(1, parts)]
        run(0)
        for other in others:
            other.result()


def _padded(array: np.ndarray, *shape: int) -> np.ndarray:
    """An array with zeros added along its first axes: channels that are always zero."""
    padded = np.zeros((*shape, *array.shape[len(shape) :]), np.float32)
    padded[tuple(map(slice, array.shape))] = array
    return padded


def _packed(weight: np.ndarray) -> np.ndarray:
    """(out, in) weights as (tiles, in, ROWS): in the order in which tiles take them."""
    tiles = weight.reshape(-1, ROWS, weight.shape[1]).transpose(0, 2, 1)
    return np.ascontiguousarray(tiles, np.float32)


@compiled
def _run_part(
    part,  # of so many `parts` of the panels
    parts,
    rows,  # (N, 4 + side)
    entry,  # packed weights of the input,
    first,  # of the first layer, already multiplied by those,
    weights,  # and of the others
    gain,  # (layers, width) after normalization
    offset,
    eps,
    output,  # (width,) weights
    output_bias,
    products,  # (panels, width, COLUMNS) of the layer at hand
    sums,  # (panels, width, COLUMNS) of the blocks before
    moments,  # (layers, parts, width, 2) means and sums of squares about them
    arrived,  # (1,) how often a part has met the others
    logits,  # (N,) result
):
    """The whole network for a part of the panels."""
    count, channels = rows.shape
    width = len(output)
    panels = -(-count // COLUMNS)
    begin, end = panels * part // parts, panels * (part + 1) // parts
    matches, counts = np.empty(parts), np.empty(COLUMNS, np.float32)
    for other in range(parts):
        last = min(count, panels * (other + 1) // parts * COLUMNS)
        matches[other] = last - panels * other // parts * COLUMNS
    coordinates = np.zeros((channels, COLUMNS), np.float32)
    activations = np.empty((width, COLUMNS), np.float32)
    scale, shift = np.empty(width, np.float32), np.empty(width, np.float32)
    centre = np.zeros(width, np.float32)
    total = np.zeros((2, width, LANES), np.float32)
    unused = np.zeros_like(total)
    for layer in range(len(gain)):
        for step in range(end - begin):
            # Back and forth: what a layer has done last is still in the cache.
            panel = end - 1 - step if layer % 2 else begin + step
            columns = min(COLUMNS, count - panel * COLUMNS)
            for column in range(COLUMNS):
                counts[column] = column < columns
            product, block_sum = products[panel], sums[panel]
            if layer == 0:
                for column in range(columns):
                    for channel in range(channels):
                        coordinates[channel, column] = rows[panel * COLUMNS + column, channel]
                _multiply(entry, coordinates, block_sum, centre, counts, unused)
                _multiply(first, coordinates, product, centre, counts, total)
            elif layer % 2:
                _activate(product, scale, shift, activations)
                _multiply(weights[layer - 1], activations, product, centre, counts, total)
            else:
                _add_activated(product, scale, shift, block_sum)
                _multiply(weights[layer - 1], block_sum, product, centre, counts, total)
            if step == 0:
                _centre(product, columns, centre, total)
        _tell(total, centre, matches[part], moments[layer, part])
        _meet(arrived, parts * (layer + 1))
        for channel in range(width):
            mean, variance = _joined(moments[layer], matches, channel)
            factor = gain[layer, channel] / np.sqrt(variance + eps)
            scale[channel] = factor
            shift[channel] = offset[layer, channel] - mean * factor
    for panel in range(begin, end):
        block_sum = sums[panel]
        _add_activated(products[panel], scale, shift, block_sum)
        columns = min(COLUMNS, count - panel * COLUMNS)
        row = logits[panel * COLUMNS : panel * COLUMNS + columns]
        for column in range(columns):
            row[column] = output_bias
        for channel in range(width):
            weight = output[channel]
            for column in range(columns):
                row[column] += weight * block_sum[channel, column]


@compiled
def _multiply_part(part, parts, weights, panels, out):
    """The products of a part of the panels, and nothing else but their moments."""
    width, count = panels.shape[1], len(panels)
    centre, counts = np.zeros(width, np.float32), np.ones(COLUMNS, np.float32)
    total = np.zeros((2, width, LANES), np.float32)
    for layer in range(len(weights)):
        for panel in range(count * part // parts, count * (part + 1) // parts):
            _multiply(weights[layer], panels[panel], out[panel], centre, counts, total)


@compiled
def _activate(product, scale, shift, out):
    for channel in range(len(product)):
        _activate_row(channel, product, scale, shift, out)


@compiled
def _add_activated(product, scale, shift, out):
    for channel in range(len(product)):
        _add_activated_row(channel, product, scale, shift, out)


@compiled
def _multiply(weights, panel, out, centre, counts, total):
    """out = weights @ panel; sums of out - centre and of its squares are added to `total`."""
    for tile in range(len(weights)):
        _multiply_tile(tile, weights, panel, out, centre, counts, total[0], total[1])


@compiled
def _centre(product, columns, centre, total):
    """Take for centres the means of a first panel: squares about them lose nothing to rounding."""
    for channel in range(len(product)):
        mean = np.float32(0)
        for column in range(columns):
            mean += product[channel, column]
        mean /= np.float32(columns)
        centre[channel] = mean
        for lane in range(LANES):
            total[0, channel, lane] = total[1, channel, lane] = 0
        for column in range(columns):
            apart = product[channel, column] - mean
            total[0, channel, column % LANES] += apart
            total[1, channel, column % LANES] += apart * apart


@compiled
def _tell(total, centre, matches, moments):
    """Means of a part's matches, and their sums of squares about them."""
    for channel in range(len(centre)):
        added, squared = 0.0, 0.0
        for lane in range(LANES):
            added += total[0, channel, lane]
            squared += total[1, channel, lane]
        moments[channel, 0] = centre[channel] + added / matches
        moments[channel, 1] = squared - added**2 / matches


@compiled
def _joined(moments, matches, channel):
    """Mean and variance of a channel over all matches, from those of the parts."""
    count, mean, variance = 0.0, 0.0, 0.0
    for part in range(len(matches)):
        count += matches[part]
        mean += matches[part] * moments[part, channel, 0]
    mean /= count
    for part in range(len(matches)):
        apart = moments[part, channel, 0] - mean
        variance += moments[part, channel, 1] + matches[part] * apart**2
    return mean, variance / count


@compiled
def _meet(arrived, all_arrived):
    """Wait until every part has come here; on a busy machine, let others run meanwhile."""
    _count_up(arrived)
    spins = 0
    while _count(arrived) < all_arrived:
        spins += 1
        if spins % SPINS == 0:
            _give_way()


@intrinsic
def _multiply_tile(typing, tile, weights, panel, out, centre, counts, sums, squares):
    """ROWS rows of weights @ panel, and their moments about `centre` while still in registers."""
    signature = types.void(tile, weights, panel, out, centre, counts, sums, squares)

    def generate(context, builder, signature, arguments):
        vectors = Vectors(builder, ir.FloatType(), LANES)
        multiply_add = partial(_multiply_add, builder)
        tile, *values = arguments
        made = arrays(context, builder, signature.args[1:], values)
        weights, panel, out, centre, counts, sums, squares = (array.data for array in made)
        depth = builder.extract_value(made[0].shape, 1)
        row = builder.mul(tile, INT64(ROWS))
        weights = builder.gep(weights, [builder.mul(row, depth)])
        out = builder.gep(out, [builder.mul(row, INT64(COLUMNS))])
        centre = builder.gep(centre, [row])
        sums, squares = (
            builder.gep(base, [builder.mul(row, INT64(LANES))]) for base in (sums, squares)
        )
        product = product_tile(vectors, (ROWS, VECTORS), weights, panel, depth, multiply_add)
        present = [vectors.load(counts, INT64(v * LANES)) for v in range(VECTORS)]
        for r in range(ROWS):
            middle, lanes = vectors.broadcast(centre, INT64(r)), INT64(r * LANES)
            added, squared = vectors.load(sums, lanes), vectors.load(squares, lanes)
            for v in range(VECTORS):
                vectors.store(product[r][v], out, INT64(r * COLUMNS + v * LANES))
                apart = builder.fmul(builder.fsub(product[r][v], middle), present[v])
                added = builder.fadd(added, apart)
                squared = multiply_add(apart, apart, squared)
            vectors.store(added, sums, lanes)
            vectors.store(squared, squares, lanes)
        return context.get_dummy_value()

    return signature, generate


def _activation(is_added: bool):
    """What normalizes and clamps a channel of a panel, and writes it or adds it to what is there.

    Compilers would ask at every channel whether input and output are the same memory.
    """

    @intrinsic
    def activate_row(typing, channel, product, scale, shift, out):
        def generate(context, builder, signature, arguments):
            vectors = Vectors(builder, ir.FloatType(), LANES)
            zeros = ir.Constant(vectors.kind, [0.0] * LANES)
            channel, *values = arguments
            made = arrays(context, builder, signature.args[1:], values)
            product, scale, shift, out = (array.data for array in made)
            factor, level = (vectors.broadcast(base, channel) for base in (scale, shift))
            start = builder.mul(channel, INT64(COLUMNS))
            places = [builder.add(start, INT64(v * LANES)) for v in range(VECTORS)]
            for place in places:
                value = _multiply_add(builder, vectors.load(product, place), factor, level)
                value = builder.select(builder.fcmp_ordered(">", value, zeros), value, zeros)
                if is_added:
                    value = builder.fadd(value, vectors.load(out, place))
                vectors.store(value, out, place)
            return context.get_dummy_value()

        return types.void(channel, product, scale, shift, out), generate

    return activate_row


_activate_row, _add_activated_row = _activation(is_added=False), _activation(is_added=True)


def _multiply_add(builder, a, b, c):
    """a b + c, in one instruction where there is one."""
    contract = ("contract",)
    return builder.fadd(builder.fmul(a, b, flags=contract), c, flags=contract)


@intrinsic
def _count_up(typing, counter):
    """Add one to counter[0], whoever else does."""

    def generate(context, builder, signature, arguments):
        (array,) = arrays(context, builder, signature.args, arguments)
        builder.atomic_rmw("add", array.data, INT64(1), "seq_cst")
        return context.get_dummy_value()

    return types.void(counter), generate


@intrinsic
def _count(typing, counter):
    """counter[0] as it is now."""

    def generate(context, builder, signature, arguments):
        (array,) = arrays(context, builder, signature.args, arguments)
        return builder.load_atomic(array.data, "acquire", 8)

    return types.int64(counter), generate


@intrinsic
def _give_way(typing):
    """Let the system run another thread."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.IntType(32), [])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), generate

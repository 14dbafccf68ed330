"""Compiled code of the CN network: matrix products with the normalization fused into them.

Matches are divided into panels of as many columns as one tile of a product keeps in registers. A
panel of activations (channels, columns) stays in the L1 cache while a layer is applied to it: it
is normalized and clamped with the statistics of the layer before, multiplied tile by tile, and
each tile adds to the moments of its channels while it is still in registers. Threads that share
the panels wait for each other once per layer, for these moments.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from lgc_ros.runtime.jit import compiled
from lgc_ros.runtime.simd import INT64, Vectors, arrays, processor_has, product_tile


def _tile_shape() -> tuple[int, int, int]:
    """Floats per vector, vectors per row, rows of a tile: its sums fill the vector registers."""
    if processor_has("avx512f"):
        return 16, 3, 8
    if processor_has("avx"):
        return 8, 3, 4
    return 4, 3, 8


LANES, VECTORS, ROWS = _tile_shape()
COLUMNS = LANES * VECTORS
# A waiting thread yields to the scheduler after this many checks.
SPINS_PER_YIELD = 1000


@compiled
def run_part(
    part,  # index of this part of the panels
    parts,  # number of parts
    rows,  # (N, 4 + side)
    entry,  # packed weights of the input layer
    first,  # packed weights of the first layer times those of the input layer
    weights,  # packed weights of the other layers
    gain,  # (layers, width) after normalization
    offset,  # (layers, width)
    eps,
    output,  # (width,) weights
    output_bias,
    products,  # (panels, width, COLUMNS) buffer: products of the current layer
    sums,  # (panels, width, COLUMNS) buffer: sums over the residual blocks so far
    moments,  # (layers, parts, width, 2) buffer: means, and sums of squares about them
    arrived,  # (1,) barrier: number of arrivals
    logits,  # (N,) result
):
    """Run the whole network on one part of the panels."""
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
            # Alternate the direction: the last panels of a layer are still in the cache.
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
        _store_moments(total, centre, matches[part], moments[layer, part])
        _wait_for_others(arrived, parts * (layer + 1))
        for channel in range(width):
            mean, variance = _mean_and_variance(moments[layer], matches, channel)
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
def multiply_part(part, parts, weights, panels, out):
    """Products and their moments of one part of the panels, without the rest of the network."""
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
    """out = weights @ panel; adds the sums of (out - centre) and of its squares to `total`."""
    for tile in range(len(weights)):
        _multiply_tile(tile, weights, panel, out, centre, counts, total[0], total[1])


@compiled
def _centre(product, columns, centre, total):
    """Use the means of the first panel as centres: squares about them avoid cancellation."""
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
def _store_moments(total, centre, matches, moments):
    """Means of the matches of a part, and sums of squares about them."""
    for channel in range(len(centre)):
        added, squared = 0.0, 0.0
        for lane in range(LANES):
            added += total[0, channel, lane]
            squared += total[1, channel, lane]
        moments[channel, 0] = centre[channel] + added / matches
        moments[channel, 1] = squared - added**2 / matches


@compiled
def _mean_and_variance(moments, matches, channel):
    """Mean and variance of a channel over all matches, from the moments of the parts."""
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
def _wait_for_others(arrived, all_arrived):
    """Barrier of all parts; waiting threads yield now and then, in case the machine is busy."""
    _increment(arrived)
    spins = 0
    while _read(arrived) < all_arrived:
        spins += 1
        if spins % SPINS_PER_YIELD == 0:
            _yield_thread()


@intrinsic
def _multiply_tile(typing, tile, weights, panel, out, centre, counts, sums, squares):
    """ROWS rows of weights @ panel, and their moments about `centre` from the registers."""
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
    """Intrinsic that normalizes and clamps a channel of a panel, and stores or adds the result.

    Plain numba code would check for overlap of input and output at every channel.
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
    """a b + c, as one instruction where the CPU has it."""
    contract = ("contract",)
    return builder.fadd(builder.fmul(a, b, flags=contract), c, flags=contract)


@intrinsic
def _increment(typing, counter):
    """Add one to counter[0] atomically."""

    def generate(context, builder, signature, arguments):
        (array,) = arrays(context, builder, signature.args, arguments)
        builder.atomic_rmw("add", array.data, INT64(1), "seq_cst")
        return context.get_dummy_value()

    return types.void(counter), generate


@intrinsic
def _read(typing, counter):
    """Value of counter[0], read atomically."""

    def generate(context, builder, signature, arguments):
        (array,) = arrays(context, builder, signature.args, arguments)
        return builder.load_atomic(array.data, "acquire", 8)

    return types.int64(counter), generate


@intrinsic
def _yield_thread(typing):
    """Yield to the scheduler."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.IntType(32), [])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), generate

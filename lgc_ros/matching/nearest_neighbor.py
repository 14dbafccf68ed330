"""Exact nearest neighbors of descriptors by exhaustive search.

Squared Euclidean distances are |a|² + |b|² - 2ab, so a matrix product does most of the work.
Integer descriptors, such as SIFT's, are multiplied as bytes where that is faster.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from time import perf_counter

import numpy as np
import torch
from numba.extending import intrinsic

from lgc_ros.runtime.jit import compiled
from lgc_ros.runtime.threads import single_torch_thread

# Entries of the distance matrix computed at once: 1 MB, which stays in the cache for the search.
BLOCK_ENTRIES = 1 << 18
# Size and repetitions of the products that `bytes_are_faster` times.
TRIAL_SIZE, TRIALS = 256, 5
WORDS = 8  # 32-bit words whose differing bits are counted at a time
FAR = np.int32(np.iinfo(np.int32).max)

Product = Callable[[slice], np.ndarray]
"""Product of a slice of rows of `a` with all rows of `b`."""


def nearest_two(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nearest and second nearest row of `b` for each row of `a`, and whether it is mutual.

    Distances are Euclidean for floats, Hamming for bits packed as uint8. A match is mutual if no
    other row of `a` is nearer to its row of `b`; among ties only the first one is, so that mutual
    matches are one to one. If `b` has a single row, it is the second nearest, too.
    """
    if a.dtype == np.uint8:
        return _nearest_two_hamming(_as_words(a), np.ascontiguousarray(_as_words(b).T))
    product, squares_a, squares_b = _products(a, b)
    rows, columns = len(a), len(b)
    nearest, second = np.empty(rows, np.int64), np.zeros(rows, np.int64)
    far = _largest(squares_a.dtype)
    smallest, column_smallest = (np.full(n, far, squares_a.dtype) for n in (rows, columns))
    for start in range(0, rows, _block_rows(columns)):
        block = slice(start, min(start + _block_rows(columns), rows))
        with single_torch_thread():
            values = product(block)
        _to_squared_distances(values, squares_a[block], squares_b, column_smallest)
        row = np.arange(len(values))
        nearest[block] = values.argmin(axis=1)
        smallest[block] = values[row, nearest[block]]
        values[row, nearest[block]] = far
        second[block] = values.argmin(axis=1)
    mutual = np.zeros(rows, bool)
    candidates = np.flatnonzero(smallest == column_smallest[nearest])
    mutual[candidates[np.unique(nearest[candidates], return_index=True)[1]]] = True
    return nearest, second, mutual


def _products(a: np.ndarray, b: np.ndarray) -> tuple[Product, np.ndarray, np.ndarray]:
    """A function that multiplies rows of `a` with all rows of `b`, and the squared norms of both.

    SIFT's integers are exact as floats, too, so both products give the same distances.
    """
    bytes_a, bytes_b = _as_bytes(a), _as_bytes(b)
    if bytes_a is None or bytes_b is None or not bytes_are_faster():
        return _float_product(a, b), *(np.square(side).sum(axis=1) for side in (a, b))
    return _byte_product(bytes_a, bytes_b), *(
        np.square(side, dtype=np.int32).sum(1, dtype=np.int32) for side in (bytes_a, bytes_b)
    )


@compiled
def _to_squared_distances(values, squares_a, squares_b, column_smallest):
    """Turn products into squared distances in place, and update the minimum of each column."""
    for i in range(len(values)):
        for j in range(values.shape[1]):
            values[i, j] = squares_a[i] + squares_b[j] - 2 * values[i, j]
            column_smallest[j] = min(column_smallest[j], values[i, j])


@intrinsic
def _popcount(typing_context, word):
    """Number of bits set in an integer, vectorized by the compiler where the CPU can."""
    return word(word), lambda context, builder, signature, words: builder.ctpop(words[0])


@compiled
def _nearest_two_hamming(a, b):
    """`nearest_two` by Hamming distance, for rows of `a` (N, W) and columns of `b` (W, M)."""
    rows, columns = len(a), b.shape[1]
    nearest, second, mutual = (
        np.empty(rows, np.int64),
        np.empty(rows, np.int64),
        np.zeros(rows, np.bool_),
    )
    # A key is distance times columns plus column: keys are unique, and the minimum gives both.
    keys, smallest, column_smallest = (
        np.empty(columns, np.int32),
        np.empty(rows, np.int32),
        np.full(columns, FAR),
    )
    for i in range(rows):
        for j in range(columns):
            keys[j] = j
        for start in range(0, len(b), WORDS):
            for j in range(columns):
                differing = np.uint32(0)
                for w in range(WORDS):
                    differing = np.uint32(differing + _popcount(a[i, start + w] ^ b[start + w, j]))
                keys[j] += np.int32(differing * columns)
        first = next_one = FAR
        for j in range(columns):
            first = min(first, keys[j])
            column_smallest[j] = min(column_smallest[j], keys[j])
        for j in range(columns):
            next_one = min(next_one, keys[j] if keys[j] != first else FAR)
        nearest[i], second[i], smallest[i] = first % columns, next_one % columns, first
    taken = np.zeros(columns, np.bool_)
    for i in range(rows):
        j = nearest[i]
        if smallest[i] == column_smallest[j] and not taken[j]:
            mutual[i] = taken[j] = True
    return nearest, second, mutual


@compiled
def hamming_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(N,) float32 Hamming distances between corresponding rows of bits packed as uint8."""
    distance = np.empty(len(a), np.float32)
    for i in range(len(a)):
        count = 0
        for k in range(a.shape[1]):
            # Numba itself passes the typing context.
            count += _popcount(a[i, k] ^ b[i, k])  # type: ignore[call-arg]
        distance[i] = count
    return distance


def _as_words(bits: np.ndarray) -> np.ndarray:
    """Rows of bytes as rows of 32-bit words, zero-padded to a multiple of WORDS."""
    count, width = bits.shape
    words = np.zeros((count, -(-width // (4 * WORDS)) * WORDS), np.uint32)
    words.view(np.uint8)[:, :width] = bits
    return words


def _as_bytes(descriptors: np.ndarray) -> np.ndarray | None:
    """Descriptors of integers from 0 to 255 as int8, shifted by 128; None for any others."""
    with np.errstate(invalid="ignore"):
        rounded = descriptors.astype(np.uint8)
    return (rounded ^ 128).view(np.int8) if np.array_equal(rounded, descriptors) else None


def _float_product(a: np.ndarray, b: np.ndarray) -> Product:
    memory = np.empty((min(len(a), _block_rows(len(b))), len(b)), a.dtype)
    return lambda block: np.matmul(a[block], b.T, out=memory[: block.stop - block.start])


def _byte_product(a: np.ndarray, b: np.ndarray) -> Product:
    left, right = torch.from_numpy(a), torch.from_numpy(np.ascontiguousarray(b.T))
    memory = torch.empty((min(len(a), _block_rows(len(b))), len(b)), dtype=torch.int32)

    def product(block: slice) -> np.ndarray:
        rows = memory[: block.stop - block.start]
        return torch._int_mm(left[block], right, out=rows).numpy()

    return product


@cache
def bytes_are_faster() -> bool:
    """Whether torch multiplies bytes faster than BLAS floats on this CPU, timed once.

    With byte instructions (VNNI) it is several times faster; without them it falls back to plain
    loops.
    """
    if not hasattr(torch, "_int_mm"):
        return False
    square = np.ones((TRIAL_SIZE, TRIAL_SIZE), np.int8)

    def fastest_s(product: Product) -> float:
        times = []
        for _ in range(TRIALS):
            start = perf_counter()
            product(slice(0, TRIAL_SIZE))
            times.append(perf_counter() - start)
        return min(times)

    floats = square.astype(np.float32)
    with single_torch_thread():
        return fastest_s(_byte_product(square, square)) < fastest_s(_float_product(floats, floats))


def _block_rows(columns: int) -> int:
    """Rows per block; BLAS kernels take four rows at a time."""
    return max(1, BLOCK_ENTRIES // columns // 4) * 4


def _largest(dtype: np.dtype) -> float:
    return np.inf if dtype.kind == "f" else np.iinfo(dtype).max

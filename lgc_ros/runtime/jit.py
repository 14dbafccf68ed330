"""Numba compilation of loops that numpy could only express in several passes over memory.

Compiled functions take contiguous arrays, always of the same types and dimensions, so that each
is compiled once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from numba import njit

log = logging.getLogger(__name__)

# Release the GIL while running; division by zero behaves as in numpy. A function that is called by
# another becomes part of it: of a call that stays, the process that compiles and those that load
# the cache would run different copies, with sums in a different order.
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "forceinline": True}
# Sums keep their order, unless a loop asks for vector instructions.
EXACT, VECTORIZED = {"contract"}, {"contract", "reassoc", "nsz"}


def compiled(function: Callable, fastmath: set[str] = EXACT) -> Callable:
    """Compile a function on its first call and cache the result on disk for later processes.

    The cache is `__pycache__` beside the source, the user's cache folder, or `NUMBA_CACHE_DIR`.
    If none of them is writable, every process compiles again.
    """
    try:
        return njit(cache=True, fastmath=fastmath, **OPTIONS)(function)
    except RuntimeError as error:
        log.warning("%s; every start compiles again, which takes some seconds", error)
        return njit(fastmath=fastmath, **OPTIONS)(function)


def compiled_for_vectors(function: Callable) -> Callable:
    """Like `compiled`, but sums may be reordered, which lets the CPU add several at a time."""
    return compiled(function, VECTORIZED)

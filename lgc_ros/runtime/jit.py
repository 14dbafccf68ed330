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

# Release the GIL while running; division by zero behaves as in numpy.
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}


def compiled(function: Callable) -> Callable:
    """Compile a function on its first call and cache the result on disk for later processes.

    The cache is `__pycache__` beside the source, the user's cache folder, or `NUMBA_CACHE_DIR`.
    If none of them is writable, every process compiles again.
    """
    try:
        return njit(cache=True, **OPTIONS)(function)
    except RuntimeError as error:
        log.warning("%s; every start compiles again, which takes some seconds", error)
        return njit(**OPTIONS)(function)

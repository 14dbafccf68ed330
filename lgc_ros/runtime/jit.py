"""Loops over many small things, compiled: what numpy can only spell in many passes over memory.

Functions take contiguous arrays, always of the same types and dimensions, so that each is compiled
once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from numba import njit

log = logging.getLogger(__name__)

# Other Python threads run meanwhile; division by zero gives what it gives in numpy.
OPTIONS = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}


def compiled(function: Callable) -> Callable:
    """Compile a function when it is first called, and keep that on disk for the next start.

    It is kept in `__pycache__` beside the source, in the user's cache folder, or where
    `NUMBA_CACHE_DIR` says; where none of them can be written, every start compiles anew.
    """
    try:
        return njit(cache=True, **OPTIONS)(function)
    except RuntimeError as error:
        log.warning("%s; compiling takes some seconds at every start", error)
        return njit(**OPTIONS)(function)

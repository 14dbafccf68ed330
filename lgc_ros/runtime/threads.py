"""One limit for the threads of all that computes: OpenCV, torch, the filter's engines, BLAS."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import torch

# numpy and Debian build OpenBLAS with several prefixes and suffixes.
BLAS_NAMES = (
    "openblas_{}_num_threads",
    "openblas_{}_num_threads64_",
    "scipy_openblas_{}_num_threads",
    "scipy_openblas_{}_num_threads64_",
)


def limit_threads(threads: int) -> None:
    """Let no library use more threads than this; 0 leaves all as it is, one per core.

    It holds for the whole process, and for engines that are made afterwards.
    """
    if threads == 0:
        return
    cv2.setNumThreads(threads)
    torch.set_num_threads(threads)
    for set_threads in _blas("set"):
        set_threads(threads)


@contextmanager
def thread_limit(threads: int) -> Iterator[None]:
    """`limit_threads` for a while."""
    opencv, in_torch, blas = cv2.getNumThreads(), torch.get_num_threads(), blas_threads()
    limit_threads(threads)
    try:
        yield
    finally:
        cv2.setNumThreads(opencv)
        torch.set_num_threads(in_torch)
        for set_threads, before in zip(_blas("set"), blas, strict=False):
            set_threads(before)


def blas_threads() -> list[int]:
    """Threads that each loaded OpenBLAS may use."""
    return [get_threads() for get_threads in _blas("get")]


def _blas(verb: str) -> list[Callable]:
    """A function of every OpenBLAS that this process has loaded; none where /proc is not."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.is_file() else ()
    libraries = [
        ctypes.CDLL(path)
        for path in sorted({line.split()[-1] for line in lines if "blas" in line and "/" in line})
    ]
    names = [name.format(verb) for name in BLAS_NAMES]
    return [getattr(lib, name) for lib in libraries for name in names if hasattr(lib, name)]

"""One limit for the threads of all that computes: OpenCV, torch, the filter's engines, BLAS."""

from __future__ import annotations

import ctypes
from pathlib import Path

import cv2
import torch

# numpy and Debian build OpenBLAS with several prefixes and suffixes.
BLAS_SETTERS = (
    "openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "scipy_openblas_set_num_threads64_",
)


def limit_threads(threads: int) -> None:
    """Let no library use more threads than this; 0 leaves all as it is, one per core.

    It holds for the whole process, and for engines that are made afterwards.
    """
    if threads == 0:
        return
    cv2.setNumThreads(threads)
    torch.set_num_threads(threads)
    for library in blas_libraries():
        for name in BLAS_SETTERS:
            if hasattr(library, name):
                getattr(library, name)(threads)


def blas_libraries() -> list[ctypes.CDLL]:
    """Every OpenBLAS that this process has loaded; none where /proc does not tell."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.is_file() else ()
    return [ctypes.CDLL(path) for path in {line.split()[-1] for line in lines if "blas" in line}]

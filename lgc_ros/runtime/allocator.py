"""Reuse of freed memory from one image to the next."""

from __future__ import annotations

import ctypes

# Parameters of glibc's mallopt, and their values: 32 MB is the largest mmap threshold it takes.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
RETAINED_BYTES, MMAP_THRESHOLD_BYTES = 1 << 30, 1 << 25


def retain_freed_memory() -> None:
    """Keep up to 1 GB of freed memory in this process; call it before other threads start.

    SIFT allocates and frees 60 MB for a 640x480 image. By default glibc may return that memory
    after each image, and the kernel zeroes every page again: up to a third of SIFT's time. A
    single arena shared by all threads retains it once instead of once per thread. Without glibc
    this does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
        mallopt(M_TRIM_THRESHOLD, RETAINED_BYTES)
        mallopt(M_ARENA_MAX, 1)

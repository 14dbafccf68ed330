"""One thread limit for every library that computes: OpenCV, torch, the filter's backends, BLAS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import cv2
import torch
from threadpoolctl import OpenBLASController, ThreadpoolController


def limit_threads(threads: int) -> None:
    """Limit the threads of every library in this process; 0 keeps the defaults, one per core.

    Filter backends created later use the same limit.
    """
    if threads == 0:
        return
    cv2.setNumThreads(threads)
    torch.set_num_threads(threads)
    _blas_libraries().limit(limits=threads)
    # The calling thread would keep control of OpenBLAS, and limits set by others be ignored.
    OpenBLASController.clear_controlling_thread()


@contextmanager
def thread_limit(threads: int) -> Iterator[None]:
    """Context manager that applies `limit_threads` and restores the previous limits on exit."""
    opencv_threads, torch_threads = cv2.getNumThreads(), torch.get_num_threads()
    with _blas_libraries().limit(limits=threads or None):
        limit_threads(threads)
        try:
            yield
        finally:
            cv2.setNumThreads(opencv_threads)
            torch.set_num_threads(torch_threads)


@contextmanager
def single_torch_thread() -> Iterator[None]:
    """Context manager that limits torch to one thread.

    OpenMP threads spin at every barrier. When another process occupies one of the cores, the wait
    costs a short matrix product a hundred times what a second thread could gain.
    """
    torch_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(torch_threads)


def _blas_libraries() -> ThreadpoolController:
    """Every BLAS loaded so far; numpy and OpenCV each bring their own."""
    return ThreadpoolController().select(user_api="blas")

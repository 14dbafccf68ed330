"""One thread for torch, where more would wait for each other longer than they work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold torch to one thread for a while.

    OpenMP's threads spin at every barrier, and where something else takes one of the cores, short
    products then take a hundred times what a second thread could gain.
    """
    allowed = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(allowed)

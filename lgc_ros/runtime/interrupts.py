"""Ctrl-C at a moment when the work can be interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt after the block; a second one raises it at once.

    Calls of compiled functions turn an exception of a signal handler into SystemError, which
    would end the program without its results.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    received = 0

    def defer(number: int, frame: object) -> None:
        nonlocal received
        received += 1
        if received > 1:
            handler(number, None)

    signal.signal(signal.SIGINT, defer)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if received:
        handler(signal.SIGINT, None)

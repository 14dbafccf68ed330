"""Threads that work on the newest items: what they cannot keep up with is dropped, not queued."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class LatestItemWorker:
    """Calls `work(item)` in its own thread; an item that waits is replaced by a newer one.

    Attributes:
        dropped: items replaced before they were worked on.
    """

    def __init__(self, work: Callable[[Any], None], name: str) -> None:
        self._work = work
        self._changed = threading.Condition()
        self._waiting: Any | None = None
        self._stopping = False
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: Any) -> None:
        with self._changed:
            self.dropped += self._waiting is not None
            self._waiting = item
            self._changed.notify()

    def stop(self) -> None:
        """Finish the item at hand, forget the one that waits, and end the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self._waiting is not None)
                if self._stopping:
                    return
                item, self._waiting = self._waiting, None
            self._work(item)


class SerialThread:
    """A thread for one call at a time, which must not raise; the caller goes on meanwhile."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)
        self._last: Future | None = None

    def call(self, function: Callable[[], None]) -> None:
        """Begin a call as soon as the last one has ended."""
        self.wait()
        self._last = self._executor.submit(function)

    def wait(self) -> None:
        """Wait until the last call has ended."""
        if self._last is not None:
            self._last.result()

    def stop(self) -> None:
        """Wait for the last call, and end the thread."""
        self._executor.shutdown()

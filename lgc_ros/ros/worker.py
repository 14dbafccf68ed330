"""Worker threads that process the newest item and drop older ones instead of queueing them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class LatestItemWorker:
    """Calls `work(item)` in its own thread; a newer item replaces a waiting one.

    Attributes:
        dropped: number of items replaced before they were processed.
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
        """Finish the current item, discard the waiting one, and end the thread."""
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
    """Runs one call at a time in its own thread; calls must not raise."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)
        self._last: Future | None = None

    def call(self, function: Callable[[], None]) -> None:
        """Start a call once the previous one has ended."""
        self.wait()
        self._last = self._executor.submit(function)

    def wait(self) -> None:
        """Wait for the current call."""
        if self._last is not None:
            self._last.result()

    def stop(self) -> None:
        """Wait for the current call, and end the thread."""
        self._executor.shutdown()

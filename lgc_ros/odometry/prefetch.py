"""Extract the keypoints of the next frames in other threads while odometry processes this one."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from lgc_ros.features.base import Extractor, Features
from lgc_ros.images.frame import Frame
from lgc_ros.runtime.threads import thread_limit

MOST_AHEAD = 4


def prefetch_features(
    frames: Iterable[Frame], extract: Extractor, threads: int = 0
) -> Iterator[tuple[Frame, Callable[[], Features]]]:
    """Each frame with a function that waits for its keypoints, and raises what extraction raised.

    `threads` images (0: one per core) are extracted at a time, each by a single thread, which
    costs less than sharing every image among all threads. Until the last frame, the libraries
    that the caller uses are limited to one thread, too. The keypoints are the same as without
    prefetching. With one thread they are extracted on demand.
    """
    workers = min(threads or os.cpu_count() or 1, MOST_AHEAD)
    with thread_limit(1):
        if workers == 1:
            yield from ((frame, partial(extract, frame.image)) for frame in frames)
            return
        with ThreadPoolExecutor(workers, "extraction") as extractor:
            ahead: deque = deque()
            for frame in frames:
                ahead.append((frame, extractor.submit(extract, frame.image).result))
                if len(ahead) > workers:
                    yield ahead.popleft()
            yield from ahead

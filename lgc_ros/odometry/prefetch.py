"""Several frames at a time: keypoints of the next are extracted while odometry is at this one."""

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
    """Each frame, and what waits for its keypoints, or raises what their extraction raised.

    As many images are worked on at a time as `threads` says (0: as there are cores), each by one
    thread: that costs less than sharing every image among all of them, and nothing waits. Until
    the last frame, the libraries that the caller uses are held to one thread, too. The keypoints
    are those of extracting one image after the other. Where one thread is all that is allowed,
    they are extracted when they are asked for.
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

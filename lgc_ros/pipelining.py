"""Two frames at a time: keypoints of the next are extracted while the odometry is at this one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from lgc_ros.features import Extractor, Features
from lgc_ros.frame import Frame


def extracted_ahead(
    frames: Iterable[Frame], extract: Extractor, threads: int = 0
) -> Iterator[tuple[Frame, Callable[[], Features]]]:
    """Each frame, and what waits for its keypoints, or raises what their extraction raised.

    The results are those of extracting one frame after the other: the extractor meets the same
    images in the same order, in one thread of its own. No more than two frames are held. Where
    one thread is all that is allowed, keypoints are extracted when they are asked for.
    """
    if threads == 1:
        for frame in frames:
            yield frame, partial(extract, frame.image)
        return
    with ThreadPoolExecutor(1, "extraction") as extractor:
        ahead = None
        for frame in frames:
            extraction = extractor.submit(extract, frame.image)
            if ahead is not None:
                yield ahead
            ahead = frame, extraction.result
        if ahead is not None:
            yield ahead

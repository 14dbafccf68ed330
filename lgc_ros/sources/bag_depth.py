"""Depth images of a bag, paired with the images taken at the same time."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from lgc_ros.images.encoding import depth_from_message
from lgc_ros.images.stamps import serialized_stamp_ns
from lgc_ros.sources.bag_reader import Message
from lgc_ros.sources.base import DEPTH_WINDOW_NS

if TYPE_CHECKING:
    from rosbags.highlevel import AnyReader

log = logging.getLogger(__name__)

# Depth images kept for later images, and images that may wait for their depth image.
MAX_QUEUED = 10


def pair_with_depth(
    messages: Iterator[Message], depth_topic: str | None
) -> Iterator[tuple[Message, Message | None]]:
    """Images in order, each with the depth image nearest in time, if it is near enough.

    An image waits until a depth image at least as new arrives, because either may be recorded
    first.
    """
    depths: deque[tuple[int, Message]] = deque(maxlen=MAX_QUEUED)
    waiting: deque[tuple[int, Message]] = deque()

    def next_pair() -> tuple[Message, Message | None]:
        stamp_ns, image = waiting.popleft()
        apart = [(abs(depth_ns - stamp_ns), i) for i, (depth_ns, _) in enumerate(depths)]
        apart_ns, nearest = min(apart, default=(DEPTH_WINDOW_NS + 1, 0))
        return image, depths[nearest][1] if apart_ns <= DEPTH_WINDOW_NS else None

    for message in messages:
        stamped = (_serialized_stamp_ns(message), message)
        (depths if message[0].topic == depth_topic else waiting).append(stamped)
        newest_ns = depths[-1][0] if depths else -1
        while waiting and (
            depth_topic is None or newest_ns >= waiting[0][0] or len(waiting) > MAX_QUEUED
        ):
            yield next_pair()
    while waiting:
        yield next_pair()


def read_depth(reader: AnyReader, message: Message, image_name: str) -> np.ndarray | None:
    """Depth (H, W) in meters; None if it is damaged, because the image is usable without it."""
    connection, _, data = message
    try:
        return depth_from_message(reader.deserialize(data, connection.msgtype))
    except Exception as error:  # damaged bytes can raise anything
        log.warning("%s has no depth: %s", image_name, error)
        return None


def _serialized_stamp_ns(message: Message) -> int:
    """Header stamp of a serialized (CDR) message, or its recording time if it has no stamp."""
    _, recorded_ns, data = message
    return serialized_stamp_ns(data) or recorded_ns

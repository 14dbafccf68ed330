"""Pairs images with camera_info messages by their stamps.

The inputs are message_filters subscribers, but its Python synchronizers are not used: they
deadlock when a stamp or a callback raises, and a full queue evicts the lowest stamp, so that after
a jump back in time the messages from before it block all later ones.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from lgc_ros.images.stamps import stamp_ns
from lgc_ros.ros import compat

Stamped: TypeAlias = Image | CompressedImage | CameraInfo
OnPair = Callable[[Image | CompressedImage, CameraInfo], None]

# A message older than the newest one of its topic by more than this is a time jump, not a delay.
JUMP_BACK_NS = 10**9


class Synchronizer:
    """Calls back with each image and the camera_info of its stamp.

    Args:
        image, camera_info: message_filters sources, such as subscribers.
        on_pair: called with each pair in stamp order, without holding a lock.
        on_refused: called with each message ignored because its stamp is negative.
        queue_size: messages per topic that can wait for their counterpart; the first to arrive
            is dropped first.
        slop_s: maximum stamp difference in seconds; 0 pairs equal stamps only.
    """

    def __init__(
        self,
        image: compat.SimpleFilter,
        camera_info: compat.SimpleFilter,
        on_pair: OnPair,
        on_refused: Callable[[Stamped], None],
        queue_size: int,
        slop_s: float = 0.0,
    ) -> None:
        self._on_pair, self._on_refused = on_pair, on_refused
        self._slop_ns = round(slop_s * 1e9)
        self._lock = threading.Lock()
        self._waiting = _Queue(queue_size), _Queue(queue_size)
        for index, source in enumerate((image, camera_info)):
            source.registerCallback(self._add, index)

    def _add(self, message: Stamped, index: int) -> None:
        now_ns = stamp_ns(message.header.stamp)
        if now_ns < 0:
            self._on_refused(message)
            return
        own, other = self._waiting[index], self._waiting[1 - index]
        with self._lock:
            other_ns = _nearest(now_ns, other.stamps_ns(), self._slop_ns)
            if other_ns is None:
                own.add(now_ns, message)
                return
            counterpart = other.take(other_ns)
            own.pass_by(now_ns)
        pair = (message, counterpart) if index == 0 else (counterpart, message)
        self._on_pair(*pair)


class _Queue:
    """Messages of one topic waiting for their counterpart, in order of arrival."""

    def __init__(self, size: int) -> None:
        self._items: deque[tuple[int, Any]] = deque(maxlen=size)
        self._newest_ns = 0

    def stamps_ns(self) -> Iterable[int]:
        return (waiting_ns for waiting_ns, _ in self._items)

    def add(self, now_ns: int, message: Any) -> None:
        self._detect_jump(now_ns)
        self._items.append((now_ns, message))

    def pass_by(self, now_ns: int) -> None:
        """Drop what is older than a message paired on arrival: the other topic is past it."""
        self._detect_jump(now_ns)
        self._drop(lambda waiting_ns: waiting_ns <= now_ns)

    def take(self, now_ns: int) -> Any:
        """Remove and return the message of that stamp, and drop older ones."""
        message = next(message for waiting_ns, message in self._items if waiting_ns == now_ns)
        self._drop(lambda waiting_ns: waiting_ns <= now_ns)
        return message

    def _detect_jump(self, now_ns: int) -> None:
        """After a jump back in time, drop messages from before the jump."""
        if now_ns < self._newest_ns - JUMP_BACK_NS:
            self._drop(lambda waiting_ns: waiting_ns > now_ns)
            self._newest_ns = now_ns
        self._newest_ns = max(self._newest_ns, now_ns)

    def _drop(self, unwanted: Callable[[int], bool]) -> None:
        kept = [item for item in self._items if not unwanted(item[0])]
        self._items.clear()
        self._items.extend(kept)


def _nearest(now_ns: int, stamps_ns: Iterable[int], slop_ns: int) -> int | None:
    """The nearest stamp within the slop; None if there is none."""
    near = [other_ns for other_ns in stamps_ns if abs(other_ns - now_ns) <= slop_ns]
    return min(near, key=lambda other_ns: abs(other_ns - now_ns), default=None)

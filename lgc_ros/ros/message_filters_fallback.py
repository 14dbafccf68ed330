"""Stands in for ROS's message_filters where that is not installed.

Classes, signatures and names of methods are those of its Python package in ROS 2 Jazzy.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from rclpy.clock import ROSClock
from rclpy.duration import Duration
from rclpy.logging import get_logger
from rclpy.node import Node
from rclpy.time import Time


class SimpleFilter:
    """Passes its output on to callbacks, in the order in which they registered."""

    def __init__(self) -> None:
        self.callbacks: dict[int, tuple[Callable, tuple]] = {}

    def registerCallback(self, cb: Callable, *args: Any) -> int:
        """Have `cb` called with each output followed by `args`; returns the connection's key."""
        connection = len(self.callbacks)
        self.callbacks[connection] = cb, args
        return connection

    def signalMessage(self, *msg: Any) -> None:
        for callback, args in self.callbacks.values():
            callback(*msg, *args)


class Subscriber(SimpleFilter):
    """A subscription as a source of messages; options are those of Node.create_subscription.

    What it does not have itself is asked of the subscription, which is `sub`.
    """

    def __init__(
        self, node: Node, msg_type: type, topic: str, *, qos_profile: Any = 10, **options: Any
    ) -> None:
        super().__init__()
        self.node = node
        self.topic = topic
        self.sub = node.create_subscription(
            msg_type, topic, self.callback, qos_profile=qos_profile, **options
        )

    def callback(self, msg: Any) -> None:
        self.signalMessage(msg)

    def getTopic(self) -> str:
        return self.topic

    def __getattr__(self, key: str) -> Any:
        return getattr(self.sub, key)


class Cache(SimpleFilter):
    """Keeps the `cache_size` messages that arrived last, and passes them on."""

    def __init__(
        self, f: SimpleFilter, cache_size: int = 1, allow_headerless: bool = False
    ) -> None:
        super().__init__()
        self.cache_size = cache_size
        self.allow_headerless = allow_headerless
        self.cache_msgs: list[Any] = []
        self.cache_times: list[Time] = []
        self.connectInput(f)

    def connectInput(self, f: SimpleFilter) -> None:
        self.incoming_connection = f.registerCallback(self.add)

    def add(self, msg: Any) -> None:
        time = _time_of(msg, self.allow_headerless)
        if time is None:
            return
        self.cache_msgs.append(msg)
        self.cache_times.append(time)
        if len(self.cache_msgs) > self.cache_size:
            del self.cache_msgs[0], self.cache_times[0]
        self.signalMessage(msg)

    def getInterval(self, from_stamp: Time, to_stamp: Time) -> list[Any]:
        """Messages with stamps from `from_stamp` to `to_stamp`, both included."""
        assert from_stamp <= to_stamp
        return self._where(lambda time: from_stamp <= time <= to_stamp)

    def getElemAfterTime(self, stamp: Time) -> Any | None:
        """The first message at `stamp` or later."""
        return next(iter(self._where(lambda time: time >= stamp)), None)

    def getElemBeforeTime(self, stamp: Time) -> Any | None:
        """The last message at `stamp` or earlier."""
        return next(reversed(self._where(lambda time: time <= stamp)), None)

    def getLastestTime(self) -> Time | None:
        return self.cache_times[-1] if self.cache_times else None

    def getOldestTime(self) -> Time | None:
        return self.cache_times[0] if self.cache_times else None

    def getLast(self) -> Any | None:
        return self.cache_msgs[-1] if self.cache_msgs else None

    def _where(self, accepts: Callable[[Time], bool]) -> list[Any]:
        times = zip(self.cache_msgs, self.cache_times, strict=True)
        return [msg for msg, time in times if accepts(time)]


class TimeSynchronizer(SimpleFilter):
    """Passes on sets of messages, one of each input, that have the same stamp.

    Each input keeps `queue_size` messages that wait for their set. A full queue loses what came
    first, not what has the lowest stamp: after stamps jumped back (a bag in a loop), the messages
    from before the jump would otherwise block the queue for ever.
    """

    def __init__(self, fs: Sequence[SimpleFilter], queue_size: int) -> None:
        super().__init__()
        self.queue_size = queue_size
        self.lock = threading.Lock()
        self.connectInput(fs)

    def connectInput(self, fs: Sequence[SimpleFilter]) -> None:
        self.queues: list[dict[int, Any]] = [{} for _ in fs]  # by stamp in nanoseconds
        self.input_connections = [
            f.registerCallback(self.add, queue, index)
            for index, (f, queue) in enumerate(zip(fs, self.queues, strict=True))
        ]

    def add(self, msg: Any, my_queue: dict[int, Any], my_queue_index: int | None = None) -> None:
        stamp_ns = _time(msg.header.stamp).nanoseconds
        with self.lock:
            self._store(msg, my_queue, stamp_ns)
            if all(stamp_ns in queue for queue in self.queues):
                # The other inputs are past what waited here before this message.
                for old_ns in [waiting_ns for waiting_ns in my_queue if waiting_ns < stamp_ns]:
                    del my_queue[old_ns]
                self._pass_on([stamp_ns] * len(self.queues))

    def _store(self, msg: Any, queue: dict[int, Any], stamp_ns: int) -> None:
        queue.pop(stamp_ns, None)
        queue[stamp_ns] = msg
        while len(queue) > self.queue_size:
            del queue[next(iter(queue))]

    def _pass_on(self, stamps_ns: Sequence[int]) -> None:
        waiting = zip(self.queues, stamps_ns, strict=True)
        self.signalMessage(*[queue.pop(stamp_ns) for queue, stamp_ns in waiting])


class ApproximateTimeSynchronizer(TimeSynchronizer):
    """Passes on sets of messages, one of each input, whose stamps lie within `slop` seconds.

    A message is paired with those nearest to it. Messages without a header are refused, or with
    `allow_headerless` get the time of their arrival.
    """

    def __init__(
        self,
        fs: Sequence[SimpleFilter],
        queue_size: int,
        slop: float,
        allow_headerless: bool = False,
    ) -> None:
        super().__init__(fs, queue_size)
        self.slop = Duration(seconds=slop)
        self.allow_headerless = allow_headerless

    def add(self, msg: Any, my_queue: dict[int, Any], my_queue_index: int | None = None) -> None:
        time = _time_of(msg, self.allow_headerless)
        if time is None:
            return
        slop_ns = self.slop.nanoseconds
        with self.lock:
            self._store(msg, my_queue, time.nanoseconds)
            nearest_first = [_near(queue, time.nanoseconds, slop_ns) for queue in self.queues]
            for stamps_ns in itertools.product(*nearest_first):
                if max(stamps_ns) - min(stamps_ns) < slop_ns:
                    self._pass_on(stamps_ns)
                    return


def _near(queue: dict[int, Any], stamp_ns: int, slop_ns: int) -> list[int]:
    """Stamps of the queue less than `slop_ns` from `stamp_ns`, nearest first."""

    def distance_ns(waiting_ns: int) -> int:
        return abs(waiting_ns - stamp_ns)

    near = (waiting_ns for waiting_ns in queue if distance_ns(waiting_ns) < slop_ns)
    return sorted(near, key=distance_ns)


def _time(stamp: Any) -> Time:
    """A stamp as a message holds it, or already a time of rclpy, as the latter."""
    return stamp if isinstance(stamp, Time) else Time.from_msg(stamp)


def _time_of(msg: Any, allow_headerless: bool) -> Time | None:
    """When the message was made, or arrived if it has no header; None if that is not allowed."""
    if hasattr(msg, "header") and hasattr(msg.header, "stamp"):
        return _time(msg.header.stamp)
    if allow_headerless:
        return ROSClock().now()
    get_logger("message_filters").warning(
        f"{type(msg).__name__} has no header with a stamp and is ignored: publish a message type "
        "with a header, or set allow_headerless to use the time of arrival",
        once=True,
    )
    return None

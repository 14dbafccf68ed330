"""Publish the messages of a bag at the recorded pace, without deserializing them."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from builtin_interfaces.msg import Time
from rclpy.duration import Duration
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosgraph_msgs.msg import Clock

from lgc_ros.errors import ConfigError, SourceError
from lgc_ros.images.stamps import serialized_stamp_ns
from lgc_ros.ros.bags.answers import DEPTH, Answers
from lgc_ros.ros.bags.topics import message_class, offered_qos
from lgc_ros.ros.session import Session
from lgc_ros.sources.bag_reader import open_bag, topic_listing, topic_types
from lgc_ros.sources.bag_topics import is_depth
from lgc_ros.sources.bag_types import IMAGE_TYPES, INFO_TYPES

if TYPE_CHECKING:
    from rosbags.highlevel import AnyReader
    from rosbags.interfaces import Connection, ConnectionExtRosbag2

log = logging.getLogger(__name__)

CLOCK_TOPIC = "/clock"
STATIC_TOPICS = ("/tf_static",)
# Maximum waits for subscribers: to connect once they are discovered, which takes milliseconds or
# longer on a busy machine, and to acknowledge the last messages.
CONNECTED_S, ACKNOWLEDGED_S = 3.0, 10.0


@dataclass(frozen=True, eq=False)
class Played:
    """A message that was just published, and the position in the bag in seconds of bag time."""

    topic: str
    data: bytes
    done_s: float
    total_s: float


Progress = Callable[[Played], None]


@dataclass(frozen=True)
class PlayOptions:
    """Options of `play`.

    Attributes:
        rate: playback rate; 1 is real time.
        loop: start over at the end; stamps then jump back.
        clock_hz: rate of /clock in real time; None: do not publish it.
        topics: topics to play, by their names in the bag; empty: all.
        remap: published names, by the names in the bag.
        start_offset_s, duration_s: part of the bag to play, in bag time.
        reliable: publish everything with reliable QoS, whatever was recorded.
        wait_for: topics that must have a subscriber before playback starts; they need not be in
            the bag, so that a recorder of the results is ready in time.
        in_step_with: topic that answers each image with a message of the same stamp; the next
            image is held back until then, so that a slow subscriber misses none. Depth images are
            not. If `wait_for` names image topics, only those are: others may be another camera.
        wait_s: maximum wait for the endpoints that `wait_for` and `in_step_with` name.
        answer_s: maximum wait for an answer; the image is sent again after half of it, and three
            consecutive images without an answer end playback with an error.
    """

    rate: float = 1.0
    loop: bool = False
    clock_hz: float | None = None
    topics: tuple[str, ...] = ()
    remap: Mapping[str, str] = field(default_factory=dict)
    start_offset_s: float = 0.0
    duration_s: float | None = None
    reliable: bool = False
    wait_for: tuple[str, ...] = ()
    in_step_with: str | None = None
    wait_s: float = 120.0
    answer_s: float = 20.0


def play(
    session: Session,
    bag: Path,
    options: PlayOptions,
    progress: Progress = lambda played: None,
) -> Counter[str]:
    """Play a bag to its end, or until the session is stopped.

    Args:
        progress: called after each message.

    Returns:
        Number of published messages by topic.

    Raises:
        LgcError: the bag cannot be read, lacks a requested topic, or is not answered.
    """
    with open_bag(bag) as reader:
        return _Player(session, reader, bag, options).run(progress)


class _Player:
    def __init__(self, session: Session, reader: AnyReader, bag: Path, options: PlayOptions):
        self._session, self._reader, self._options = session, reader, options
        self._bag = bag
        self._start_ns, self._stop_ns = _span(reader, bag, options)
        topics = _chosen(reader, bag, options)
        resolve = session.topic_name
        self._names = {topic: resolve(options.remap.get(topic, topic)) for topic in topics}
        self._awaited = [resolve(topic) for topic in options.wait_for]
        self._answers = options.in_step_with and Answers(
            session, resolve(options.in_step_with), options.wait_s, options.answer_s
        )
        self._publishers = self._advertise(topics)
        self._counts = Counter(dict.fromkeys(self._publishers, 0))
        self._clock = options.clock_hz and session.node.create_publisher(Clock, CLOCK_TOPIC, 10)
        self._tick_s = float("-inf")

    def run(self, progress: Progress) -> Counter[str]:
        connections = [
            connection
            for connection in self._reader.connections
            if self._names.get(connection.topic) in self._publishers
        ]
        self._await_subscribers()
        if self._answers:
            self._answers.await_publisher()
            self._await_listener(self._asking(connections))
        while not self._session.stopping.is_set():
            self._play_once(connections, progress)
            if not self._options.loop:
                break
        if self._answers:
            self._answers.check()
        self._await_delivery()
        return self._counts

    def _advertise(self, topics: dict[str, list[Connection]]) -> dict[str, Publisher]:
        publishers = {}
        for topic, connections in topics.items():
            try:
                kind = message_class(connections[0].msgtype)
            except ConfigError as error:
                log.warning("skipping %s: %s", topic, error)
                continue
            name, qos = self._names[topic], self._qos(topic, connections)
            publishers[name] = self._session.node.create_publisher(kind, name, qos)
        if not publishers:
            raise ConfigError("no topic of this bag can be published, see above")
        return publishers

    def _qos(self, topic: str, connections: list[Connection]) -> QoSProfile:
        recorded = (cast("ConnectionExtRosbag2", connection.ext) for connection in connections)
        profiles = [profile for ext in recorded for profile in ext.offered_qos_profiles]
        qos = offered_qos(profiles, DEPTH)
        if self._options.reliable:
            qos.reliability = ReliabilityPolicy.RELIABLE
        if topic in STATIC_TOPICS:
            qos.durability = DurabilityPolicy.TRANSIENT_LOCAL
        return qos

    def _await_subscribers(self) -> None:
        for name in self._awaited:
            self._await_subscriber(partial(self._has_subscriber, name), name)

    def _has_subscriber(self, name: str) -> bool:
        """Whether a topic is subscribed to; if it is played here, by a connected subscriber."""
        publisher = self._publishers.get(name)
        if publisher is None:
            return self._session.node.count_subscribers(name) > 0
        return publisher.get_subscription_count() > 0

    def _await_subscriber(self, done: Callable[[], bool], *names: str) -> None:
        session = self._session
        subscribers = session.node.get_subscriptions_info_by_topic
        session.wait_for(
            done,
            f"a subscriber of {' or '.join(names)}",
            lambda: session.similar_topics(names[0], subscribers),
            self._options.wait_s,
        )

    def _await_listener(self, asking: set[str]) -> None:
        """Wait until DDS has connected the subscriber of the images, so that it misses none."""

        def listens() -> bool:
            return any(map(self._has_subscriber, asking))

        def all_connected() -> bool:
            return all(
                publisher.get_subscription_count() >= self._session.node.count_subscribers(name)
                for name, publisher in self._publishers.items()
            )

        if asking:
            self._await_subscriber(listens, *sorted(asking))
            # Subscribers with incompatible QoS never connect.
            self._session.spin_until(all_connected, time.monotonic() + CONNECTED_S)

    def _await_delivery(self) -> None:
        """Wait until the last reliable messages are acknowledged."""
        until_s = time.monotonic() + ACKNOWLEDGED_S
        for publisher in self._publishers.values():
            acknowledged = partial(publisher.wait_for_all_acked, Duration(seconds=0.1))
            self._session.spin_until(acknowledged, until_s)

    def _play_once(self, connections: list[Connection], progress: Progress) -> None:
        """Play the span once; bag time pauses while waiting for an answer."""
        begin_s = time.monotonic()
        total_s = (self._stop_ns - self._start_ns) * 1e-9
        asking = self._asking(connections)
        for connection, log_ns, data in self._messages(connections):
            due_s = begin_s + (log_ns - self._start_ns) * 1e-9 / self._options.rate
            self._keep_time(begin_s, due_s)
            if self._answers and self._names[connection.topic] in asking:
                asked_s = time.monotonic()
                self._answers.await_last()
                self._answers.expect(serialized_stamp_ns(data))
                begin_s += time.monotonic() - asked_s
            if self._session.stopping.is_set():
                return
            name = self._names[connection.topic]
            self._publishers[name].publish(bytes(data))
            if self._answers and connection.msgtype in (*IMAGE_TYPES, *INFO_TYPES):
                self._answers.sent(self._publishers[name], bytes(data))
            self._counts[name] += 1
            progress(Played(name, data, (log_ns - self._start_ns) * 1e-9, total_s))
        if self._answers:
            self._answers.await_last()
        self._keep_time(begin_s, begin_s + total_s / self._options.rate)

    def _asking(self, connections: list[Connection]) -> set[str]:
        """Published names of the topics whose images are answered."""
        topics = {c.topic for c in connections if c.msgtype in IMAGE_TYPES and c.msgcount}
        named = {self._names[topic] for topic in topics}.intersection(self._awaited)
        # A node answers the image that a depth image belongs to, perhaps after it has come.
        images = (topic for topic in topics if not is_depth(self._reader, topic))
        return named or {self._names[topic] for topic in images}

    def _messages(self, connections: list[Connection]) -> Iterator[tuple[Connection, int, bytes]]:
        try:
            yield from self._reader.messages(connections, self._start_ns, self._stop_ns)
        except Exception as error:  # each storage raises its own errors
            raise SourceError(f"{self._bag} is damaged: {error}") from error

    def _keep_time(self, begin_s: float, due_s: float) -> None:
        """Publish /clock until a message is due, and never a later time."""
        while not self._session.stopping.is_set():
            now_s = time.monotonic()
            clock_hz = self._options.clock_hz
            if self._clock and clock_hz and now_s >= self._tick_s:
                played_s = (min(now_s, due_s) - begin_s) * self._options.rate
                sec, nanosec = divmod(self._start_ns + round(played_s * 1e9), 10**9)
                self._clock.publish(Clock(clock=Time(sec=sec, nanosec=nanosec)))
                self._tick_s = now_s + 1 / clock_hz
            if now_s >= due_s:
                return
            self._session.spin_for(min(due_s, self._tick_s if self._clock else due_s) - now_s)


def _span(reader: AnyReader, bag: Path, options: PlayOptions) -> tuple[int, int]:
    """Start (inclusive) and end (exclusive) of playback in nanoseconds of bag time."""
    if not reader.message_count:
        raise SourceError(f"{bag} is empty")
    start_ns = reader.start_time + round(options.start_offset_s * 1e9)
    stop_ns = reader.end_time
    if options.duration_s is not None:
        stop_ns = min(stop_ns, start_ns + round(options.duration_s * 1e9))
    if start_ns >= reader.end_time:
        raise ConfigError(
            f"the start offset of {options.start_offset_s:g} s is beyond the end of {bag}, which "
            f"lasts {reader.duration * 1e-9:.1f} s"
        )
    return start_ns, stop_ns


def _chosen(reader: AnyReader, bag: Path, options: PlayOptions) -> dict[str, list[Connection]]:
    """Connections of the topics to play, by topic."""
    types = topic_types(reader)
    unknown = [name for name in (*options.topics, *options.remap) if name not in types]
    if unknown:
        raise SourceError(f"{bag} has no {', '.join(unknown)}; it has {topic_listing(reader)}")
    chosen = options.topics or sorted(types)
    # A recorded clock would conflict with the one published here.
    return {
        topic: [c for c in reader.connections if c.topic == topic]
        for topic in chosen
        if not (options.clock_hz and topic == CLOCK_TOPIC)
    }

"""Publish a bag over ROS: the bytes as they were recorded, at the pace they were recorded at."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.duration import Duration
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosgraph_msgs.msg import Clock

from lgc_ros.errors import ConfigError, LgcError, SourceError
from lgc_ros.images.stamps import serialized_stamp_ns
from lgc_ros.ros.bags.topics import has_header, message_class, offered_qos
from lgc_ros.ros.session import Session
from lgc_ros.sources.rosbag import IMAGE_TYPES, open_bag, topic_listing, topic_types

if TYPE_CHECKING:
    from rosbags.highlevel import AnyReader
    from rosbags.interfaces import Connection

log = logging.getLogger(__name__)

CLOCK_TOPIC = "/clock"
STATIC_TOPICS = ("/tf_static",)
DEPTH = 100
# Subscribers that are known are connected within milliseconds, on a busy machine later.
CONNECTED_S = 3.0
# What was published last must still reach its readers.
ACKNOWLEDGED_S = 10.0
# So many images in a row without an answer are not a coincidence.
MAX_UNANSWERED = 3


@dataclass(frozen=True, eq=False)
class Played:
    """A message that was just published, and how far the bag is, in its own seconds."""

    topic: str
    data: bytes
    done_s: float
    total_s: float


Progress = Callable[[Played], None]


@dataclass(frozen=True)
class PlayOptions:
    """How a bag is played.

    Attributes:
        rate: bag seconds per second.
        loop: begin again at the end; stamps then go back.
        clock_hz: how often /clock is published, in real time; None: not at all.
        topics: those to play, by their names in the bag; empty: all.
        remap: name in the bag to name published.
        start_offset_s, duration_s: the part of the bag to play, in bag time.
        reliable: publish everything reliably, whatever was recorded.
        wait_for: topics that must have a subscriber before anything is played; they need not be
            of the bag, so that a recorder of what comes out is there in time.
        in_step_with: a topic that answers each image with a message of the same stamp; the next
            image is held back until it has, so that a slow listener misses none. Where images
            are waited for, only they are answered: others may be depth, or of another camera.
        answer_s: how long an answer is waited for; MAX_UNANSWERED images in a row without one
            end playing with an error.
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
    answer_s: float = 20.0


def play(
    session: Session,
    bag: Path,
    options: PlayOptions,
    progress: Progress = lambda played: None,
) -> Counter[str]:
    """Play a bag to its end, or until the session is to stop.

    Args:
        progress: called after each message.

    Returns:
        Number of messages published by topic.

    Raises:
        LgcError: the bag cannot be read, does not hold what is asked for, or is not answered.
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
        self._answers = options.in_step_with and _Answers(
            session, resolve(options.in_step_with), options.answer_s
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
                log.warning("%s is left out: %s", topic, error)
                continue
            name, qos = self._names[topic], self._qos(topic, connections)
            publishers[name] = self._session.node.create_publisher(kind, name, qos)
        if not publishers:
            raise ConfigError("nothing of this bag can be published, see above")
        return publishers

    def _qos(self, topic: str, connections: list[Connection]) -> QoSProfile:
        profiles = [p for connection in connections for p in connection.ext.offered_qos_profiles]
        qos = offered_qos(profiles, DEPTH)
        if self._options.reliable:
            qos.reliability = ReliabilityPolicy.RELIABLE
        if topic in STATIC_TOPICS:
            qos.durability = DurabilityPolicy.TRANSIENT_LOCAL
        return qos

    def _await_subscribers(self) -> None:
        for name in self._awaited:
            publisher = self._publishers.get(name)
            others = partial(self._session.node.count_subscribers, name)
            count = publisher.get_subscription_count if publisher else others
            self._session.wait_for(count, f"a subscriber of {name}")

    def _await_listener(self, asking: set[str]) -> None:
        """Wait until DDS has connected whoever answers images, who would miss the first ones."""

        def listens() -> bool:
            return any(self._publishers[name].get_subscription_count() for name in asking)

        def all_connected() -> bool:
            return all(
                publisher.get_subscription_count() >= self._session.node.count_subscribers(name)
                for name, publisher in self._publishers.items()
            )

        if asking:
            self._session.wait_for(listens, f"a subscriber of {' or '.join(sorted(asking))}")
            # Those of incompatible QoS never are.
            self._session.spin_until(all_connected, time.monotonic() + CONNECTED_S)

    def _await_delivery(self) -> None:
        """Reliable messages that were published last may still be under way."""
        until_s = time.monotonic() + ACKNOWLEDGED_S
        for publisher in self._publishers.values():
            self._session.spin_until(
                lambda publisher=publisher: publisher.wait_for_all_acked(Duration(seconds=0.1)),
                until_s,
            )

    def _play_once(self, connections: list[Connection], progress: Progress) -> None:
        """Play the span; bag time stands still while an answer is waited for."""
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
            self._counts[name] += 1
            progress(Played(name, data, (log_ns - self._start_ns) * 1e-9, total_s))
        if self._answers:
            self._answers.await_last()
        self._keep_time(begin_s, begin_s + total_s / self._options.rate)

    def _asking(self, connections: list[Connection]) -> set[str]:
        """Topics whose images are answered."""
        images = {self._names[c.topic] for c in connections if c.msgtype in IMAGE_TYPES}
        return images.intersection(self._awaited) or images

    def _messages(self, connections: list[Connection]) -> Iterator[tuple[Connection, int, bytes]]:
        try:
            yield from self._reader.messages(connections, self._start_ns, self._stop_ns)
        except Exception as error:  # each storage has errors of its own
            raise SourceError(f"{self._bag} is damaged: {error}") from error

    def _keep_time(self, begin_s: float, due_s: float) -> None:
        """Publish the clock until a message is due, which it never passes."""
        while not self._session.stopping.is_set():
            now_s = time.monotonic()
            if self._clock and now_s >= self._tick_s:
                played_s = (min(now_s, due_s) - begin_s) * self._options.rate
                sec, nanosec = divmod(self._start_ns + round(played_s * 1e9), 10**9)
                self._clock.publish(Clock(clock=Time(sec=sec, nanosec=nanosec)))
                self._tick_s = now_s + 1 / self._options.clock_hz
            if now_s >= due_s:
                return
            self._session.spin_for(min(due_s, self._tick_s if self._clock else due_s) - now_s)


class _Answers:
    """What a listener answers to the images."""

    def __init__(self, session: Session, topic: str, answer_s: float):
        self._session, self._topic, self._answer_s = session, topic, answer_s
        self._expected_ns: int | None = None
        self._answered_ns: int | None = None
        self._asked = self._answered = self._unanswered = 0
        self._diagnosis: _Diagnosis | None = None

    def await_publisher(self) -> None:
        """Listen to the topic as soon as somebody publishes it."""
        node, topic = self._session.node, self._topic
        if not self._session.wait_for(
            lambda: node.count_publishers(topic), f"a publisher of {topic}"
        ):
            return
        kind = node.get_publishers_info_by_topic(topic)[0].topic_type
        if not has_header(message_class(kind)):
            raise ConfigError(f"{topic} ({kind}) has no stamp to keep in step with")
        self._diagnosis = _Diagnosis(self._session)
        subscription = node.create_subscription(
            message_class(kind), topic, self._on_answer, DEPTH, raw=True
        )
        self._session.spin_until(subscription.get_publisher_count)

    def _on_answer(self, data: bytes) -> None:
        self._answered_ns = serialized_stamp_ns(data)

    def expect(self, stamp_ns: int) -> None:
        self._expected_ns = stamp_ns
        self._asked += 1

    def await_last(self) -> None:
        """Wait for the answer to the last image.

        One that does not come may be the fault of the image.

        Raises:
            LgcError: several images in a row, or all of them, had no answer.
        """
        if self._expected_ns is None:
            return
        answered = self._session.spin_until(
            lambda: self._answered_ns == self._expected_ns, time.monotonic() + self._answer_s
        )
        self._expected_ns = None
        if self._session.stopping.is_set():
            return
        if answered:
            self._answered += 1
            self._unanswered = 0
            self._diagnosis.forget()
            return
        self._unanswered += 1
        if self._unanswered == MAX_UNANSWERED:
            self._give_up()
        log.warning("%s has not answered an image within %g s", self._topic, self._answer_s)

    def check(self) -> None:
        """At the end of the bag: raises an error if nothing was answered at all."""
        if self._asked and not self._answered and not self._session.stopping.is_set():
            self._give_up()

    def _give_up(self) -> None:
        publishers = self._session.node.get_publishers_info_by_topic(self._topic)
        names = [f"{p.node_namespace.rstrip('/')}/{p.node_name}".lstrip("/") for p in publishers]
        raise LgcError(
            f"{self._topic} answered {self._answered} of {self._asked} images, and none of the "
            f"last {self._unanswered} within {self._answer_s:g} s; /diagnostics says: "
            f"{self._diagnosis.reason(names) or 'nothing about it'}"
        )


class _Diagnosis:
    """What nodes say on /diagnostics while images are not answered."""

    def __init__(self, session: Session) -> None:
        self._faults: dict[str, str] = {}  # number of images that could not be used, by reporter
        self._first: dict[str, str] = {}
        self._last: dict[str, str] = {}
        session.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_report, DEPTH)

    def reason(self, nodes: Collection[str]) -> str:
        """What a node said when it could not use an image for the first time, or else last.

        Later reports may complain of a silence that is the player's, who waits for an answer.
        """
        said = self._last | self._first
        return next((said[name] for name in said if name.partition(":")[0] in nodes), "")

    def forget(self) -> None:
        """An image was answered: what was wrong before does not matter any more."""
        self._first.clear()
        self._last.clear()

    def _on_report(self, message: DiagnosticArray) -> None:
        for status in message.status:
            faults = next((value.value for value in status.values if value.key == "faults"), "0")
            if faults != self._faults.get(status.name, "0"):
                self._first.setdefault(status.name, status.message)
            self._faults[status.name] = faults
            self._last[status.name] = status.message


def _span(reader: AnyReader, bag: Path, options: PlayOptions) -> tuple[int, int]:
    """First bag time, and the one behind the last, in nanoseconds."""
    if not reader.message_count:
        raise SourceError(f"{bag} holds no message")
    start_ns = reader.start_time + round(options.start_offset_s * 1e9)
    stop_ns = reader.end_time
    if options.duration_s is not None:
        stop_ns = min(stop_ns, start_ns + round(options.duration_s * 1e9))
    if start_ns >= reader.end_time:
        raise ConfigError(
            f"{bag} lasts {reader.duration * 1e-9:.1f} s: there is nothing after "
            f"{options.start_offset_s:g} s"
        )
    return start_ns, stop_ns


def _chosen(reader: AnyReader, bag: Path, options: PlayOptions) -> dict[str, list[Connection]]:
    """Where the topics to play are recorded."""
    types = topic_types(reader)
    unknown = [name for name in (*options.topics, *options.remap) if name not in types]
    if unknown:
        raise SourceError(f"{bag} does not hold {', '.join(unknown)}, but {topic_listing(reader)}")
    chosen = options.topics or sorted(types)
    # A recorded clock would contradict the one published here.
    return {
        topic: [c for c in reader.connections if c.topic == topic]
        for topic in chosen
        if not (options.clock_hz and topic == CLOCK_TOPIC)
    }

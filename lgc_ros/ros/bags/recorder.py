"""Record topics to a bag without deserializing them; data is on disk within a second."""

from __future__ import annotations

import logging
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rclpy.clock import Clock, ClockType
from rclpy.subscription import Subscription
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.rosbag2.storage_mcap import McapWriter

from lgc_ros.errors import ConfigError, OutputError, SourceError
from lgc_ros.ros.bags.topics import message_class, recorded_qos, requested_qos, typestore_of
from lgc_ros.ros.session import POLL_S, SILENT_S, Session
from lgc_ros.runtime.output_files import explained, reason
from lgc_ros.sources.interrupted_recording import interruption_hint, partial_recording

log = logging.getLogger(__name__)

DEPTH = 100
# A killed recorder may lose one second; half of that leaves a margin for a busy machine.
FLUSH_S = 0.5

Progress = Callable[[Counter], None]


@dataclass(frozen=True)
class RecordOptions:
    """Options of `record`.

    Attributes:
        topics: names; empty: all topics, also those published later.
        duration_s: stop after this long; None: never.
        idle_s: stop after this long without a message, once the first one arrived; None: never.
    """

    topics: tuple[str, ...] = ()
    duration_s: float | None = None
    idle_s: float | None = None


def record(
    session: Session,
    out: Path,
    options: RecordOptions,
    progress: Progress = lambda counts: None,
    ready: Callable[[], None] = lambda: None,
) -> Counter[str]:
    """Record until the session is stopped or the options end it.

    Args:
        out: a new .mcap file, or a new rosbag2 folder.
        progress: called periodically with the number of messages by topic.
        ready: called once, when every named topic has a connected publisher; without names, when
            all topics published so far are connected.

    Returns:
        Number of messages by topic; 0 for requested topics without messages.

    Raises:
        LgcError: a topic name is invalid, the file cannot be written, or no message arrived.
    """
    for topic in options.topics:
        session.topic_name(topic)  # checked before a file is created
    with bag_writer(out) as writer:
        recorder = Recorder(session, writer, options)
        started_s, is_ready, reported = time.monotonic(), False, None
        while not (session.stopping.is_set() or recorder.is_over):
            if recorder.discover() and not is_ready:
                is_ready = True
                ready()
            session.spin_for(POLL_S)
            is_late = not is_ready and time.monotonic() - started_s > SILENT_S
            if is_late and recorder.awaited != reported:
                reported = recorder.awaited
                log.warning("waiting for a publisher of %s", ", ".join(reported) or "any topic")
            progress(recorder.counts)
        recorder.drain()
        if not recorder.counts.total():
            topics = f"on {', '.join(recorder.counts)}" if recorder.counts else "on any topic"
            raise SourceError(
                f"nothing was recorded: no message arrived {topics}; check the names with "
                "`ros2 topic list`, and ROS_DOMAIN_ID"
            )
    return recorder.counts


class Recorder:
    """Subscribes to topics when their publishers appear, and writes their messages.

    The bag is flushed to disk twice a second while the session spins.

    Args:
        on_message: called with the topic and the bytes of each message.
    """

    def __init__(
        self,
        session: Session,
        writer: BagWriter,
        options: RecordOptions,
        on_message: Callable[[str, bytes], None] = lambda topic, data: None,
    ):
        self._session, self._node = session, session.node
        self._writer, self._options, self._on_message = writer, options, on_message
        self._wanted = {self._node.resolve_topic_name(topic) for topic in options.topics}
        # None if the message type is not installed.
        self._subscriptions: dict[str, Subscription | None] = {}
        self.counts = Counter(dict.fromkeys(sorted(self._wanted), 0))
        self._started_s = time.monotonic()
        self._heard_s = float("inf")
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._node.create_timer(FLUSH_S, writer.flush, clock=steady)

    @property
    def is_over(self) -> bool:
        now_s, options = time.monotonic(), self._options
        return (
            options.duration_s is not None and now_s - self._started_s >= options.duration_s
        ) or (options.idle_s is not None and now_s - self._heard_s >= options.idle_s)

    @property
    def awaited(self) -> list[str]:
        """Topics without a connected publisher."""
        topics = self._wanted or self._subscriptions.keys()
        return sorted(topic for topic in topics if not self._is_settled(topic))

    def _is_settled(self, topic: str) -> bool:
        if topic not in self._subscriptions:
            return False
        subscription = self._subscriptions[topic]
        return subscription is None or subscription.get_publisher_count() > 0

    def discover(self) -> bool:
        """Subscribe to newly published topics; returns whether none is awaited any more."""
        for topic, kinds in self._node.get_topic_names_and_types():
            hidden = any(part.startswith("_") for part in topic.split("/"))
            wanted = topic in self._wanted or not (self._wanted or hidden)
            is_new = topic not in self._subscriptions
            if is_new and wanted and self._node.count_publishers(topic):
                self._subscriptions[topic] = self._subscribe(topic, kinds[0])
        return bool(self._subscriptions) and not self.awaited

    def drain(self) -> None:
        """Write the messages that have already arrived."""
        before = None
        while before != self.counts.total():
            before = self.counts.total()
            self._session.take_waiting()

    def _subscribe(self, topic: str, kind: str) -> Subscription | None:
        try:
            message = message_class(kind)
        except ConfigError as error:
            log.warning("skipping %s: %s", topic, error)
            return None
        profiles = [p.qos_profile for p in self._node.get_publishers_info_by_topic(topic)]
        connection = self._writer.add_connection(
            topic,
            kind,
            typestore=typestore_of(message),
            offered_qos_profiles=[recorded_qos(profile) for profile in profiles],
        )

        def write(data: bytes) -> None:
            self._heard_s = time.monotonic()
            self._writer.write(connection, time.time_ns(), data)
            self.counts[topic] += 1
            self._on_message(topic, data)

        qos = requested_qos(profiles, DEPTH)
        log.info("recording %s", topic)
        return self._node.create_subscription(message, topic, write, qos, raw=True)


class _FlushedMcap(McapWriter):
    """MCAP storage of rosbags, which otherwise buffers up to a megabyte, with a flush."""

    def flush(self) -> None:
        """Close the current chunk and pass it to the operating system."""
        if self.chunk.msgs:
            self.close_chunk()
        self.bio.flush()


class BagWriter(Writer):
    """Writes a rosbag2 (MCAP); `flush` puts all messages so far on disk."""

    STORAGE_PLUGINS = {StoragePlugin.MCAP: _FlushedMcap}  # noqa: RUF012
    storage: _FlushedMcap | None

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, version=9, storage_plugin=StoragePlugin.MCAP)

    def flush(self) -> None:
        if self.storage is not None:
            self.storage.flush()

    def give_up(self) -> bool:
        """Close the file as it is, after a failure to write; returns whether it has messages."""
        storage, self.storage = self.storage, None
        if storage is None:  # complete but for metadata.yaml
            return True
        with suppress(OSError):  # of what is still buffered
            storage.bio.close()
        return bool(storage.chunks)


@contextmanager
def bag_writer(out: Path) -> Iterator[BagWriter]:
    """A writer whose bag is always closed with an index, and removed if it is empty.

    A single file is recorded in a folder `OUT.mcap.part` and renamed once it is complete. What a
    killed process or a full disk leaves there is still readable.

    Raises:
        SourceError: `out` exists.
        OutputError: it cannot be written, or not to its end.
    """
    single = out.suffix == ".mcap"
    folder = partial_recording(out) if single else out
    if out.exists():
        raise SourceError(f"{out} already exists: choose another name, or remove it")
    if folder.exists():
        raise SourceError(f"{interruption_hint(folder)}; choose another name, or remove it")
    writer = BagWriter(folder)
    with explained(folder):
        writer.open()
        writer.flush()
    try:
        yield writer
    except OSError as error:
        raise _failed(writer, folder, out, error) from error
    except BaseException:
        _finish(writer, folder, out)
        raise
    _finish(writer, folder, out)


def _finish(writer: BagWriter, folder: Path, out: Path) -> None:
    """Write the index, and move a single file to its place; an empty bag is removed."""
    is_empty = not any(writer.counts.values())
    try:
        writer.close()
    except OSError as error:
        raise _failed(writer, folder, out, error) from error
    if folder != out and not is_empty:
        (folder / f"{folder.name}.mcap").rename(out)
    if folder != out or is_empty:
        shutil.rmtree(folder)


def _failed(writer: BagWriter, folder: Path, out: Path, error: OSError) -> OutputError:
    """What is left of a bag that could not be written to its end, as an error."""
    if not writer.give_up():
        shutil.rmtree(folder)
        return OutputError(f"nothing was recorded: cannot write {out}: {reason(error)}")
    part = folder.rename(partial_recording(out)) if folder == out else folder
    return OutputError(f"the recording is incomplete: {reason(error)}; {interruption_hint(part)}")

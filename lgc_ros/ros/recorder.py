"""Write topics to a bag: the bytes as they arrive, in a file that is whole however it ends."""

from __future__ import annotations

import logging
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rosbags.rosbag2 import StoragePlugin, Writer

from lgc_ros.errors import ConfigError, SourceError
from lgc_ros.ros.session import PATIENCE_S, Session
from lgc_ros.ros.topics import message_class, recorded_qos, requested_qos, typestore_of

log = logging.getLogger(__name__)

DEPTH = 100

Progress = Callable[[Counter], None]


@dataclass(frozen=True)
class RecordOptions:
    """What is recorded, and when that ends by itself.

    Attributes:
        topics: names; empty: all that are or will be published.
        duration_s: after this long; None: never.
        idle_s: when nothing more arrived for this long after the first message; None: never.
    """

    topics: tuple[str, ...] = ()
    duration_s: float | None = None
    idle_s: float | None = None


def record(
    session: Session,
    out: Path,
    options: RecordOptions,
    progress: Progress = lambda counts: None,
) -> Counter[str]:
    """Record until the session is to stop, or as the options say.

    Args:
        out: a new .mcap file, or a new rosbag2 folder.
        progress: called now and then with the number of messages by topic.

    Returns:
        Number of messages by topic; 0 for those asked for that never came.

    Raises:
        LgcError: a topic cannot be one, or the file cannot be written.
    """
    for topic in options.topics:
        session.topic_name(topic)  # refused before there is a file
    with bag_writer(out) as writer:
        recorder = Recorder(session, writer, options)
        while not (session.stopping.is_set() or recorder.is_over):
            recorder.discover()
            session.spin_for(PATIENCE_S)
            progress(recorder.counts)
        recorder.drain()
    return recorder.counts


class Recorder:
    """Subscribes to topics when their publishers appear, and writes what they say.

    Args:
        heard: called with the topic and the bytes of each message.
    """

    def __init__(
        self,
        session: Session,
        writer: Writer,
        options: RecordOptions,
        heard: Callable[[str, bytes], None] = lambda topic, data: None,
    ):
        self._session, self._node = session, session.node
        self._writer, self._options, self._heard = writer, options, heard
        self._wanted = {self._node.resolve_topic_name(topic) for topic in options.topics}
        self._seen: set[str] = set()
        self.counts = Counter(dict.fromkeys(sorted(self._wanted), 0))
        self._started_s = time.monotonic()
        self._heard_s = float("inf")

    @property
    def is_over(self) -> bool:
        now_s, options = time.monotonic(), self._options
        return (
            options.duration_s is not None and now_s - self._started_s >= options.duration_s
        ) or (options.idle_s is not None and now_s - self._heard_s >= options.idle_s)

    def discover(self) -> bool:
        """Subscribe to what has come to be published; whether all that is wanted now is."""
        for topic, kinds in self._node.get_topic_names_and_types():
            hidden = any(part.startswith("_") for part in topic.split("/"))
            wanted = topic in self._wanted or not (self._wanted or hidden)
            if topic not in self._seen and wanted and self._node.count_publishers(topic):
                self._seen.add(topic)
                self._subscribe(topic, kinds[0])
        return self._wanted <= self._seen

    def drain(self) -> None:
        """Write what has arrived already."""
        before = None
        while before != self.counts.total():
            before = self.counts.total()
            self._session.take_waiting(len(self._seen))

    def _subscribe(self, topic: str, kind: str) -> None:
        try:
            message = message_class(kind)
        except ConfigError as error:
            log.warning("%s is left out: %s", topic, error)
            return
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
            self._heard(topic, data)

        qos = requested_qos(profiles, DEPTH)
        self._node.create_subscription(message, topic, write, qos, raw=True)
        log.info("recording %s", topic)


@contextmanager
def bag_writer(out: Path) -> Iterator[Writer]:
    """A writer whose bag gets its index whatever happens.

    A single file is recorded in a folder `OUT.mcap.part` and has its name once it is whole; what
    a killed process leaves there can still be read.
    """
    single = out.suffix == ".mcap"
    folder = out.with_name(f"{out.name}.part") if single else out
    for path in (out, folder):
        if path.exists():
            raise SourceError(f"{path} already exists: name another file, or remove it")
    writer = Writer(folder, version=9, storage_plugin=StoragePlugin.MCAP)
    try:
        writer.open()
    except OSError as error:
        raise SourceError(f"{folder} cannot be written: {error.strerror}") from error
    try:
        yield writer
    finally:
        writer.close()
        if single:
            (folder / f"{folder.name}.mcap").rename(out)
            shutil.rmtree(folder)

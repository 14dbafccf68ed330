"""Open rosbag2 recordings (mcap and sqlite3) and read the messages of their topics."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from lgc_ros.errors import ConfigError, SourceError
from lgc_ros.images.stamps import stamp_ns
from lgc_ros.sources.bag_checks import MAX_STAMP_NS, check_connections, check_metadata
from lgc_ros.sources.interrupted_recording import check_exists
from lgc_ros.sources.mcap_salvage import SalvagedMcap, is_cut_off

if TYPE_CHECKING:
    from rosbags.highlevel import AnyReader
    from rosbags.interfaces import Connection

log = logging.getLogger(__name__)

STORAGE_SUFFIXES = {".mcap", ".db3"}
REPAIR = {
    ".mcap": "`mcap recover IN.mcap -o OUT.mcap` and ",
    ".db3": "`sqlite3 IN.db3 .recover | sqlite3 OUT.db3` and ",
}

Message = tuple["Connection", int, bytes]
"""A serialized message: its connection, the time it was recorded (ns) and its bytes."""


def is_rosbag(path: Path) -> bool:
    """Whether a path looks like a bag; ROS 1 bags count, so that the error can name them."""
    return bool(storage_files(path)) or path.suffix == ".bag"


def storage_files(path: Path) -> list[Path]:
    """The storage files of a bag in recording order; empty if the path is not a bag."""
    if path.is_dir():
        files = [f for f in path.iterdir() if STORAGE_SUFFIXES & set(f.suffixes) and f.is_file()]
        return sorted(files, key=lambda file: (len(file.name), file.name))
    return [path] if path.suffix in STORAGE_SUFFIXES else []


@contextmanager
def open_bag(path: str | Path, quiet: bool = False) -> Iterator[AnyReader]:
    """Open a rosbag2 folder or storage file; of a truncated file, the complete part is read.

    Logs a warning for a truncated file, unless `quiet`.
    """
    try:
        from rosbags.typesys import Stores, get_typestore

        from lgc_ros.sources.bag_compression import BagReader
    except ImportError as error:
        raise ConfigError(
            "reading bags requires the package rosbags: pip install 'lgc_ros[bags]'"
        ) from error
    path = Path(path)
    files, compression = _checked_files(path)
    store = get_typestore(Stores.ROS2_JAZZY)
    with _readable(path, files, compression, quiet) as (paths, truncated):
        try:
            reader = BagReader(paths, store, compression == "message")
            reader.open()
        except Exception as error:  # each storage raises its own errors
            repair = REPAIR.get(files[0].suffix, "")
            raise SourceError(
                f"{path} is not a readable bag ({error}): copy it again, or repair it with "
                f"{repair}`ros2 bag reindex FOLDER`"
            ) from error
        try:
            if truncated and not reader.message_count:
                raise SourceError(f"{path}: no message was recorded before the file was cut off")
            check_connections(reader, path, store.fielddefs)
            yield reader
        finally:
            reader.close()


@contextmanager
def _readable(
    path: Path, files: list[Path], compression: str, quiet: bool
) -> Iterator[tuple[list[Any], bool]]:
    """What rosbags can read of a bag, and whether a part of it was cut off."""
    from lgc_ros.sources.bag_compression import expand_files

    if compression == "file":
        with TemporaryDirectory(prefix="lgc_bag_") as folder:
            compressed = [file for file in files if file.suffix == ".zstd"]
            yield expand_files(compressed, Path(folder)), False
        return
    truncated = [file for file in files if file.suffix == ".mcap" and is_cut_off(file)]
    if truncated and not quiet:
        names = ", ".join(map(str, truncated))
        log.warning("%s: the recording was cut off; reading the complete part", names)
    if compression or truncated or not (path / "metadata.yaml").exists():
        yield [SalvagedMcap(f) if f in truncated else f for f in files], bool(truncated)
    else:
        yield [path], False


def _checked_files(path: Path) -> tuple[list[Path], str]:
    """The storage files of exactly one ROS 2 bag, and its compression (see `check_metadata`).

    Raises:
        SourceError: this is no bag, several bags, or one with invalid metadata.
    """
    check_exists(path)
    if path.suffix == ".bag":
        raise SourceError(
            f"{path} is a ROS 1 bag: convert it with "
            f"`rosbags-convert --src {path} --dst {path.with_suffix('')}`"
        )
    files = storage_files(path)
    if not files:
        raise SourceError(f"{path} is not a bag: give a rosbag2 folder, an .mcap or a .db3 file")
    if (path / "metadata.yaml").exists():
        return files, check_metadata(path / "metadata.yaml")
    if len({re.sub(r"_\d+$", "", file.stem) for file in files}) > 1:
        names = ", ".join(file.name for file in files)
        raise SourceError(f"{path} contains several bags: give one of {names}")
    return files, ""


def topic_types(reader: AnyReader) -> dict[str, str]:
    """Message type of each topic of an open bag."""
    return {connection.topic: connection.msgtype for connection in reader.connections}


def topic_listing(reader: AnyReader) -> str:
    """Topics with their types, for messages to users."""
    topics = sorted(topic_types(reader).items())
    return ", ".join(f"{topic} ({kind})" for topic, kind in topics) or "no topics"


def topic_connections(
    reader: AnyReader, path: Path, topic: str, types: Collection[str]
) -> list[Connection]:
    """Connections of a topic; SourceError unless it exists with one of these types."""
    found = [connection for connection in reader.connections if connection.topic == topic]
    wanted = [connection for connection in found if connection.msgtype in types]
    if not wanted:
        problem = f"is {found[0].msgtype}, not {' or '.join(types)}" if found else "does not exist"
        raise SourceError(f"{path}: topic {topic} {problem}; the bag has {topic_listing(reader)}")
    return wanted


def decoded(
    reader: AnyReader, connections: list[Connection]
) -> Iterator[tuple[Connection, int, Any]]:
    """Connection, recording time (ns) and content of each message; SourceError if damaged."""
    messages = reader.messages(connections)
    while True:
        try:
            connection, recorded_ns, data = next(messages)
            message = reader.deserialize(data, connection.msgtype)
            if recorded_ns > MAX_STAMP_NS:
                raise ValueError(f"recorded at {recorded_ns} ns")
        except StopIteration:
            return
        except Exception as error:  # each storage raises its own errors
            raise SourceError(
                f"the bag is damaged on {connections[0].topic} ({error!r:.200}): copy it again"
            ) from error
        yield connection, recorded_ns, message


def first_message(reader: AnyReader, connections: list[Connection]) -> Any:
    """The first message of a topic, or None if nothing was recorded on it."""
    for _, _, message in decoded(reader, connections):
        return message
    return None


def header_stamp_ns(message: Any, recorded_ns: int) -> int:
    """The header stamp of a message, or its recording time if the header has no stamp."""
    header_ns = stamp_ns(message.header.stamp) or recorded_ns
    if header_ns > MAX_STAMP_NS:
        raise ValueError(f"{header_ns} ns is not a valid time")
    return header_ns

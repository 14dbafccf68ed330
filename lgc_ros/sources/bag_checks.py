"""Checks that refuse damaged bags early, with an error that names the problem and the remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lgc_ros.errors import SourceError
from lgc_ros.runtime.safe_yaml import YamlError, read_yaml
from lgc_ros.sources.bag_types import READ_TYPES

if TYPE_CHECKING:
    from rosbags.highlevel import AnyReader

# Split recordings list thousands of files.
METADATA_BYTES = 8 << 20
# Larger counts and stamps occur in damaged files only.
MAX_MESSAGES = 2**48
MAX_STAMP_NS = 2**63 - 1
# Values of metadata.yaml that rosbags requires, and their types.
METADATA_TYPES = {
    ("version",): int,
    ("storage_identifier",): str,
    ("relative_file_paths",): list,
    ("message_count",): int,
    ("duration", "nanoseconds"): int,
    ("starting_time", "nanoseconds_since_epoch"): int,
    ("topics_with_message_count",): list,
}
TOPIC_TYPES = {
    ("topic_metadata", "name"): str,
    ("topic_metadata", "type"): str,
    ("topic_metadata", "serialization_format"): str,
    ("message_count",): int,
}


def check_metadata(path: Path) -> str:
    """Check metadata.yaml for values that would make rosbags fail later.

    Returns:
        What is compressed: `file`, `message`, or an empty string.

    Raises:
        SourceError: a value is missing or invalid.
    """
    try:
        content = read_yaml(path, METADATA_BYTES)
        information = _entry(content, ("rosbag2_bagfile_information",), dict)
        for keys, kind in METADATA_TYPES.items():
            _entry(information, keys, kind)
        if "files" in information:
            _entry(information, ("files",), list)
        for topic in information["topics_with_message_count"]:
            for keys, kind in TOPIC_TYPES.items():
                _entry(topic, keys, kind)
        return _compression(information)
    except (OSError, YamlError, TypeError) as error:
        raise SourceError(
            f"{path} is not valid ({error}): restore it with `ros2 bag reindex {path.parent}`, "
            "or remove it to read the recording without it"
        ) from error


def check_connections(reader: AnyReader, path: Path, ros: Mapping[str, Any]) -> None:
    """Raise SourceError for impossible message counts and for types that differ from ROS.

    `ros` holds the field definitions of ROS by message type.
    """
    for connection in reader.connections:
        kind = connection.msgtype
        if not 0 <= connection.msgcount <= MAX_MESSAGES:
            raise SourceError(
                f"{path} is damaged: it claims {connection.msgcount} messages on "
                f"{connection.topic}; copy it again"
            )
        if kind in READ_TYPES and not _same_fields(kind, reader.typestore.fielddefs, ros):
            raise SourceError(
                f"{path} is damaged: its definition of {kind} ({connection.topic}) differs from "
                "that of ROS; copy it again"
            )


def _compression(information: Mapping[str, Any]) -> str:
    """`compression_mode`, if there is one; rosbag2 writes NONE or an empty string otherwise."""
    mode, codec = (
        _entry(information, (key,), str).lower() if information.get(key) else ""
        for key in ("compression_mode", "compression_format")
    )
    if mode in ("", "none"):
        return ""
    if mode not in ("file", "message") or codec != "zstd":
        raise TypeError(f"the compression '{mode}' with '{codec}' is not known")
    return mode


def _entry(content: Any, keys: tuple[str, ...], kind: type) -> Any:
    """The value under nested keys; TypeError unless it is of this type."""
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    if type(content) is not kind:
        raise TypeError(f"{'.'.join(keys)} is {content!r:.80}, not of type {kind.__name__}")
    return content


def _same_fields(kind: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    """Whether a message type and its nested types have the expected field names and types."""
    if kind not in found or found[kind][1] != expected[kind][1]:
        return False
    nested = re.findall(r"'(\w+/msg/\w+)'", repr(expected[kind][1]))
    return all(_same_fields(name, found, expected) for name in nested)

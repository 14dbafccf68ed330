"""Message classes, definitions and QoS of topics of any type."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Any

from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from rosbags.interfaces import (
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from lgc_ros.errors import ConfigError

# Types whose names differ between generated Python classes and .msg files.
_MSG_NAMES = {"boolean": "bool", "float": "float32", "double": "float64", "octet": "byte"}
_HEADER = "std_msgs/Header"
# "No limit" in rmw.
_FOREVER = QosTime(2**31 - 1, 2**32 - 1)


def message_class(kind: str) -> Any:
    """The class of a message type such as `sensor_msgs/msg/Image`.

    Raises:
        ConfigError: the type is not installed.
    """
    package, _, name = kind.partition("/msg/")
    try:
        return getattr(importlib.import_module(f"{package}.msg"), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the message type {kind} is not installed: apt install "
            f"ros-$ROS_DISTRO-{package.replace('_', '-')}, or source the workspace with it"
        ) from error


def has_header(message: Any) -> bool:
    """Whether messages of this class begin with a std_msgs/Header."""
    return next(iter(message.get_fields_and_field_types().values()), "") == _HEADER


def typestore_of(message: Any) -> Typestore:
    """The definitions of a message class and its nested types, as stored in bags."""
    store = get_typestore(Stores.EMPTY)
    pending = [_kind(message)]
    while pending:
        kind = pending.pop()
        if kind in store.fielddefs:
            continue
        fields = message_class(kind).get_fields_and_field_types()
        lines = [f"{_msg_type(declared)} {name}" for name, declared in fields.items()]
        store.register(get_types_from_msg("\n".join(lines), kind))
        inner = (re.match(r"(?:sequence<)?(\w+)/(\w+)", declared) for declared in fields.values())
        pending += [f"{match[1]}/msg/{match[2]}" for match in inner if match]
    return store


def _kind(message: Any) -> str:
    return f"{message.__module__.partition('.')[0]}/msg/{message.__name__}"


def _msg_type(declared: str) -> str:
    """Type in .msg syntax: `sequence<double, 3>` is `float64[<=3]`."""
    if match := re.fullmatch(r"sequence<(.+?)(?:, (\d+))?>", declared):
        return _msg_type(match[1]) + (f"[<={match[2]}]" if match[2] else "[]")
    if match := re.fullmatch(r"(.+)\[(\d+)\]", declared):
        return f"{_msg_type(match[1])}[{match[2]}]"
    if match := re.fullmatch(r"(w?string)<(\d+)>", declared):
        return f"{match[1]}<={match[2]}"
    return _MSG_NAMES.get(declared, declared)


def offered_qos(profiles: Sequence[Qos], depth: int) -> QoSProfile:
    """The strongest of the profiles that the publishers of a topic offered."""
    reliable = not profiles or any(p.reliability != QosReliability.BEST_EFFORT for p in profiles)
    latched = any(p.durability == QosDurability.TRANSIENT_LOCAL for p in profiles)
    return _profile(reliable, latched, depth)


def requested_qos(profiles: Sequence[QoSProfile], depth: int) -> QoSProfile:
    """The strongest profile that is compatible with all publishers."""
    reliable = all(p.reliability == ReliabilityPolicy.RELIABLE for p in profiles)
    latched = all(p.durability == DurabilityPolicy.TRANSIENT_LOCAL for p in profiles)
    return _profile(reliable, latched, depth)


def _profile(reliable: bool, latched: bool, depth: int) -> QoSProfile:
    return QoSProfile(
        depth=depth,
        reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
    )


def recorded_qos(profile: QoSProfile) -> Qos:
    """The profile of a publisher, as stored in bags."""
    histories = {
        HistoryPolicy.KEEP_LAST: QosHistory.KEEP_LAST,
        HistoryPolicy.KEEP_ALL: QosHistory.KEEP_ALL,
    }
    return Qos(
        histories.get(profile.history, QosHistory.UNKNOWN),
        profile.depth,
        QosReliability[profile.reliability.name],
        QosDurability[profile.durability.name],
        _FOREVER,
        _FOREVER,
        QosLiveliness.AUTOMATIC,
        _FOREVER,
        False,
    )

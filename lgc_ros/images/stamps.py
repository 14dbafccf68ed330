"""Stamps of ROS messages in integer nanoseconds, from objects and from serialized bytes."""

from __future__ import annotations

import struct
from typing import Protocol


class Stamp(Protocol):
    """A builtin_interfaces/Time, whichever library made it."""

    sec: int
    nanosec: int


def stamp_ns(stamp: Stamp) -> int:
    """Nanoseconds since the epoch; 0 if the stamp was not set."""
    return stamp.sec * 10**9 + stamp.nanosec


def serialized_stamp_ns(data: bytes) -> int:
    """The stamp of a serialized message whose first field is a header; 0 if it is too short."""
    if len(data) < 12:
        return 0
    # CDR: four bytes, of which the second gives the byte order, then the fields.
    sec, nanosec = struct.unpack_from("<iI" if data[1] & 1 else ">iI", data, 4)
    return sec * 10**9 + nanosec

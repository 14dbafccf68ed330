"""Stamps in integer nanoseconds: of ROS messages, as objects or serialized; the nearest one."""

from __future__ import annotations

import struct
from typing import Protocol

import numpy as np


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


def nearest_stamp(stamps_ns: np.ndarray, target_ns: int, window_ns: int) -> int | None:
    """Index of the increasing stamp nearest to `target_ns`; None if none is within the window."""
    after = int(np.searchsorted(stamps_ns, target_ns))
    neighbors = range(max(after - 1, 0), min(after + 1, len(stamps_ns)))
    distances = {index: abs(int(stamps_ns[index]) - target_ns) for index in neighbors}
    nearest = min(distances, key=lambda index: distances[index], default=None)
    return nearest if nearest is not None and distances[nearest] <= window_ns else None

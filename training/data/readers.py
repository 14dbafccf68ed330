"""Data readers by name: each takes a path and its options and yields a Scene."""

from __future__ import annotations

from collections.abc import Callable

from training.data.raw import read_raw
from training.data.scene import Scene

READERS: dict[str, Callable[..., Scene]] = {
    "raw": read_raw,
}

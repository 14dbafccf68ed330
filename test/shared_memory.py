"""Shared memory of Fast DDS that killed processes leave behind: up to 140 MB of memory each."""

import re
from pathlib import Path

MEMORY = Path("/dev/shm")
SEGMENT = re.compile(r"fastrtps_[0-9a-f]{16}")


def segments():
    """Names of the segments that hold messages."""
    return {path.name for path in MEMORY.glob("fastrtps_*") if SEGMENT.fullmatch(path.name)}


def remove_abandoned(names):
    """Remove those of these segments that no process has mapped."""
    mapped = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            mapped.update(SEGMENT.findall(maps.read_text()))
        except OSError:  # the process has ended, or is another user's
            continue
    for name in names - mapped:
        (MEMORY / name).unlink(missing_ok=True)

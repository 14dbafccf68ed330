"""What an interrupted recording leaves behind: its name, and how to use it."""

from __future__ import annotations

from pathlib import Path

from lgc_ros.errors import SourceError


def partial_recording(out: Path) -> Path:
    """The folder of a recording until it is complete and renamed to `out`."""
    return out.with_name(f"{out.name}.part")


def interruption_hint(part: Path) -> str:
    """How to use the remains of an interrupted recording, for messages to users."""
    return (
        f"an interrupted recording left {part}: it reads like any other bag, e.g. `lgc run {part}`"
    )


def check_exists(path: Path) -> None:
    """Raise SourceError unless the path exists; names the remains of an interrupted recording."""
    if path.exists():
        return
    part = partial_recording(path)
    remedy = interruption_hint(part) if part.exists() else "check the path"
    raise SourceError(f"{path} does not exist; {remedy}")

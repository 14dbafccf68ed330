"""What the campaign did, for the table at its end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields

# Fraction of the messages, cycles, kills and jumps of a full campaign. 0.01 is a quick look.
SCALE = float(os.environ.get("LGC_CAMPAIGN_SCALE", "1"))


def scaled(count: int, at_least: int = 1) -> int:
    """How many of `count` this run does."""
    return max(round(count * SCALE), at_least)


@dataclass
class Row:
    """One phase.

    Attributes:
        malformed: malformed messages that the node has received.
        examined: those of them that it has looked into; not replaced by a newer image before.
        good: good images sent between them.
        answered: odometry messages received from the node.
        starts: processes started.
        hangs: processes that Fast DDS kept from leaving (eProsima/Fast-DDS#6513).
        rss_before_mb, rss_after_mb, rss_peak_mb: resident memory of the node.
        seconds: duration.
    """

    phase: str
    malformed: int = 0
    examined: int = 0
    good: int = 0
    answered: int = 0
    starts: int = 0
    hangs: int = 0
    rss_before_mb: float = 0.0
    rss_after_mb: float = 0.0
    rss_peak_mb: float = 0.0
    seconds: float = 0.0


@dataclass
class Summary:
    rows: list[Row] = field(default_factory=list)

    @contextmanager
    def phase(self, name: str) -> Iterator[Row]:
        """A row that is filled in while the phase runs, and kept however it ends."""
        row, start_s = Row(name), time.monotonic()
        self.rows.append(row)
        try:
            yield row
        finally:
            row.seconds = time.monotonic() - start_s

    def table(self) -> str:
        """Markdown; what does not apply to a phase is empty."""
        names = [column.name for column in fields(Row)]
        titles = [
            name.removesuffix("_mb").replace("rss_", "RSS ").replace("_", " ") for name in names
        ]
        lines = [titles, ["---", *["--:"] * (len(names) - 1)]]
        lines += [[_cell(name, getattr(row, name)) for name in names] for row in self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(name: str, value: str | float) -> str:
    if isinstance(value, str):
        return value
    unit = " MB" if name.endswith("_mb") else " s" if name == "seconds" else ""
    return f"{value:,.0f}{unit}" if value or name == "hangs" else ""


SUMMARY = Summary()

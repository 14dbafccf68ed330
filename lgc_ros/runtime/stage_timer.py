"""Time by stage."""

from __future__ import annotations

import time


class StageTimer:
    """Milliseconds since the last lap, by stage."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = {}
        self._now = time.perf_counter()

    def lap(self, stage: str, part_ms: float | None = None) -> None:
        """Add the time since the last lap to a stage, or a known part of it."""
        now = time.perf_counter()
        elapsed_ms = 1e3 * (now - self._now) if part_ms is None else part_ms
        self._now += elapsed_ms * 1e-3
        self.ms[stage] = self.ms.get(stage, 0.0) + elapsed_ms

"""Wall time of the stages of a frame or an image pair."""

from __future__ import annotations

import time


class StageTimer:
    """Stopwatch that assigns the time since the last lap to a stage.

    Attributes:
        ms: milliseconds by stage; laps of the same stage add up.
    """

    def __init__(self) -> None:
        self.ms: dict[str, float] = {}
        self._last_lap_s = time.perf_counter()

    def lap(self, stage: str) -> None:
        """Assign the time since the last lap to a stage."""
        now_s = time.perf_counter()
        self.ms[stage] = self.ms.get(stage, 0.0) + 1e3 * (now_s - self._last_lap_s)
        self._last_lap_s = now_s

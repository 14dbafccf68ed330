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

    def lap(self, stage: str, part_ms: float | None = None) -> None:
        """Assign the time since the last lap to a stage, or only `part_ms` of it.

        What `part_ms` leaves goes to the stage of the next lap.
        """
        now_s = time.perf_counter()
        elapsed_ms = 1e3 * (now_s - self._last_lap_s) if part_ms is None else part_ms
        self._last_lap_s += elapsed_ms * 1e-3
        self.ms[stage] = self.ms.get(stage, 0.0) + elapsed_ms

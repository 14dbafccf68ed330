"""Means of named values over an interval of steps."""

from __future__ import annotations

import math


class RunningMeans:
    """Means of named values since they were last taken; non-finite values are left out."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, int]] = {}

    def add(self, values: dict[str, float]) -> None:
        for name, value in values.items():
            if math.isfinite(value):
                total, count = self._sums.get(name, (0.0, 0))
                self._sums[name] = total + value, count + 1

    def take(self) -> dict[str, float]:
        """The means so far; starts a new interval."""
        sums, self._sums = self._sums, {}
        return {name: total / count for name, (total, count) in sums.items()}

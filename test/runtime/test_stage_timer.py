"""The stage timer splits the time of a frame among its stages, without gaps."""

import time

import pytest

from lgc_ros.runtime import stage_timer
from lgc_ros.runtime.stage_timer import StageTimer


@pytest.fixture
def advance(monkeypatch):
    """A clock that stands still until it is advanced by so many seconds."""
    now_s = [100.0]
    monkeypatch.setattr(stage_timer.time, "perf_counter", lambda: now_s[0])

    def advance(seconds):
        now_s[0] += seconds

    return advance


def test_each_lap_gets_the_time_since_the_last_one(advance):
    timer = StageTimer()
    advance(0.002)
    timer.lap("features")
    advance(0.003)
    timer.lap("match")
    assert timer.ms == pytest.approx({"features": 2, "match": 3})


def test_laps_of_the_same_stage_add_up(advance):
    timer = StageTimer()
    for _ in range(3):
        advance(0.001)
        timer.lap("match")
    assert timer.ms == pytest.approx({"match": 3})


def test_the_stages_add_up_to_the_wall_time():
    start_s = time.perf_counter()
    timer = StageTimer()
    timer.lap("features")
    timer.lap("match")
    assert 0 <= sum(timer.ms.values()) <= 1e3 * (time.perf_counter() - start_s)

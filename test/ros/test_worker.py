"""Threads that take the newest item, or one call after another."""

import threading

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from ros.processes import DEADLINE_S

from lgc_ros.ros.worker import LatestItemWorker, SerialThread


def test_a_busy_worker_processes_the_newest_item_and_counts_dropped_ones():
    started, go_on, seen, done = (threading.Event(), threading.Event(), [], threading.Event())

    def work(item):
        started.set()
        go_on.wait()
        seen.append(item)
        if item == 4:
            done.set()

    worker = LatestItemWorker(work, "worker")
    worker.put(0)
    assert started.wait(DEADLINE_S)
    for item in (1, 2, 3, 4):
        worker.put(item)
    go_on.set()
    assert done.wait(DEADLINE_S)
    worker.stop()
    assert seen == [0, 4]
    assert worker.dropped == 3


def test_a_call_runs_in_the_background_and_the_next_one_waits_for_it():
    prepared_next, ended = threading.Event(), []
    behind = SerialThread("behind")

    def first():
        assert prepared_next.wait(DEADLINE_S), "the caller is held up"
        ended.append("first")

    behind.wait()
    behind.call(first)
    assert not ended
    prepared_next.set()
    behind.call(lambda: ended.append("second"))
    assert ended[0] == "first"
    behind.stop()
    assert ended == ["first", "second"]

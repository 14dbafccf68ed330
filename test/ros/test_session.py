"""A node survives a failing callback, misses no message, and ends although DDS hangs."""

import sys
import threading

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from rclpy.context import Context
from rclpy.duration import Duration
from rclpy.node import Node
from ros.processes import completed, free_domain
from std_msgs.msg import String

from lgc_ros.ros.odometry_node import spin
from lgc_ros.ros.session import session


def test_a_callback_that_fails_does_not_end_the_node(monkeypatch):
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    context, stopping, calls = Context(), threading.Event(), []
    context.init(domain_id=free_domain())
    node = Node("node", context=context)

    def fail_and_stop():
        calls.append(1)
        if len(calls) == 3:
            stopping.set()
        raise ValueError("unforeseen")

    node.create_timer(0.01, fail_and_stop)
    spin(node, stopping)
    node.destroy_node()
    context.try_shutdown()
    assert len(calls) == 3


def test_messages_that_have_arrived_are_taken_although_timers_are_due(monkeypatch):
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    heard = []
    with session("listener", free_domain()) as ros:
        ros.node.create_timer(1e-9, lambda: None)
        ros.node.create_subscription(String, "note", heard.append, 10)
        publisher = ros.node.create_publisher(String, "note", 10)
        ros.spin_until(publisher.get_subscription_count)
        publisher.publish(String(data="a note"))
        assert publisher.wait_for_all_acked(Duration(seconds=60))
        ros.take_waiting()
    assert len(heard) == 1


STUCK = """
from lgc_ros.ros import session

session.SHUTDOWN_S = 0.5
with session.session("stuck") as ros:
    ros.node.destroy_node = lambda: any(iter(int, 1))
"""


def test_a_process_whose_dds_shutdown_hangs_ends_with_an_error(tmp_path):
    done = completed(tmp_path, [sys.executable, "-c", STUCK])
    assert done.returncode == 1
    assert "session.py" in done.stderr
    assert "in shut_down" in done.stderr

"""The pose of the camera on the robot is looked up, awaited, never assumed."""

import threading

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from ros.motion import T_BC, state
from ros.processes import DEADLINE_S
from std_msgs.msg import Header

from lgc_ros.errors import ConfigError
from lgc_ros.ros import compat
from lgc_ros.ros.messages import (
    base_motion,
    transform_message,
)
from lgc_ros.ros.mounting import Mounting


def test_a_missing_mounting_is_an_error_not_identity(monkeypatch):
    monkeypatch.setattr(compat, "tf2_ros", None)
    mounting = Mounting(None, "base_link", None)
    with pytest.raises(ConfigError, match="tf2_ros is not installed"):
        mounting.T_bc("front")
    with pytest.raises(ConfigError, match=r"header\.frame_id of the images is empty"):
        mounting.T_bc("")
    np.testing.assert_array_equal(Mounting(None, "front", None).T_bc("front"), np.eye(4))
    np.testing.assert_array_equal(Mounting(None, "base_link", T_BC).T_bc("front"), T_BC)


class LateTf:
    """Stands for tf2_ros, which pip lacks: a buffer that learns the transform a little later.

    test_tf.py shows the same with the real one, where it is installed.
    """

    class TransformException(Exception):
        pass

    def __init__(self):
        self.asked, self.is_here = threading.Event(), threading.Event()

    def Buffer(self):
        return self

    def TransformListener(self, buffer, node):
        return None

    def can_transform(self, target, source, time):
        self.asked.set()
        return self.is_here.is_set()

    def lookup_transform(self, target, source, time):
        if not self.is_here.is_set():
            raise self.TransformException(f"{target} does not exist")
        motion = base_motion(state(), T_BC, np.eye(6))
        return transform_message(Header(frame_id=target), source, motion, False)


def test_an_image_waits_for_a_late_transform_for_a_limited_time(monkeypatch):
    tf = LateTf()
    monkeypatch.setattr(compat, "tf2_ros", tf)
    monkeypatch.setattr("lgc_ros.ros.mounting.WAIT_S", DEADLINE_S)
    mounting, stopping = Mounting(None, "base_link", None), threading.Event()
    waiting = threading.Thread(target=mounting.wait_for, args=("front", stopping))
    waiting.start()
    assert tf.asked.wait(DEADLINE_S)
    tf.is_here.set()
    waiting.join(DEADLINE_S)
    assert not waiting.is_alive()
    assert mounting.T_bc("front").shape == (4, 4)

    tf.is_here.clear()
    stopping.set()
    mounting.wait_for("rear", stopping)  # returns, since the node is to stop
    monkeypatch.setattr("lgc_ros.ros.mounting.WAIT_S", 0.05)
    mounting.wait_for("left", threading.Event())
    with pytest.raises(ConfigError, match=r"no transform from .* to camera frame 'left'"):
        mounting.T_bc("left")

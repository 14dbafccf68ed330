"""The code that one image runs through, from topic `image` to `~/odometry`: as documented."""

import re
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

import rclpy
from nav_msgs.msg import Odometry
from rclpy.executors import SingleThreadedExecutor
from ros.processes import FRAME, OPTIONS, free_domain, image_message, info_message
from sensor_msgs.msg import CameraInfo, Image

import lgc_ros
from lgc_ros.ros import compat
from lgc_ros.ros.odometry_node import OdometryNode

PACKAGE = Path(lgc_ros.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
FALLBACK = "ros/message_filters_fallback.py"
PARAMETERS = OPTIONS | {"base_frame": FRAME, "background_mapping": False}
DEADLINE_S = 60.0


class Trace:
    """A profile function that collects the files of the package in which functions are called."""

    def __init__(self):
        self.files, self.calls_up = set(), set()

    def __call__(self, frame, event, argument):
        if event == "call" and (name := module(frame)):
            self.files.add(name)
            if name.startswith("ros/") and called_by(frame, "odometry/"):
                self.calls_up.add(f"{name} {frame.f_code.co_name}")


def module(frame):
    """Path of a frame's file within the package; empty if it is elsewhere."""
    path = Path(frame.f_code.co_filename)
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else ""


def called_by(frame, folder):
    while frame := frame.f_back:
        if module(frame).startswith(folder):
            return True
    return False


@pytest.fixture
def node(monkeypatch):
    """An active node in this process."""
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    words = [word for name, value in PARAMETERS.items() for word in ("-p", f"{name}:={value}")]
    rclpy.init(args=["--ros-args", *words], domain_id=free_domain())
    node = OdometryNode()
    yield node
    node.stop()
    node.destroy_node()
    rclpy.shutdown()


def traced(node, frames):
    """A trace for each of these frames, which the node has answered one by one."""
    trace, traces = Trace(), []
    threading.setprofile(lambda *event: trace(*event))  # of the threads that start from now on
    assert node.start()
    threading.setprofile(None)
    robot, answers = rclpy.create_node("robot"), []
    images = robot.create_publisher(Image, "image", 10)
    infos = robot.create_publisher(CameraInfo, "camera_info", 10)
    robot.create_subscription(Odometry, "lgc_odometry/odometry", answers.append, 10)
    executors = [SingleThreadedExecutor(), SingleThreadedExecutor()]
    for executor, part in zip(executors, (node, robot), strict=True):
        executor.add_node(part)

    def spin_until(done):
        until_s = time.monotonic() + DEADLINE_S
        while not done():
            assert time.monotonic() < until_s
            sys.setprofile(trace)
            executors[0].spin_once(timeout_sec=0.02)
            sys.setprofile(None)
            executors[1].spin_once(timeout_sec=0.02)

    topics = ("image", "camera_info")
    spin_until(lambda: all(robot.count_subscribers(topic) for topic in topics))
    spin_until(lambda: robot.count_publishers("lgc_odometry/odometry"))
    spin_until(lambda: images.get_subscription_count() and infos.get_subscription_count())
    for count, frame in enumerate(frames, 1):
        trace = Trace()
        infos.publish(info_message(frame))
        images.publish(image_message(frame))
        spin_until(lambda count=count: len(answers) == count)
        traces.append(trace)
    robot.destroy_node()
    return traces


def documented():
    """The files that the page lists, and their number as it says."""
    section = PAGE.read_text().partition("## The path of one image")[2].partition("\n## ")[0]
    number = int(re.search(r"(\d+)\s+files", section)[1])
    steps = section.partition("In the executor thread")[2].partition("A keyframe adds")[0]
    return number, set(re.findall(r"`(\w+/\w+\.py)`", steps))


def test_an_image_runs_through_the_files_that_the_architecture_page_lists(node, short_walk):
    # Once the map is initialized, optical flow without a new keyframe is the shortest path.
    trace = min(traced(node, short_walk), key=lambda trace: len(trace.files))
    number, files = documented()
    if "message_filters" not in compat.ABSENT:
        files.remove(FALLBACK)
    assert trace.files == files
    assert len(files | {FALLBACK}) == number
    assert not trace.calls_up, "odometry calls back into ROS"

"""Metric scale from speed, wheel odometry and depth."""

import re

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from diagnostic_msgs.msg import DiagnosticStatus
from nav_msgs.msg import Odometry
from ros.node.connected import (
    QUEUE,
    RATE_HZ,
    SECOND_NS,
    T_BC,
    changed,
    diagnosis,
    distance_m,
    fresh_report,
    says,
    values,
)
from ros.processes import stamp
from sensor_msgs.msg import Image

from lgc_ros.ros.compat import CvBridge
from lgc_ros.ros.messages import pose_message
from lgc_ros.sources.synthetic import SyntheticSource


def true_distance_m(frames):
    start, end = (frames[i].T_wc @ np.linalg.inv(T_BC) for i in (0, -1))
    return np.linalg.norm(end[:3, 3] - start[:3, 3])


def test_constant_speed_gives_metric_scale(robot, camera, frames):
    with changed(robot, scale__speed_mps=0.4, scale__source="constant_speed"):
        at_half_speed = distance_m([camera.show(frame) for frame in frames])
    assert at_half_speed == pytest.approx(true_distance_m(frames) / 2, rel=0.15)


WHEELS_PER_FRAME = 5


def wheel_odometry(camera, frames, source):
    """Messages around each image that say twice the truth, so that chance cannot be right."""
    fine = SyntheticSource(
        "walk",
        WHEELS_PER_FRAME * len(frames),
        rate_hz=WHEELS_PER_FRAME * RATE_HZ,
        camera=source.camera,
        world=source.world,
    )
    messages = []
    for index in range(len(fine)):
        T_ob = fine.T_wc(index) @ np.linalg.inv(T_BC)
        T_ob[:3, 3] *= 2
        period_ns = SECOND_NS / WHEELS_PER_FRAME / RATE_HZ
        message = Odometry()
        message.header.stamp = stamp(
            frames[0].stamp_ns + round((index - 2.3) * period_ns) + camera.delay_ns
        )
        message.pose.pose = pose_message(T_ob)
        messages.append(message)
    return messages


def assert_meters_from_the_first_step(answers, frames):
    """Twice the truth; before that, a position that is held and owns up to it."""
    # The first two answers come before there are landmarks.
    first = next(i for i in range(2, len(answers)) if answers[i].pose.covariance[0] < 1.0)
    assert first < len(answers) - 1
    for i in range(2, len(answers)):
        distance = distance_m(answers[: i + 1])
        if i < first:
            assert distance < 0.1 * true_distance_m(frames[: i + 1])
            assert answers[i].pose.covariance[0] > 10**2
        else:
            assert distance == pytest.approx(2 * true_distance_m(frames[: i + 1]), rel=0.1)
            assert answers[i].pose.covariance[0] < 0.1


@pytest.mark.parametrize("late", [False, True], ids=["from the second image", "always late"])
def test_late_wheel_odometry_gives_metric_scale_from_the_first_motion(
    robot, camera, frames, source, late
):
    """The first image comes before all messages of the wheels, or every image before its own."""
    with changed(robot, scale__source="odom"):
        wheels = robot.speak(Odometry, "odom", QUEUE)
        messages, answers = wheel_odometry(camera, frames, source), []
        for frame in frames:
            around, messages = messages[:WHEELS_PER_FRAME], messages[WHEELS_PER_FRAME:]
            if late:
                answers.append(camera.show(frame))
            if late or frame is not frames[0]:
                for message in around:
                    wheels.publish(message)
            if not late:
                answers.append(camera.show(frame))
        report = fresh_report(robot)
        robot.node.destroy_publisher(wheels)
    assert_meters_from_the_first_step(answers, frames)
    assert values(report)["scale_known"].endswith("%")
    assert "no scale" not in report.message


def test_late_depth_gives_metric_scale_from_the_first_motion(robot, camera, frames):
    with changed(robot, scale__source="depth"):
        depths = robot.speak(Image, "depth", QUEUE)
        answers = []
        for index, frame in enumerate(frames):
            if index >= 3:
                message = CvBridge().cv2_to_imgmsg((2000 * frame.depth).astype(np.uint16), "16UC1")
                message.header.stamp = stamp(camera.later(frame).stamp_ns)
                depths.publish(message)
            answers.append(camera.show(frame))
        robot.node.destroy_publisher(depths)
    assert_meters_from_the_first_step(answers, frames)


def test_wheel_odometry_gives_metric_scale(robot, camera, frames, source):
    with changed(robot, scale__source="odom"):
        wheels = robot.speak(Odometry, "odom", QUEUE)
        for message in wheel_odometry(camera, frames, source):
            wheels.publish(message)
        distance = distance_m([camera.show(frame) for frame in frames[1:]])
        report = values(fresh_report(robot))
        robot.node.destroy_publisher(wheels)
    assert distance == pytest.approx(2 * true_distance_m(frames[1:]), rel=0.1)
    assert report["scale"] == "odom"
    assert int(report["odom_messages"]) > 0
    assert report["scale_known"].endswith("%")


def test_depth_gives_metric_scale(robot, camera, frames):
    with changed(robot, scale__source="depth"):
        depths = robot.speak(Image, "depth", QUEUE)
        answers = []
        for frame in frames:
            message = CvBridge().cv2_to_imgmsg((2000 * frame.depth).astype(np.uint16), "16UC1")
            message.header.stamp = stamp(camera.later(frame).stamp_ns)
            depths.publish(message)
            answers.append(camera.show(frame))
        robot.node.destroy_publisher(depths)
    assert distance_m(answers) == pytest.approx(2 * true_distance_m(frames), rel=0.1)


@pytest.mark.parametrize("topic", ["odom", "depth"])
def test_a_missing_scale_input_is_reported_and_odometry_continues(robot, camera, topic):
    with changed(robot, scale__source=topic):
        no_scale = f"no scale from {topic}, positions are "
        missing = says(no_scale, f"no publisher on /{topic}")
        status = diagnosis(robot, missing, camera.show_another)
        assert status.level == DiagnosticStatus.WARN
        assert values(status)["scale_known"] == "no"
        kind = Odometry if topic == "odom" else Image
        publisher = robot.speak(kind, topic, QUEUE)

        def another_clock():
            answer = camera.show_another()
            assert answer.header.frame_id == "odom"
            message = kind()
            message.header.stamp = stamp(camera.delay_ns)
            publisher.publish(message)

        never = says(no_scale, f"the stamps of /image and /{topic} never match: they differ by ")
        diagnosis(robot, never, another_clock)
        robot.node.destroy_publisher(publisher)
    lines = re.findall(rf"{no_scale}.*: no publisher on", robot.log)
    assert len(lines) == len(set(lines)), "each line once"
    assert lines

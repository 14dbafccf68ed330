"""Wheel odometry and depth at the time of an image."""

import threading

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from nav_msgs.msg import Odometry
from ros.motion import T_BC, T_WC, rigid
from ros.processes import stamp

from lgc_ros.images.frame import Frame
from lgc_ros.ros import compat
from lgc_ros.ros.messages import (
    pose_message,
)
from lgc_ros.ros.scale_input import DepthImages, WheelOdometry


def odom(now_ns, T, **changes):
    message = Odometry()
    message.header.stamp = stamp(now_ns)
    message.pose.pose = pose_message(T)
    for name, value in changes.items():
        setattr(message.pose.pose.orientation, name, value)
    return message


def frame_at(now_ns, shape=(48, 64)):
    return Frame(0, now_ns, np.zeros(shape, np.uint8))


def test_wheel_odometry_is_interpolated_at_the_stamp_of_the_image():
    wheels = WheelOdometry()
    start, end = rigid((0, 0, 0.2), (1.0, 2.0, 0.0)), rigid((0, 0, 0.6), (2.0, 4.0, 0.0))
    wheels.add(odom(10**9, start))
    wheels.add(odom(10**9 + 10**8, end))
    same, T_oc = wheels.measure(frame_at(10**9 + 25 * 10**6), T_BC)
    T_oc = T_oc()
    assert same.depth is None
    expected = rigid((0, 0, 0.3), (1.25, 2.5, 0.0)) @ T_BC
    np.testing.assert_allclose(T_oc, expected, atol=1e-9)


def test_an_image_waits_for_wheel_odometry_of_its_stamp():
    wheels = WheelOdometry()
    wheels.add(odom(10**9, T_WC))
    found = []
    asking = threading.Thread(
        target=lambda: found.append(wheels.measure(frame_at(10**9 + 10**7), np.eye(4))[1]())
    )
    asking.start()
    wheels.add(odom(10**9 + 10**8, T_WC))
    asking.join()
    np.testing.assert_allclose(found[0], T_WC, atol=1e-9)


def test_late_wheel_odometry_is_available_once_it_arrives():
    wheels = WheelOdometry()
    wheels.add(odom(10**9, T_WC))
    T_oc = wheels.measure(frame_at(10**9 + 10**7), T_BC)[1]
    assert T_oc() is None
    wheels.add(odom(10**9 + 10**8, T_WC))
    np.testing.assert_allclose(T_oc(), T_WC @ T_BC, atol=1e-9)
    assert wheels.met_s == float("-inf")
    wheels.measure(frame_at(10**9 + 2 * 10**8), T_BC)
    assert wheels.met_s > 0, "the image before has found its counterpart"


def test_wheel_odometry_is_not_extrapolated_nor_interpolated_over_long_gaps():
    wheels = WheelOdometry()
    assert wheels.measure(frame_at(10**9), T_BC)[1]() is None
    wheels.add(odom(10 * 10**9, T_WC))
    wheels.add(odom(20 * 10**9, T_WC))
    wheels.add(odom(20 * 10**9 + 10**8, T_WC))
    for now_s in (9, 15, 22):
        assert wheels.measure(frame_at(now_s * 10**9), T_BC)[1]() is None
    assert wheels.met_s == float("-inf")
    wheels.add(odom(10 * 10**9, T_WC))
    assert wheels.measure(frame_at(20 * 10**9), T_BC)[1]() is None, "stamps have jumped back"


def test_invalid_wheel_odometry_is_reported_and_ignored():
    wheels = WheelOdometry()
    wheels.add(odom(10**9, T_WC, x=float("nan")))
    assert "has an invalid pose" in wheels.fault
    wheels.add(odom(10**9, T_WC, x=0.0, y=0.0, z=0.0, w=0.0))
    assert wheels.measure(frame_at(10**9), T_BC)[1]() is None
    wheels.add(odom(10**9, T_WC))
    assert wheels.fault == ""


def depth_message(now_ns, depth):
    encoding = {"uint8": "bgr8", "uint16": "16UC1", "float32": "32FC1"}[depth.dtype.name]
    message = compat.CvBridge().cv2_to_imgmsg(depth, encoding)
    message.header.stamp = stamp(now_ns)
    return message


@pytest.mark.parametrize(
    "depth", [np.full((48, 64), 1500, np.uint16), np.full((48, 64), 1.5, np.float32)]
)
def test_depth_of_the_same_stamp_is_in_meters(depth):
    images = DepthImages(slop_s=0.0)
    images.add(depth_message(10**9, depth))
    frame, _ = images.measure(frame_at(10**9), T_BC)
    np.testing.assert_allclose(frame.depth, 1.5)
    assert images.measure(frame_at(10**9 + 1), T_BC)[0].depth is None
    nearby = DepthImages(slop_s=0.01)
    nearby.add(depth_message(10**9, depth))
    assert nearby.measure(frame_at(10**9 + 10**7), T_BC)[0].depth is not None


@pytest.mark.parametrize(
    ("depth", "fault"),
    [
        (np.ones((24, 32), np.float32), "registered to the image"),
        (np.ones((48, 64, 3), np.uint8), "is not a depth encoding"),
    ],
)
def test_depth_of_the_wrong_size_or_type_is_reported_and_ignored(depth, fault):
    images = DepthImages(slop_s=0.0)
    images.add(depth_message(10**9, depth))
    assert images.measure(frame_at(10**9), T_BC)[0].depth is None
    assert fault in images.fault

"""Parameters of a running node: descriptions, refused values, and changes that take effect."""

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from nav_msgs.msg import Path
from rcl_interfaces.msg import ParameterType
from rcl_interfaces.srv import DescribeParameters, ListParameters
from ros.node.connected import (
    NODE,
    changed,
    diagnosis,
    is_origin,
    matrix,
    set_parameter,
    values,
)

from lgc_ros.ros.node_parameters import default_parameters


def test_all_parameters_are_described_with_their_range(robot):
    names = robot.call(ListParameters, f"{NODE}/list_parameters").result.names
    own = {*default_parameters(), "base_to_camera"}
    assert own <= set(names)
    request = {"names": sorted(own)}
    reply = robot.call(DescribeParameters, f"{NODE}/describe_parameters", **request)
    numbers = {
        ParameterType.PARAMETER_INTEGER: "integer_range",
        ParameterType.PARAMETER_DOUBLE: "floating_point_range",
    }
    for descriptor in reply.descriptors:
        assert descriptor.description, descriptor.name
        if descriptor.type in numbers:
            assert getattr(descriptor, numbers[descriptor.type]), f"range of {descriptor.name}"
    read_only = {descriptor.name for descriptor in reply.descriptors if descriptor.read_only}
    assert read_only == {
        "autostart",
        "profile",
        "image_transport",
        "rectified",
        "approximate_sync",
        "sync_slop_s",
        "sync_queue",
    }


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("method", "ransack", "did you mean 'ransac'"),
        ("features", "sifft", "sift"),
        ("features", "xfeat", "xfeat needs an extractor model"),
        ("extractor_model", "xfeat.onnx", "sift takes no extractor model"),
        ("method", 3, "type"),
        ("max_keypoints", 1, "range"),
        ("keyframe_overlap", 2.0, "range"),
        ("autostart", False, "read-only"),
        ("odom_frame", "base_link", "two different frames"),
        ("base_frame", "odom", "two different frames"),
        ("base_to_camera", [1.0, 2.0], "7 numbers"),
        ("base_to_camera", [0.0] * 7, "must have length 1"),
        ("base_to_camera", "ahead", "7 numbers"),
        ("window", 1000, "max_keyframes (40)"),
        ("scale.source", "wheels", "none, constant_speed, odom, depth, camera_height"),
        ("scale.source", "constant_speed", "needs a positive speed_mps"),
    ],
)
def test_an_invalid_value_is_refused_with_the_reason(robot, name, value, reason):
    refused = set_parameter(robot, name, value)
    assert not refused.successful
    assert reason in refused.reason


@pytest.mark.parametrize("name", ["base_to_camera", "max_keypoints", "profile", "use_sim_time"])
def test_a_parameter_cannot_be_deleted_and_can_be_set_afterwards(robot, camera, name):
    """`ros2 param delete` sets a parameter to no type at all."""
    deleted = set_parameter(robot, name, None)
    assert not deleted.successful
    if name == "base_to_camera":
        assert "base_to_camera cannot be deleted: set another value" in deleted.reason
    with changed(robot, path_length=5):
        pass
    camera.show_another()


def test_changed_frames_and_mounting_take_effect(robot, camera, frames):
    ahead = [1.0, 0.0, 0.2, -0.5, 0.5, -0.5, 0.5]
    with changed(robot, odom_frame="world", base_frame="robot", base_to_camera=ahead):
        camera.show(frames[0])
        moved = camera.show(frames[2])
    assert (moved.header.frame_id, moved.child_frame_id) == ("world", "robot")
    camera.reset()
    camera.show(frames[0])
    T_ob, shift = matrix(camera.show(frames[2]).pose.pose), np.eye(4)
    shift[0, 3] = 0.9
    expected = shift @ T_ob @ np.linalg.inv(shift)
    np.testing.assert_allclose(matrix(moved.pose.pose), expected, atol=1e-9)


def test_a_changed_path_length_takes_effect(robot, camera):
    paths = camera.connect(Path, "path")
    with changed(robot, path_length=2):
        last = [camera.show_another() for _ in range(3)][-1]
        robot.spin_until(lambda: paths and paths[-1].header.stamp == last.header.stamp)
        assert len(paths[-1].poses) == 2
    with changed(robot, path_length=0):
        without = [camera.show_another().header.stamp for _ in range(2)]
    last = camera.show_another()
    robot.spin_until(lambda: paths[-1].header.stamp == last.header.stamp)
    assert not [path for path in paths if path.header.stamp in without]


def test_changed_odometry_settings_reset_odometry(robot, camera, frames):
    for frame in frames[:2]:
        camera.show(frame)
    with changed(robot, max_keypoints=100):
        assert is_origin(camera.show(frames[2]))
        diagnosis(
            robot, lambda s: 0 < int(values(s).get("matches", 0)) <= 100, camera.show_another
        )


def test_switching_background_mapping_resets_odometry(robot, camera, frames):
    for frame in frames[:2]:
        camera.show(frame)
    with changed(robot, background_mapping=True):
        assert is_origin(camera.show(frames[2]))

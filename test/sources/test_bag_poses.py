"""Ground truth and wheel odometry of bags: topics, files, static transforms."""

import numpy as np
import pytest
from bag_messages import (
    camera_topics,
    geometry,
    header,
    make,
    pose_message,
)
from sequences import START_NS, STEP_NS, pose
from transforms3d.quaternions import mat2quat

from lgc_ros.errors import ConfigError, SourceError
from lgc_ros.sources import open_source


@pytest.mark.parametrize("topic", ["/ground_truth", "/robot/ground_truth/state", "/mocap"])
def test_ground_truth_is_not_mistaken_for_wheel_odometry(record, camera, tmp_path, caplog, topic):
    caplog.set_level("INFO")
    (tmp_path / "gt.txt").write_text(f"{START_NS / 1e9:.9f} 0 0 0 0 0 0 1\n")
    kind = "nav_msgs/msg/Odometry"
    poses = [(topic, START_NS, pose_message(kind, pose(9)))]
    gt = "/mocap" if topic == "/mocap" else tmp_path / "gt.txt"
    with pytest.raises(SourceError, match="has 0 topics with wheel odometry"):
        open_source(record(camera_topics(camera) + poses), gt=gt, odom_topic="auto")
    poses.append(("/odom", START_NS, pose_message(kind, pose(2))))
    bag = record(camera_topics(camera) + poses, name="both")
    frame = next(iter(open_source(bag, gt=gt, odom_topic="auto")))
    np.testing.assert_allclose(frame.T_oc, pose(2), atol=1e-9)
    assert "images from /cam/image_raw, camera from /cam/camera_info" in caplog.text
    assert f"wheel odometry from /odom, ground truth from {gt}" in caplog.text


@pytest.mark.parametrize(
    "kind",
    [
        "geometry_msgs/msg/PoseStamped",
        "geometry_msgs/msg/PoseWithCovarianceStamped",
        "geometry_msgs/msg/TransformStamped",
        "nav_msgs/msg/Odometry",
    ],
)
def test_ground_truth_may_be_any_pose_topic(record, camera, kind):
    poses = []
    for i in np.arange(0, 5.5, 0.5):
        stamp_ns = START_NS + round(i * STEP_NS)
        poses.append(("/mocap", stamp_ns, pose_message(kind, pose(i), stamp_ns)))
    bag = record(camera_topics(camera) + poses)
    assert all(frame.T_wc is None for frame in open_source(bag))
    for frame in open_source(bag, gt="/mocap"):
        np.testing.assert_allclose(frame.T_wc, pose(frame.index), atol=1e-9)


def test_ground_truth_may_be_a_file_with_poses_of_another_body(record, camera, tmp_path):
    bag = record(camera_topics(camera))
    T_bc = pose(4)
    lines = []
    for i in range(6):
        T_wb = pose(i) @ np.linalg.inv(T_bc)
        w, x, y, z = mat2quat(T_wb[:3, :3])
        stamp_ns = START_NS + i * STEP_NS
        numbers = " ".join(f"{n:.12f}" for n in (*T_wb[:3, 3], x, y, z, w))
        lines.append(f"{stamp_ns // 10**9}.{stamp_ns % 10**9:09d} {numbers}\n")
    (tmp_path / "gt.txt").write_text("".join(lines))
    for frame in open_source(bag, gt=tmp_path / "gt.txt", T_bc=T_bc):
        np.testing.assert_allclose(frame.T_wc, pose(frame.index), atol=1e-9)
    with pytest.raises(ConfigError, match=r"T_bc must be a 4x4 matrix, .* \(3,\)"):
        open_source(bag, T_bc=[1, 2, 3])


def test_static_transforms_map_body_poses_to_camera_poses(record, camera, caplog):
    kind = "nav_msgs/msg/Odometry"
    T_base_mast, T_mast_camera = pose(2), pose(5)
    transforms = [
        make(
            "geometry_msgs/msg/TransformStamped",
            header(START_NS, parent),
            child,
            make("geometry_msgs/msg/Transform", *geometry(T, "Vector3")),
        )
        for parent, child, T in (
            ("base_link", "mast", T_base_mast),
            ("mast", "camera", T_mast_camera),
        )
    ]
    tf_static = ("/tf_static", START_NS, make("tf2_msgs/msg/TFMessage", transforms))
    stamps_ns = [START_NS + i * STEP_NS for i in range(6)]
    odometry = [
        ("/odom", stamp_ns, pose_message(kind, pose(i), stamp_ns, "base_link"))
        for i, stamp_ns in enumerate(stamps_ns)
    ]
    bag = record([tf_static, *camera_topics(camera), *odometry])
    for frame in open_source(bag, gt="/odom"):
        expected = pose(frame.index) @ T_base_mast @ T_mast_camera
        np.testing.assert_allclose(frame.T_wc, expected, atol=1e-9)
    assert not caplog.records
    bag = record([*camera_topics(camera), *odometry], name="loose")
    np.testing.assert_allclose(list(open_source(bag, gt="/odom"))[3].T_wc, pose(3), atol=1e-9)
    assert "ground truth has frame 'base_link', images have frame 'camera'" in caplog.text

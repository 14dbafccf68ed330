"""The messages that the node publishes."""

import sys

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import PoseStamped, PoseWithCovarianceStamped
from nav_msgs.msg import Odometry, Path
from rclpy.qos import DurabilityPolicy, ReliabilityPolicy
from ros.node.connected import (
    NODE,
    OVERRIDES,
    QUEUE,
    RATE_HZ,
    T_BC,
    ShownCamera,
    changed,
    diagnosis,
    fresh_report,
    heard,
    matrix,
    says,
    stamp_of,
    values,
)
from ros.processes import (
    FRAME,
    OPTIONS,
    REPEATABLE,
    running_node,
    running_process,
    stamp,
)
from sensor_msgs.msg import Image
from visualization_msgs.msg import Marker, MarkerArray

from lgc_ros.filter.backends.engines import ENGINES
from lgc_ros.images.encoding import image_from_message
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.visual_odometry import VisualOdometry


@pytest.mark.usefixtures("with_and_without_pipeline")
def test_poses_equal_those_of_the_library_in_the_base_frame(camera, frames):
    odometry = VisualOdometry(OdometryOptions(**OPTIONS))
    for frame in frames:
        message, state = camera.show(frame), odometry.process(camera.later(frame))
        assert (message.header.frame_id, message.child_frame_id) == ("odom", "base_link")
        expected = T_BC @ state.T_wc @ np.linalg.inv(T_BC)
        np.testing.assert_allclose(matrix(message.pose.pose), expected, atol=1e-9)
    assert state.status == "ok"


def test_poses_with_an_extractor_file_equal_those_of_the_library(tmp_path, frames, heads_model):
    chosen = {
        "features": "own",
        "extractor_model": str(heads_model(trackable=True, contrast=100.0)),
    }
    odometry = VisualOdometry(OdometryOptions(**OPTIONS | chosen))
    parameters = OVERRIDES | {"sync_queue": QUEUE, "base_frame": FRAME, **chosen}
    with running_node(tmp_path, **parameters) as robot:
        camera = ShownCamera(robot, frames)
        camera.reset()
        for frame in frames:
            message, state = camera.show(frame), odometry.process(camera.later(frame))
            np.testing.assert_allclose(matrix(message.pose.pose), state.T_wc, atol=1e-9)
        assert state.status == "ok"
        assert values(fresh_report(robot))["features"] == "own"


def test_covariance_is_finite_and_grows_and_velocity_matches_the_poses(camera, frames):
    answers = [camera.show(frame) for frame in frames]
    spread = [np.array(m.pose.covariance).reshape(6, 6) for m in answers]
    for covariance in spread + [np.reshape(m.twist.covariance, (6, 6)) for m in answers]:
        np.testing.assert_array_equal(covariance, covariance.T)
        np.linalg.cholesky(covariance)
    assert np.trace(spread[-1]) > np.trace(spread[0])
    moved = np.linalg.inv(matrix(answers[-2].pose.pose)) @ matrix(answers[-1].pose.pose)
    twist = answers[-1].twist
    linear = twist.twist.linear
    velocity = np.array([linear.x, linear.y, linear.z])
    in_base = moved[:3, :3].T @ moved[:3, 3] * RATE_HZ
    np.testing.assert_allclose(velocity, in_base, atol=0.02 * np.linalg.norm(in_base))
    # Without meters, the speed may be wrong by itself, but for the swing of the base.
    of_velocity = np.reshape(twist.covariance, (6, 6))[:3, :3]
    assert velocity @ of_velocity @ velocity > 0.5 * (velocity @ velocity) ** 2


def test_pose_path_and_relative_pose_agree_with_the_odometry(robot, camera, frames):
    camera.connect(PoseWithCovarianceStamped, "pose")
    camera.connect(PoseStamped, "relative_pose")
    camera.connect(Path, "path")
    answers = [camera.show(frame) for frame in frames]
    last_ns = camera.later(frames[-1]).stamp_ns
    pose = heard(robot, PoseWithCovarianceStamped, "pose", last_ns)
    assert pose.pose == answers[-1].pose
    path = heard(robot, Path, "path", last_ns)
    assert [p.pose for p in path.poses] == [m.pose.pose for m in answers[-3:]], "path_length is 3"
    relative = heard(robot, PoseStamped, "relative_pose", last_ns)
    assert relative.header.frame_id == FRAME
    assert np.linalg.norm(matrix(relative.pose)[:3, 3]) == pytest.approx(1)


def test_markers_and_matches_image_are_in_the_camera_frame(robot, camera, frames):
    inliers = camera.connect(MarkerArray, "inliers")
    camera.connect(Image, "matches_image")
    for frame in frames[:3]:
        camera.show(frame)
    last_ns = camera.later(frames[2]).stamp_ns
    picture = heard(robot, Image, "matches_image", last_ns)
    assert (picture.width, picture.height, picture.encoding) == (320, 240, "bgr8")
    assert not np.array_equal(image_from_message(picture), frames[2].image)

    def newest():
        return next((a for a in inliers if a.markers[0].header.stamp == stamp(last_ns)), None)

    markers = {marker.ns: marker for marker in robot.spin_until(newest, "markers").markers}
    assert markers.keys() == {"inliers", "rejected", "keyframes"}
    points = markers["inliers"]
    assert points.action == Marker.ADD
    assert points.header.frame_id == FRAME
    assert len(points.points) == len(points.colors) > 30
    assert all(point.z > 0 for point in points.points), "landmarks are in front of the camera"


def test_odometry_is_published_before_its_views(robot, camera, frames):
    """RViz hides markers of a stamp that TF does not reach yet."""
    kinds = {
        "odometry": Odometry,
        "pose": PoseWithCovarianceStamped,
        "inliers": MarkerArray,
        "matches_image": Image,
        "path": Path,
    }
    sent_ns = {topic: {} for topic in kinds}

    def keep(topic):
        def on_message(message, info):
            header = (message.markers[0] if topic == "inliers" else message).header
            sent_ns[topic][stamp_of(header)] = info["source_timestamp"]

        return on_message

    subscriptions = [
        robot.node.create_subscription(kind, f"{NODE}/{topic}", keep(topic), QUEUE)
        for topic, kind in kinds.items()
    ]

    def all_heard():
        camera.show_another()
        return all(sent_ns.values())

    robot.spin_until(all_heard, "a message of each topic")
    last_ns = stamp_of(camera.show_another().header)
    robot.spin_until(lambda: all(last_ns in sent for sent in sent_ns.values()), "all of a frame")
    order = sorted(kinds, key=lambda topic: sent_ns[topic][last_ns])
    assert set(order[:2]) == {"odometry", "pose"}
    for subscription in subscriptions:
        robot.node.destroy_subscription(subscription)


UNDRAWABLE = """
import sys
from lgc_ros.ros import odometry_node, outputs

def fail(*_):
    raise ValueError("no ink")

outputs.matches_picture = fail
sys.exit(odometry_node.main())
"""


def test_a_view_that_cannot_be_drawn_does_not_affect_odometry(tmp_path, frames):
    settings = OPTIONS | OVERRIDES | {"base_frame": FRAME}
    words = [word for name, value in settings.items() for word in ("-p", f"{name}:={value}")]
    command = [sys.executable, "-c", UNDRAWABLE, "--ros-args", *words]
    with running_process(tmp_path, command) as robot:
        pictures = robot.listen(Image, f"{NODE}/matches_image")
        paths = robot.listen(Path, f"{NODE}/path")
        camera = ShownCamera(robot, frames)
        unseen = says("matches_image", "no ink")
        status = diagnosis(robot, unseen, camera.show_another)
        assert status.level == DiagnosticStatus.WARN, "there is odometry all the same"
        assert not pictures
        assert paths, "other views are drawn"
        assert robot.log.count("no ink") == 2, "one line, and one traceback"


# After each reset, the first landmarks are moved to the camera: they determine no pose.
UNSUPPORTED = """
import sys
from lgc_ros.odometry.visual_odometry import VisualOdometry
from lgc_ros.ros import odometry_node

process, reset = VisualOdometry.process, VisualOdometry.reset

def process_and_move(self, *arguments):
    state = process(self, *arguments)
    if state.status == "ok" and not self.moved:
        center = self.map.keyframes[-1].center
        self.map.points = center + 1e-7 * (self.map.points - center)
        self.moved = True
    return state

def reset_and_note(self):
    self.moved = False
    reset(self)

VisualOdometry.moved = False
VisualOdometry.process, VisualOdometry.reset = process_and_move, reset_and_note
sys.exit(odometry_node.main())
"""


def test_a_pose_without_support_is_not_tracked_and_odometry_recovers(tmp_path, frames):
    settings = OPTIONS | REPEATABLE | OVERRIDES | {"base_frame": FRAME, "tracking": "match"}
    words = [word for name, value in settings.items() for word in ("-p", f"{name}:={value}")]
    command = [sys.executable, "-c", UNSUPPORTED, "--ros-args", *words]
    with running_process(tmp_path, command) as robot:
        camera = ShownCamera(robot, frames)
        camera.reset()
        tracked, held = [camera.show(frame) for frame in frames[:3]][1:]
        assert values(fresh_report(robot))["status"] == "few_matches"
        assert held.pose.pose == tracked.pose.pose
        assert np.diag(np.reshape(held.twist.covariance, (6, 6))).min() >= 1e4, "unknown"
        assert held.pose.covariance[0] < 10.0, "not that of a pose that nothing determines"
        recovered = [camera.show(frame) for frame in frames[3:]][-1]
        assert values(fresh_report(robot))["status"] == "ok"
        assert recovered.twist.covariance[0] < 1e3


TYPES = {
    f"{NODE}/odometry": "nav_msgs/msg/Odometry",
    f"{NODE}/pose": "geometry_msgs/msg/PoseWithCovarianceStamped",
    f"{NODE}/relative_pose": "geometry_msgs/msg/PoseStamped",
    f"{NODE}/path": "nav_msgs/msg/Path",
    f"{NODE}/inliers": "visualization_msgs/msg/MarkerArray",
    f"{NODE}/matches_image": "sensor_msgs/msg/Image",
    "/diagnostics": "diagnostic_msgs/msg/DiagnosticArray",
}


def test_outputs_are_reliable_and_qos_overrides_change_only_their_topic(robot):
    for topic, kind in TYPES.items():
        (output,) = robot.node.get_publishers_info_by_topic(topic)
        assert output.topic_type == kind
        qos = output.qos_profile
        assert qos.reliability == ReliabilityPolicy.RELIABLE
        kept = topic == f"{NODE}/pose"
        assert qos.durability == DurabilityPolicy[("VOLATILE", "TRANSIENT_LOCAL")[kept]]


def test_a_working_node_reports_rates_and_counts(camera, robot):
    def at_work(status):
        report = values(status)
        working = float(report.get("fps", 0)) > 0 and int(report.get("keyframes", 0)) > 0
        return status.level == DiagnosticStatus.OK and working

    status = diagnosis(robot, at_work, camera.show_another)
    report = values(status)
    assert status.name == "lgc_odometry: odometry"
    assert status.hardware_id == "/image"
    assert status.message == report["status"]
    assert int(report["frames"]) >= 2
    assert int(report["inliers"]) > 30
    assert {"dropped", "faults"} <= report.keys()
    assert all(float(report[f"{stage}_ms"]) > 0 for stage in ("flow", "latency"))
    by_path = [int(report[f"frames_by_{path}"]) for path in ("flow", "match")]
    assert sum(by_path) == int(report["frames"])
    assert (report["tracking"], report["mapper"]) == ("flow", "idle")
    assert (report["method"], report["features"]) == (OPTIONS["method"], "sift")
    assert int(report["inliers"]) <= int(report["keypoints"]) <= OPTIONS["max_keypoints"]
    assert report["device"] == "cpu"


def test_diagnostics_report_model_engine_and_actual_device_of_the_filter(camera, robot):
    with changed(robot, device="cuda:7", method="cn"):
        report = values(diagnosis(robot, lambda s: "model" in values(s), camera.show_another))
    assert report["method"] == "cn"
    assert report["model"].startswith("sift")
    assert report["engine"] in ENGINES
    assert report["device"] == "cpu", "there is no eighth GPU here"

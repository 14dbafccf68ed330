"""The node as its users meet it: a process of its own, topics, services, parameters, signals."""

import itertools
import signal
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import PoseStamped, PoseWithCovarianceStamped
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from nav_msgs.msg import Odometry, Path
from rcl_interfaces.srv import DescribeParameters, SetParameters
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile, ReliabilityPolicy, qos_profile_sensor_data
from ros.processes import FRAME, OPTIONS, image_message, info_message, running_node, stamp
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from std_srvs.srv import Empty
from transforms3d.quaternions import quat2mat
from visualization_msgs.msg import Marker, MarkerArray

from lgc_ros.camera import Camera
from lgc_ros.odometry import OdometryOptions, VisualOdometry
from lgc_ros.ros.compat import CvBridge
from lgc_ros.sources.synthetic import SyntheticSource

# A camera that looks along the robot's x axis, 0.1 m ahead of its base and 0.2 m above.
BASE_TO_CAMERA = "[0.1, 0.0, 0.2, -0.5, 0.5, -0.5, 0.5]"
T_BC = np.array([[0, 0, 1, 0.1], [-1, 0, 0, 0], [0, -1, 0, 0.2], [0, 0, 0, 1.0]])
NODE = "/lgc_odometry"
HOUR_NS = 3600 * 10**9
RELIABLE_INPUT = {
    f"qos_overrides./{topic}.subscription.reliability": "reliable"
    for topic in ("image", "camera_info")
}


@pytest.fixture(scope="module")
def frames(walk):
    """Views of a walk, five a second."""
    K = np.array([[262.0, 0, 159.5], [0, 262.0, 119.5], [0, 0, 1]])
    camera = Camera.from_K(K, 320, 240)
    return list(SyntheticSource("walk", 5, rate_hz=5.0, camera=camera, world=walk.world))


@pytest.fixture(scope="module")
def connected(tmp_path_factory, frames):
    """A camera that loses nothing, and a node that answers it, for most tests."""
    folder = tmp_path_factory.mktemp("node")
    parameters = RELIABLE_INPUT | {"base_to_camera": BASE_TO_CAMERA, "path_length": 3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        with running_node(folder, **parameters) as robot:
            yield ShownCamera(robot, frames)


@pytest.fixture
def camera(connected):
    connected.begin_anew()
    return connected


@pytest.fixture
def robot(connected):
    return connected.robot


class ShownCamera:
    """Shows frames to the node, each at its own time, and waits for the answers."""

    def __init__(self, robot, frames):
        self.robot = robot
        self.delay_ns = 0
        self._views = itertools.cycle(frames[:2])
        self.plug_in()
        self._shown_until_heard(robot.listen(Odometry, f"{NODE}/odometry"))
        self.show_another()  # answered after all that were sent before

    def plug_in(self):
        self.images = self.robot.speak(Image, "image")
        self.infos = self.robot.speak(CameraInfo, "camera_info")

    def begin_anew(self):
        """The next frame is the origin, and later than any before."""
        self.robot.call(Empty, f"{NODE}/reset")
        self.delay_ns += HOUR_NS

    def connect(self, kind, topic):
        """Messages of a topic, once the node knows that someone listens."""
        messages = self.robot.listen(kind, f"{NODE}/{topic}")

        def arrived():
            self.show_another()
            return messages

        self.robot.spin_until(arrived, topic)
        self.begin_anew()
        return messages

    def later(self, frame):
        return replace(frame, stamp_ns=frame.stamp_ns + self.delay_ns)

    def send(self, image, info):
        self.infos.publish(info)
        self.images.publish(image)

    def show(self, frame) -> Odometry:
        frame = self.later(frame)
        self.send(image_message(frame), info_message(frame))
        return heard(self.robot, Odometry, "odometry", frame.stamp_ns)

    def show_another(self) -> Odometry:
        self.delay_ns += 10**9
        return self.show(next(self._views))

    def _shown_until_heard(self, messages):
        def arrived():
            self.delay_ns += 10**9
            frame = self.later(next(self._views))
            self.send(image_message(frame), info_message(frame))
            self.robot.executor.spin_once(timeout_sec=0.5)
            return messages

        self.robot.spin_until(arrived, "the first answer")


def heard(robot, kind, topic, stamp_ns):
    """The message of that stamp."""
    messages = robot.listen(kind, f"{NODE}/{topic}")

    def find():
        return next((m for m in messages if m.header.stamp == stamp(stamp_ns)), None)

    return robot.spin_until(find, f"{topic} of {stamp_ns}")


def diagnosis(robot, accept):
    """The next diagnostic status that is accepted."""
    messages = robot.listen(DiagnosticArray, "/diagnostics")
    messages.clear()

    def find():
        return next((s for message in messages for s in message.status if accept(s)), None)

    return robot.spin_until(find, "such a diagnosis")


def set_parameter(robot, name, value):
    parameter = Parameter(name, value=value).to_parameter_msg()
    return robot.call(SetParameters, f"{NODE}/set_parameters", parameters=[parameter]).results[0]


def matrix(pose):
    T = np.eye(4)
    q, p = pose.orientation, pose.position
    T[:3, :3], T[:3, 3] = quat2mat([q.w, q.x, q.y, q.z]), (p.x, p.y, p.z)
    return T


def test_poses_are_those_of_the_library_in_the_frame_of_the_base(camera, frames):
    odometry = VisualOdometry(OdometryOptions(**OPTIONS))
    for frame in frames:
        message, state = camera.show(frame), odometry.process(camera.later(frame))
        assert (message.header.frame_id, message.child_frame_id) == ("odom", "base_link")
        expected = T_BC @ state.T_wc @ np.linalg.inv(T_BC)
        np.testing.assert_allclose(matrix(message.pose.pose), expected, atol=1e-9)
    assert state.status == "ok"


def test_covariance_is_finite_and_grows_and_velocity_is_that_of_the_poses(camera, frames):
    answers = [camera.show(frame) for frame in frames]
    spread = [np.array(m.pose.covariance).reshape(6, 6) for m in answers]
    assert np.linalg.eigvalsh(spread[-1]).min() > 0
    assert np.trace(spread[-1]) > np.trace(spread[0])
    moved = np.linalg.inv(matrix(answers[-2].pose.pose)) @ matrix(answers[-1].pose.pose)
    twist = answers[-1].twist
    velocity = [twist.twist.linear.x, twist.twist.linear.y, twist.twist.linear.z]
    in_base = moved[:3, :3].T @ moved[:3, 3] / 0.2
    np.testing.assert_allclose(velocity, in_base, atol=0.02 * np.linalg.norm(in_base))
    assert np.linalg.eigvalsh(np.array(twist.covariance).reshape(6, 6)).min() > 0


def test_pose_path_and_relative_pose_say_the_same(robot, camera, frames):
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


def test_markers_and_picture_are_in_the_camera_frame(robot, camera, frames):
    inliers = camera.connect(MarkerArray, "inliers")
    camera.connect(Image, "matches_image")
    for frame in frames[:3]:
        camera.show(frame)
    last_ns = camera.later(frames[2]).stamp_ns
    picture = heard(robot, Image, "matches_image", last_ns)
    assert (picture.width, picture.height, picture.encoding) == (320, 240, "bgr8")
    assert not np.array_equal(CvBridge().imgmsg_to_cv2(picture), frames[2].image)

    def newest():
        return next((a for a in inliers if a.markers[0].header.stamp == stamp(last_ns)), None)

    markers = {marker.ns: marker for marker in robot.spin_until(newest, "markers").markers}
    assert markers.keys() == {"inliers", "rejected", "keyframes"}
    points = markers["inliers"]
    assert points.action == Marker.ADD
    assert points.header.frame_id == FRAME
    assert len(points.points) == len(points.colors) > 30
    assert all(point.z > 0 for point in points.points), "landmarks are in front of the camera"


def test_reset_begins_anew(camera, frames):
    camera.show(frames[0])
    moved = matrix(camera.show(frames[1]).pose.pose)
    assert not np.allclose(moved, np.eye(4), atol=1e-3)
    camera.robot.call(Empty, f"{NODE}/reset")
    np.testing.assert_allclose(matrix(camera.show(frames[2]).pose.pose), np.eye(4), atol=1e-9)


def test_a_looped_bag_resets_once_and_says_so(robot, camera, frames):
    said = robot.log.count("stamps jumped back by")
    for frame in frames[:2]:
        camera.show(frame)
    camera.delay_ns -= HOUR_NS // 2
    np.testing.assert_allclose(matrix(camera.show(frames[0]).pose.pose), np.eye(4), atol=1e-9)
    assert not np.allclose(matrix(camera.show(frames[1]).pose.pose), np.eye(4), atol=1e-3)
    assert robot.log.count("stamps jumped back by") == said + 1


def test_another_calibration_resets_and_says_so(robot, camera, frames):
    for frame in frames[:2]:
        camera.show(frame)
    wider = Camera.from_K(frames[0].camera.K - np.diag([10.0, 10.0, 0.0]), 320, 240)
    answer = camera.show(replace(frames[2], camera=wider))
    np.testing.assert_allclose(matrix(answer.pose.pose), np.eye(4), atol=1e-9)
    assert "camera_info has changed" in robot.log


FAULTS = {
    "unknown encoding": (lambda image, info: setattr(image, "encoding", "foo8"), "'foo8'"),
    "no data": (lambda image, info: image.data.__delitem__(slice(None)), "brings 0 bytes"),
    "wrong step": (lambda image, info: setattr(image, "step", 100), "step 100"),
    "no size": (lambda image, info: setattr(image, "width", 0), "is empty"),
    "not calibrated": (lambda image, info: setattr(info, "k", np.zeros(9)), "not calibrated"),
    "NaN": (lambda image, info: setattr(info, "k", np.full(9, np.nan)), "NaN"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_frame_is_reported_and_the_next_one_used(robot, camera, frames, fault):
    spoil, message = FAULTS[fault]
    camera.show(frames[0])
    frame = camera.later(frames[1])
    image, info = image_message(frame), info_message(frame)
    spoil(image, info)
    camera.send(image, info)
    robot.spin_until(lambda: message in robot.log, f"a log line with {message}")
    assert camera.show(frames[2]).header.frame_id == "odom"


def test_images_without_stamp_are_reported(robot, camera, frames):
    camera.send(image_message(frames[0], stamp_ns=0), info_message(frames[0], stamp_ns=0))
    robot.spin_until(lambda: "the images have no stamp" in robot.log)


def test_a_working_node_reports_its_work(camera, robot):
    reports = robot.listen(DiagnosticArray, "/diagnostics")
    reports.clear()

    def working():
        camera.show_another()
        found = (s for report in reports for s in report.status)
        return next((s for s in found if s.level == DiagnosticStatus.OK), None)

    status = robot.spin_until(working, "a report of a working node")
    values = {v.key: v.value for v in status.values}
    assert status.message == values["status"]
    assert int(values["frames"]) >= 2
    assert int(values["inliers"]) > 30
    assert {"fps", "dropped", "features_ms", "latency_ms", "device"} <= values.keys()


def test_a_camera_that_falls_silent_is_named(camera, robot, frames):
    camera.show(frames[0])
    status = diagnosis(robot, lambda s: "/image send nothing" in s.message)
    assert status.level == DiagnosticStatus.ERROR


def test_parameters_are_described_and_bad_values_refused_with_the_reason(robot):
    names = ["method", "max_keypoints", "base_to_camera", "scale.source", "autostart"]
    reply = robot.call(DescribeParameters, f"{NODE}/describe_parameters", names=names)
    assert all(descriptor.description for descriptor in reply.descriptors)
    assert reply.descriptors[1].integer_range[0].from_value == 50
    assert reply.descriptors[4].read_only
    refused = set_parameter(robot, "method", "ransack")
    assert not refused.successful
    assert "did you mean 'ransac'" in refused.reason
    assert not set_parameter(robot, "base_to_camera", [1.0, 2.0]).successful
    assert not set_parameter(robot, "max_keypoints", 1).successful


def test_a_changed_frame_takes_effect(robot, camera, frames):
    assert set_parameter(robot, "odom_frame", "world").successful
    assert camera.show(frames[0]).header.frame_id == "world"
    assert set_parameter(robot, "odom_frame", "odom").successful


def test_changed_settings_of_odometry_begin_anew(robot, camera, frames):
    for frame in frames[:2]:
        camera.show(frame)
    assert set_parameter(robot, "max_keypoints", 400).successful
    np.testing.assert_allclose(matrix(camera.show(frames[2]).pose.pose), np.eye(4), atol=1e-9)
    assert set_parameter(robot, "max_keypoints", 500).successful


def test_nothing_is_published_where_nobody_says_how_the_camera_is_mounted(
    tmp_path, monkeypatch, frames
):
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    arguments = ("-r", "__ns:=/front", "-r", "image:=camera/image")
    parameters = {"image_transport": "compressed", "approximate_sync": "true"}
    with running_node(tmp_path, *arguments, **parameters) as robot:
        qos = qos_profile_sensor_data
        images = robot.speak(CompressedImage, "/front/camera/image/compressed", qos)
        infos = robot.speak(CameraInfo, "/front/camera_info", qos)
        odometry = robot.listen(Odometry, "/front/lgc_odometry/odometry")
        now_ns = frames[0].stamp_ns

        def show():
            nonlocal now_ns
            now_ns += 10**8
            picture = CvBridge().cv2_to_compressed_imgmsg(frames[0].image, "png")
            picture.header = image_message(frames[0], now_ns).header
            infos.publish(info_message(frames[0], now_ns + 1_000_000))
            images.publish(picture)
            robot.executor.spin_once(timeout_sec=0.1)

        def told():
            show()
            return f"'{FRAME}' (camera) is on 'base_link' (base_frame)" in robot.log

        robot.spin_until(told, "the names of the frames")
        assert not odometry
        parameter = Parameter("base_frame", value=FRAME).to_parameter_msg()
        service = "/front/lgc_odometry/set_parameters"
        assert robot.call(SetParameters, service, parameters=[parameter]).results[0].successful

        def published():
            show()
            return odometry

        assert robot.spin_until(published)[0].child_frame_id == FRAME
        assert robot.end(signal.SIGINT, signal.SIGINT) == 0
        assert "Traceback" not in robot.log


def test_a_managed_node_works_while_it_is_active(tmp_path, monkeypatch, frames):
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    with running_node(tmp_path, autostart="false", base_frame=FRAME) as robot:

        def state():
            return robot.call(GetState, f"{NODE}/get_state").current_state.label

        def change(transition):
            request = Transition(id=transition)
            robot.call(ChangeState, f"{NODE}/change_state", transition=request)
            return state()

        assert state() == "unconfigured"
        assert "not configured" in diagnosis(robot, lambda s: True).message
        assert change(Transition.TRANSITION_ACTIVATE) == "unconfigured", "impossible, but harmless"
        assert change(Transition.TRANSITION_CONFIGURE) == "inactive"
        assert change(Transition.TRANSITION_ACTIVATE) == "active"
        missing = diagnosis(robot, lambda s: "nobody publishes /image" in s.message)
        assert missing.level == DiagnosticStatus.ERROR
        images = robot.speak(Image, "image")
        infos = robot.speak(CameraInfo, "camera_info")
        now_ns = frames[0].stamp_ns

        def unmatched():
            nonlocal now_ns
            now_ns += 10**8
            images.publish(image_message(frames[0], now_ns))
            infos.publish(info_message(frames[0], now_ns + 3_000_000))
            robot.executor.spin_once(timeout_sec=0.1)
            said = robot.listen(DiagnosticArray, "/diagnostics")
            return any("differ by 3.000 ms" in s.message for m in said for s in m.status)

        robot.spin_until(unmatched, "the difference of stamps")
        assert change(Transition.TRANSITION_DEACTIVATE) == "inactive"
        assert change(Transition.TRANSITION_CLEANUP) == "unconfigured"
        assert change(Transition.TRANSITION_CONFIGURE) == "inactive"
        assert change(Transition.TRANSITION_ACTIVATE) == "active"
        assert robot.end(signal.SIGTERM) == 0
        assert "Traceback" not in robot.log


def test_a_publisher_of_other_qos_is_named(camera, robot):
    robot.node.destroy_publisher(camera.images)
    best_effort = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
    unheard = robot.node.create_publisher(Image, "image", best_effort)
    status = diagnosis(robot, lambda s: "incompatible QoS on /image" in s.message)
    assert "reliability" in status.message
    robot.node.destroy_publisher(unheard)
    robot.node.destroy_publisher(camera.infos)
    camera.plug_in()

"""The node as its users meet it: a process of its own, topics, services, parameters, signals."""

import itertools
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path as FilePath

import cv2
import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import PoseStamped, PoseWithCovarianceStamped
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from nav_msgs.msg import Odometry, Path
from rcl_interfaces.msg import ParameterType
from rcl_interfaces.srv import DescribeParameters, ListParameters, SetParameters
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from ros.processes import (
    DEADLINE_S,
    FRAME,
    OPTIONS,
    completed,
    compressed_message,
    environment,
    free_domain,
    image_message,
    info_message,
    running_node,
    running_process,
    stamp,
)
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from std_srvs.srv import Empty
from transforms3d.quaternions import quat2mat
from visualization_msgs.msg import Marker, MarkerArray

from lgc_ros.filter.backends.engines import ENGINES
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.encoding import image_from_message
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.visual_odometry import VisualOdometry
from lgc_ros.ros.compat import CvBridge
from lgc_ros.ros.messages import pose_message
from lgc_ros.ros.node_parameters import default_parameters
from lgc_ros.sources.synthetic import SyntheticSource

# A camera that looks along the robot's x axis, 0.1 m ahead of its base and 0.2 m above.
BASE_TO_CAMERA = [0.1, 0.0, 0.2, -0.5, 0.5, -0.5, 0.5]
T_BC = np.array([[0, 0, 1, 0.1], [-1, 0, 0, 0], [0, -1, 0, 0.2], [0, 0, 0, 1.0]])
CHANGED = {"base_to_camera": BASE_TO_CAMERA, "path_length": 3}
NODE = "/lgc_odometry"
SECOND_NS = 10**9
HOUR_NS = 3600 * SECOND_NS
ORIGIN = np.eye(4)
QUEUE = 100
RATE_HZ = 5
# Nothing gets lost on the way to the node; one output has another QoS than the others.
OVERRIDES = {
    **{
        f"qos_overrides./{topic}.subscription.{policy}": value
        for topic in ("image", "camera_info")
        for policy, value in (("reliability", "reliable"), ("depth", QUEUE))
    },
    f"qos_overrides.{NODE}/pose.publisher.durability": "transient_local",
}


@pytest.fixture(scope="module")
def source(walk):
    """Views of a walk, five a second."""
    K = np.array([[262.0, 0, 159.5], [0, 262.0, 119.5], [0, 0, 1]])
    camera = Camera.from_K(K, 320, 240)
    return SyntheticSource("walk", 6, rate_hz=RATE_HZ, camera=camera, world=walk.world)


@pytest.fixture(scope="module")
def frames(source):
    return list(source)


@pytest.fixture(scope="module")
def connected(tmp_path_factory, frames):
    """A camera that loses nothing, and a node that answers it, for most tests."""
    folder = tmp_path_factory.mktemp("node")
    parameters = OVERRIDES | {"sync_queue": QUEUE, **CHANGED}
    with running_node(folder, **parameters) as robot:
        camera = ShownCamera(robot, frames)
        yield camera
        for frame in frames:  # a signal comes while the node is at work
            camera.send(frame)
        assert robot.end(signal.SIGINT) == 0
        assert "Traceback" not in robot.log


@pytest.fixture
def camera(connected):
    connected.reset()
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
        answers = robot.listen(Odometry, f"{NODE}/odometry")

        def answered():
            self.send_another()
            self.robot.executor.spin_once(timeout_sec=0.5)
            return answers

        robot.spin_until(answered, "the first answer")
        self.show_another()  # answered after all that were sent before

    def plug_in(self):
        self.images = self.robot.speak(Image, "image", QUEUE)
        self.infos = self.robot.speak(CameraInfo, "camera_info", QUEUE)

    def reset(self):
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
        self.reset()
        return messages

    def later(self, frame):
        return replace(frame, stamp_ns=frame.stamp_ns + self.delay_ns)

    def send(self, frame, spoil=None) -> int:
        """Publish a frame at the time it is now, after something was done to its messages.

        Returns its stamp in nanoseconds.
        """
        frame = self.later(frame)
        image, info = image_message(frame), info_message(frame)
        if spoil is not None:
            spoil(image, info)
        self.infos.publish(info)
        self.images.publish(image)
        return frame.stamp_ns

    def show(self, frame) -> Odometry:
        return heard(self.robot, Odometry, "odometry", self.send(frame))

    def send_another(self, spoil=None) -> int:
        self.delay_ns += SECOND_NS
        return self.send(next(self._views), spoil)

    def show_another(self) -> Odometry:
        self.delay_ns += SECOND_NS
        return self.show(next(self._views))


def heard(robot, kind, topic, stamp_ns):
    """The message of that stamp."""
    messages = robot.listen(kind, f"{NODE}/{topic}")

    def find():
        return next((m for m in messages if m.header.stamp == stamp(stamp_ns)), None)

    return robot.spin_until(find, f"{topic} of {stamp_ns}")


def diagnosis(robot, accept, meanwhile=lambda: None):
    """The next diagnostic status that is accepted; until it comes, something may be done."""
    messages = robot.listen(DiagnosticArray, "/diagnostics")
    messages.clear()

    def find():
        meanwhile()
        return next((s for message in messages for s in message.status if accept(s)), None)

    return robot.spin_until(find, "such a diagnosis")


def fresh_report(robot):
    """A diagnostic status that was made after all that happened before."""
    diagnosis(robot, lambda status: True)
    return diagnosis(robot, lambda status: True)


def says(*parts):
    return lambda status: all(part in status.message for part in parts)


def values(status):
    return {value.key: value.value for value in status.values}


def set_parameter(robot, name, value, node=NODE):
    parameter = Parameter(name, value=value).to_parameter_msg()
    return robot.call(SetParameters, f"{node}/set_parameters", parameters=[parameter]).results[0]


@contextmanager
def changed(robot, **parameters):
    """Other values of parameters (a dot is written __) for as long as it takes."""
    before = default_parameters() | OPTIONS | CHANGED
    names = {name: name.replace("__", ".") for name in parameters}
    try:
        for name, value in parameters.items():
            result = set_parameter(robot, names[name], value)
            assert result.successful, result.reason
        yield
    finally:
        for name in reversed(parameters):
            assert set_parameter(robot, names[name], before[names[name]]).successful


def stamp_of(header) -> int:
    return header.stamp.sec * SECOND_NS + header.stamp.nanosec


def matrix(pose):
    T = np.eye(4)
    q, p = pose.orientation, pose.position
    T[:3, :3], T[:3, 3] = quat2mat([q.w, q.x, q.y, q.z]), (p.x, p.y, p.z)
    return T


def is_origin(message):
    return np.allclose(matrix(message.pose.pose), ORIGIN, atol=1e-9)


def way_m(answers):
    """From the place of the first answer to that of the last."""
    start, end = (matrix(answers[i].pose.pose)[:3, 3] for i in (0, -1))
    return np.linalg.norm(end - start)


@pytest.fixture(params=[False, True], ids=["one after the other", "pipelined"])
def one_way_or_the_other(request, connected):
    with changed(connected.robot, pipelined=request.param):
        yield


@pytest.mark.usefixtures("one_way_or_the_other")
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
    # Without metres, the speed may be wrong by itself, but for the swing of the base.
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


def test_reset_reinitializes_odometry(camera, frames):
    camera.show(frames[0])
    assert not is_origin(camera.show(frames[1]))
    camera.robot.call(Empty, f"{NODE}/reset")
    assert is_origin(camera.show(frames[2]))


def test_a_looped_bag_resets_odometry_once_with_a_log_message(robot, camera, frames):
    said = robot.log.count("stamps jumped back by")
    for frame in frames[:2]:
        camera.show(frame)
    camera.delay_ns -= HOUR_NS // 2
    assert is_origin(camera.show(frames[0]))
    assert not is_origin(camera.show(frames[1]))
    assert robot.log.count("stamps jumped back by") == said + 1


def test_a_changed_calibration_resets_odometry_with_a_log_message(robot, camera, frames):
    for frame in frames[:2]:
        camera.show(frame)
    wider = Camera.from_K(frames[0].camera.K - np.diag([10.0, 10.0, 0.0]), 320, 240)
    assert is_origin(camera.show(replace(frames[2], camera=wider)))
    assert "camera_info has changed" in robot.log


def test_a_jittering_calibration_does_not_reset_but_a_drifting_one_does(robot, camera, frames):
    camera.show_another()  # an earlier test may have left another calibration
    camera.reset()
    said = robot.log.count("camera_info has changed")
    rng = np.random.default_rng(0)

    def jitter(image, info):
        info.k[[0, 2, 4, 5]] += 1e-9 * rng.normal(size=4)
        info.d = 1e-9 * rng.normal(size=5)

    for frame in frames:
        answer = heard(robot, Odometry, "odometry", camera.send(frame, jitter))
    assert not is_origin(answer)
    assert robot.log.count("camera_info has changed") == said

    drift_px = 0.0

    def drift(image, info):
        nonlocal drift_px
        drift_px += 0.004  # less than what makes another camera, each time
        info.k[2] += drift_px

    for _ in range(8):
        heard(robot, Odometry, "odometry", camera.send_another(drift))
    assert robot.log.count("camera_info has changed") > said


def test_lost_large_images_cause_a_warning_with_the_remedy(tmp_path, frames):
    with running_node(tmp_path, **OVERRIDES, base_frame=FRAME) as robot:
        large = [larger(frame, (640, 480)) for frame in frames]
        camera = ShownCamera(robot, large)
        assert "were lost in transport" not in robot.log, "every camera_info had its image"
        for k in range(60):  # as if their images had been lost
            camera.infos.publish(info_message(large[0], 10**9 * (1 + k)))

        def warned():
            camera.show_another()  # the first one may overtake the camera_info
            return "were lost in transport" in robot.log

        robot.spin_until(warned, "the warning")
        assert "fastdds.xml" in robot.log
        assert robot.log.count("were lost in transport") == 1


def no_stamp(image, info):
    image.header.stamp = info.header.stamp = stamp(0)


FAULTS = {
    "unknown encoding": (lambda image, info: setattr(image, "encoding", "foo8"), "'foo8'"),
    "empty data": (lambda image, info: image.data.__delitem__(slice(None)), "0 bytes of data"),
    "wrong step": (lambda image, info: setattr(image, "step", 100), "step 100"),
    "no size": (lambda image, info: setattr(image, "width", 0), "is empty"),
    "not calibrated": (lambda image, info: setattr(info, "k", np.zeros(9)), "not calibrated"),
    "NaN in K": (lambda image, info: setattr(info, "k", np.full(9, np.nan)), "NaN"),
    "stamp zero": (no_stamp, "the images have no stamp"),
}


def test_invalid_frames_are_reported_by_a_pipelined_node(robot, camera, frames):
    camera.show(frames[0])
    with changed(robot, pipelined=True):
        diagnosis(
            robot,
            says("'bar'"),
            lambda: camera.send_another(lambda image, info: setattr(image, "encoding", "bar")),
        )
        camera.delay_ns += SECOND_NS
        assert camera.show(frames[2]).header.frame_id == "odom"
    assert robot.log.count("'bar'") == 1


@pytest.mark.parametrize("fault", FAULTS)
def test_invalid_frames_are_reported_once_and_the_next_valid_one_is_used(
    robot, camera, frames, fault
):
    spoil, message = FAULTS[fault]
    camera.show(frames[0])
    status = diagnosis(robot, says(message), lambda: camera.send_another(spoil))
    assert status.level == DiagnosticStatus.ERROR
    camera.delay_ns += SECOND_NS
    assert camera.show(frames[2]).header.frame_id == "odom"
    # The line about a wrong step differs from that about empty data only in its numbers.
    fewest = 0 if fault == "wrong step" else 1
    assert fewest <= robot.log.count(message) <= 1


def test_images_of_another_size_than_their_calibration_are_reported_once(robot, camera, frames):
    camera.show(frames[0])
    held = camera.show(frames[1])
    half = replace(frames[2], image=frames[2].image[::2, ::2])
    message = "160x120 pixels but the camera is calibrated for 320x240"

    def send_half():
        camera.delay_ns += SECOND_NS
        camera.send(half)

    diagnosis(robot, says(message), send_half)
    send_half()
    answer = heard(robot, Odometry, "odometry", camera.later(half).stamp_ns)
    assert answer.pose.pose == held.pose.pose, "held, not a jump"
    assert answer.pose.covariance[0] > held.pose.covariance[0]
    assert robot.log.count(f"few_matches: the image is {message}") == 1
    assert robot.log.count(f"lost: the image is {message}") <= 1
    diagnosis(robot, lambda s: s.level == DiagnosticStatus.OK, camera.show_another)


def larger(frame, size):
    """The view in the middle of a larger sensor, which sees black around it."""
    margin = (np.array(size) - frame.camera.size) // 2
    (left, top), right_bottom = margin, np.array(size) - frame.camera.size - margin
    K = frame.camera.K.copy()
    K[:2, 2] += margin
    image = cv2.copyMakeBorder(
        frame.image, top, right_bottom[1], left, right_bottom[0], cv2.BORDER_CONSTANT
    )
    return replace(frame, image=image, camera=Camera.from_K(K, *size))


@pytest.mark.parametrize("size", [(640, 360), (3840, 2160)], ids=["larger", "4K"])
def test_a_changed_image_size_resets_odometry(robot, camera, frames, size):
    with changed(robot, features="orb"):
        camera.show(frames[0])
        said = robot.log.count("camera_info has changed")
        assert is_origin(camera.show(larger(frames[1], size)))
        assert robot.log.count("camera_info has changed") == said + 1
        assert not is_origin(camera.show(larger(frames[3], size)))


@pytest.mark.usefixtures("one_way_or_the_other")
def test_frames_at_too_high_a_rate_are_dropped_counted_and_reported(robot, camera):
    answers = robot.listen(Odometry, f"{NODE}/odometry")
    camera.show_another()
    before = values(fresh_report(robot))
    answers.clear()
    sent = 0

    def burst():
        nonlocal sent
        stamps_ns = [camera.send_another() for _ in range(QUEUE // 2)]
        sent += len(stamps_ns)
        heard(robot, Odometry, "odometry", stamps_ns[-1])

    said = says("images dropped because the machine is too slow")

    def mostly_dropped(status):
        """More dropped than done, whatever happens to an image on its way."""
        done, dropped = (int(values(status)[k]) - int(before[k]) for k in ("frames", "dropped"))
        return said(status) and dropped > done + 1

    status = diagnosis(robot, mostly_dropped, burst)
    assert status.level == DiagnosticStatus.WARN
    assert "images dropped because the machine is too slow" in robot.log
    stamps_ns = [m.header.stamp.sec * SECOND_NS + m.header.stamp.nanosec for m in answers]
    assert stamps_ns == sorted(set(stamps_ns)), "each once, in order"
    after = values(fresh_report(robot))
    done, dropped = (int(after[key]) - int(before[key]) for key in ("frames", "dropped"))
    assert done == len(answers)
    assert done + dropped == sent
    assert dropped > done


def test_a_camera_that_dies_is_reported_and_used_again_after_a_restart(
    robot, camera, frames, tmp_path
):
    images = np.stack([frame.image for frame in frames[:2]])
    np.savez(tmp_path / "frames.npz", images=images, K=frames[0].camera.K)
    answers = robot.listen(Odometry, f"{NODE}/odometry")

    def another_process():
        camera.delay_ns += HOUR_NS
        words = [tmp_path, camera.later(frames[0]).stamp_ns]
        command = [sys.executable, "-m", "ros.camera", *map(str, words)]
        tests = str(FilePath(__file__).parents[1])
        paths = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])
        variables = environment(robot.node.context.get_domain_id(), tmp_path)
        return subprocess.Popen(command, env=variables | {"PYTHONPATH": paths})

    def answered_then_killed():
        answers.clear()
        process = another_process()
        robot.spin_until(lambda: len(answers) >= 3, "answers to the other camera")
        process.kill()
        process.wait()

    answered_then_killed()
    status = diagnosis(robot, says("no messages arrive from", "publisher(s) of /image"))
    assert status.level == DiagnosticStatus.ERROR
    answered_then_killed()
    robot.spin_until(lambda: "output has resumed" in robot.log, "a line in the log")
    camera.delay_ns += HOUR_NS


def test_a_working_node_reports_rates_and_counts(camera, robot):
    def at_work(status):
        return status.level == DiagnosticStatus.OK and float(values(status)["fps"]) > 0

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
    assert int(report["keyframes"]) >= 1
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


def true_way_m(frames):
    start, end = (frames[i].T_wc @ np.linalg.inv(T_BC) for i in (0, -1))
    return np.linalg.norm(end[:3, 3] - start[:3, 3])


def test_constant_speed_gives_metric_scale(robot, camera, frames):
    with changed(robot, scale__speed_mps=0.4, scale__source="constant_speed"):
        at_half_speed = way_m([camera.show(frame) for frame in frames])
    assert at_half_speed == pytest.approx(true_way_m(frames) / 2, rel=0.15)


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


def assert_metres_from_the_first_step(answers, frames):
    """Twice the truth; before that, a position that is held and owns up to it."""
    # The first two answers come before there are landmarks.
    first = next(i for i in range(2, len(answers)) if answers[i].pose.covariance[0] < 1.0)
    assert first < len(answers) - 1
    for i in range(2, len(answers)):
        way = way_m(answers[: i + 1])
        if i < first:
            assert way < 0.1 * true_way_m(frames[: i + 1])
            assert answers[i].pose.covariance[0] > 10**2
        else:
            assert way == pytest.approx(2 * true_way_m(frames[: i + 1]), rel=0.1)
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
    assert_metres_from_the_first_step(answers, frames)
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
    assert_metres_from_the_first_step(answers, frames)


def test_wheel_odometry_gives_metric_scale(robot, camera, frames, source):
    with changed(robot, scale__source="odom"):
        wheels = robot.speak(Odometry, "odom", QUEUE)
        for message in wheel_odometry(camera, frames, source):
            wheels.publish(message)
        way = way_m([camera.show(frame) for frame in frames[1:]])
        report = values(fresh_report(robot))
        robot.node.destroy_publisher(wheels)
    assert way == pytest.approx(2 * true_way_m(frames[1:]), rel=0.1)
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
    assert way_m(answers) == pytest.approx(2 * true_way_m(frames), rel=0.1)


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


def test_without_the_mounting_of_the_camera_nothing_is_published(tmp_path, frames):
    """In a namespace, with compressed images, stamps that differ, and a simulated clock."""
    topic = "/front/camera/image/compressed"
    arguments = ("-r", "__ns:=/front", "-r", "image:=camera/image")
    parameters = {
        "image_transport": "compressed",
        "approximate_sync": "true",
        "use_sim_time": "true",
        f"qos_overrides.{topic}.subscription.reliability": "reliable",
    }
    with running_node(tmp_path, *arguments, **parameters) as robot:
        images = robot.speak(CompressedImage, topic)
        infos = robot.speak(CameraInfo, "/front/camera_info")
        clock = robot.speak(Clock, "/clock")
        odometry = robot.listen(Odometry, "/front/lgc_odometry/odometry")
        (of_images,) = robot.node.get_subscriptions_info_by_topic(topic)
        assert of_images.qos_profile.reliability == ReliabilityPolicy.RELIABLE
        (of_infos,) = robot.node.get_subscriptions_info_by_topic("/front/camera_info")
        assert of_infos.qos_profile.reliability == ReliabilityPolicy.BEST_EFFORT
        now_ns = frames[0].stamp_ns

        def show():
            nonlocal now_ns
            now_ns += SECOND_NS // 10
            clock.publish(Clock(clock=stamp(now_ns)))
            infos.publish(info_message(frames[0], now_ns + SECOND_NS // 1000))
            images.publish(compressed_message(frames[0], now_ns))
            robot.executor.spin_once(timeout_sec=0.1)

        mounting = f"no transform from base_frame 'base_link' to camera frame '{FRAME}'"
        status = diagnosis(robot, says(mounting), show)
        assert status.name == "front/lgc_odometry: odometry"
        assert not odometry
        assert robot.log.count(mounting) == 1
        reports = robot.listen(DiagnosticArray, "/diagnostics")

        def told_in_simulated_time():
            return any(report.header.stamp == stamp(now_ns) for report in reports)

        robot.spin_until(told_in_simulated_time, "a report, though the clock stands still")
        node = "/front/lgc_odometry"
        assert set_parameter(robot, "base_frame", FRAME, node).successful

        def published():
            show()
            return odometry

        assert robot.spin_until(published)[0].child_frame_id == FRAME
        assert robot.end(signal.SIGINT, signal.SIGINT) == 0
        assert "Traceback" not in robot.log


def test_a_lifecycle_node_works_only_while_active(tmp_path, frames):
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
        assert "not active" in fresh_report(robot).message
        assert change(Transition.TRANSITION_ACTIVATE) == "active"
        missing = diagnosis(robot, says("no publisher on /image", "-r image:=TOPIC"))
        assert missing.level == DiagnosticStatus.ERROR
        images = robot.speak(Image, "image")
        odometry = robot.listen(Odometry, f"{NODE}/odometry")
        now_ns = frames[0].stamp_ns

        def show_image():
            nonlocal now_ns
            now_ns += SECOND_NS // 10
            images.publish(image_message(frames[0], now_ns))
            robot.executor.spin_once(timeout_sec=0.1)

        diagnosis(robot, says("no publisher on /camera_info"), show_image)
        infos = robot.speak(CameraInfo, "camera_info")

        def show_unmatched():
            show_image()
            infos.publish(info_message(frames[0], now_ns + 3_000_000))

        never = says(
            "the stamps of /image and /camera_info never match", "differ by at least 3.000 ms"
        )
        diagnosis(robot, never, show_unmatched)
        assert not odometry

        def answered():
            show_image()
            infos.publish(info_message(frames[0], now_ns))
            return odometry

        robot.spin_until(answered, "an answer once camera_info is there")
        assert change(Transition.TRANSITION_DEACTIVATE) == "inactive"
        assert change(Transition.TRANSITION_CLEANUP) == "unconfigured"
        assert change(Transition.TRANSITION_CONFIGURE) == "inactive"
        assert change(Transition.TRANSITION_ACTIVATE) == "active"
        odometry.clear()
        assert is_origin(robot.spin_until(answered, "an answer of the node configured again")[0])
        assert change(Transition.TRANSITION_ACTIVE_SHUTDOWN) == "finalized"
        assert "restart it" in fresh_report(robot).message
        assert robot.end(signal.SIGTERM) == 0
        assert "Traceback" not in robot.log


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"profile": "fsat"}, "did you mean 'fast'"),
        ({"method": "foo"}, "could not configure: unknown method 'foo'"),
        ({"features": "xfeat", "extractor_model": "no.onnx"}, "no.onnx does not exist"),
        (
            {"qos_overrides./image.subscription.reliability": "relible"},
            "`relible`; restart the node with QoS values of ROS, such as",
        ),
    ],
    ids=str,
)
def test_invalid_settings_end_the_node_with_the_reason(tmp_path, parameters, reason):
    with running_node(tmp_path, **parameters) as robot:
        assert robot.process.wait(DEADLINE_S) == 1
        assert robot.log.count(reason) == 1
        assert "Traceback" not in robot.log


def test_unknown_parameters_cause_a_warning_with_the_closest_name(tmp_path):
    file = tmp_path / "some.yaml"
    file.write_text("/**:\n  ros__parameters:\n    scale:\n      sorce: none\n    zzz: 1\n")
    with running_node(tmp_path, "--params-file", str(file), max_keypoint=300) as robot:
        robot.spin_until(lambda: "waiting for /image" in robot.log, "the start")
        for unknown, hint in {
            "max_keypoint": "did you mean 'max_keypoints'?",
            "scale.sorce": "did you mean 'scale.source'?",
            "zzz": "see odometry_node --help",
        }.items():
            assert robot.log.count(f"unknown parameter '{unknown}' is ignored: {hint}") == 1
        assert robot.log.count("unknown parameter") == 3


def run_node(tmp_path, *arguments, **variables):
    command = [sys.executable, "-m", "lgc_ros.ros.odometry_node", *arguments]
    return completed(tmp_path, command, **variables)


def test_help_lists_topics_parameters_and_examples_without_starting_ros(tmp_path):
    done = run_node(tmp_path, "--help", ROS_LOG_DIR="/dev/null/nowhere")
    assert done.returncode == 0
    assert not done.stderr
    assert not list(tmp_path.iterdir()), "no log file"
    assert done.stdout.startswith("usage: odometry_node")
    for word in ("camera_info", "~/odometry", "base_to_camera", "scale.source", "Examples:"):
        assert word in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize(
    ("arguments", "variables", "reason"),
    [
        (("--params-file", "nowhere.yaml"), {}, "the parameter file nowhere.yaml does not exist"),
        (("--params-file", __file__), {}, "cannot be read: "),
        (("-p", "profile"), {}, "Couldn't parse parameter override rule: '-p profile'"),
        (("--fast",), {}, "unknown ROS arguments ['--fast']: see odometry_node --help"),
        ((), {"ROS_LOG_DIR": "/dev/null/logs"}, "set ROS_LOG_DIR to a writable folder"),
        ((), {"ROS_LOG_DIR": "", "HOME": "/dev/null"}, "log directory '/dev/null/.ros/log'"),
    ],
)
def test_errors_of_ros_at_startup_become_one_sentence(tmp_path, arguments, variables, reason):
    done = run_node(tmp_path, "--ros-args", *arguments, **variables)
    assert done.returncode == 1
    sentence = done.stderr.splitlines()[-1]  # rcl may log a line of its own before
    assert sentence.startswith("error: ")
    assert reason in sentence
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("rule", "remedy"),
    [
        ("image:=/bad//name", "no part begins with a digit"),
        ("image:=two words", "no part begins with a digit"),
        ("__ns:=/1st", "no part begins with a digit"),
        ("image", "give NAME:=NAME"),
    ],
)
def test_invalid_ros_names_end_the_node_with_the_reason(tmp_path, rule, remedy):
    done = run_node(tmp_path, "--ros-args", "-r", rule)
    assert done.returncode == 1
    assert f"error: invalid argument -r {rule}: " in done.stderr
    assert remedy in done.stderr
    assert "Traceback" not in done.stderr


def test_a_lifecycle_node_that_fails_to_configure_stays_up_and_can_be_corrected(tmp_path):
    with running_node(tmp_path, autostart="false", method="foo") as robot:

        def configure():
            request = Transition(id=Transition.TRANSITION_CONFIGURE)
            return robot.call(ChangeState, f"{NODE}/change_state", transition=request).success

        assert not configure()
        assert "could not configure: unknown method 'foo'" in diagnosis(robot, says("foo")).message
        assert set_parameter(robot, "method", "poselib+ratio").successful
        assert configure()
        assert robot.end() == 0


def test_a_publisher_with_incompatible_qos_is_named(camera, robot):
    robot.node.destroy_publisher(camera.images)
    best_effort = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
    unheard = robot.node.create_publisher(Image, "image", best_effort)
    offer = "/robot offers best_effort and this node requests reliable"
    status = diagnosis(robot, says("incompatible QoS on /image: in reliability", offer))
    assert "qos_overrides./image.subscription.reliability to best_effort" in status.message
    robot.node.destroy_publisher(unheard)
    robot.node.destroy_publisher(camera.infos)
    camera.plug_in()
    camera.show_another()


IMPATIENT = """
import time
print("loading", flush=True)
try:
    time.sleep(600)
except BaseException:
    pass
"""


def test_a_signal_while_the_node_loads_is_not_lost_in_the_imports_of_a_library(tmp_path):
    library = tmp_path / "cv_bridge.py"
    library.write_text(IMPATIENT)
    code = "from lgc_ros.cli.ros import odometry_node; odometry_node()"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment(free_domain(), tmp_path) | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.readline() == "loading\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == -signal.SIGINT

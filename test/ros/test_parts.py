"""Parts of the node that need no topics: motion of the base, the worker, and why all is silent."""

import re
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from transforms3d.euler import euler2mat

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from nav_msgs.msg import Odometry
from rclpy.context import Context
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.topic_endpoint_info import TopicEndpointInfo
from ros.processes import DEADLINE_S, environment, free_domain, stamp
from scenes import as_correspondences, random_scene
from sensor_msgs.msg import Image
from std_msgs.msg import Header
from visualization_msgs.msg import Marker

from lgc_ros.errors import ConfigError
from lgc_ros.estimation.two_view import TwoViewResult
from lgc_ros.images.frame import Frame
from lgc_ros.odometry.covariance import in_world
from lgc_ros.odometry.map import Keyframe, View
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.profiles import config_folder, load_profile
from lgc_ros.odometry.scale import ScaleOptions
from lgc_ros.odometry.state import OdometryState
from lgc_ros.odometry.visual_odometry import VisualOdometry
from lgc_ros.ros import compat
from lgc_ros.ros.diagnostics import Log, Monitor
from lgc_ros.ros.inputs import Inputs
from lgc_ros.ros.markers import inlier_markers
from lgc_ros.ros.messages import (
    UNKNOWN_VARIANCE,
    base_motion,
    odometry_message,
    pose_message,
    transform_message,
    twist_covariance,
)
from lgc_ros.ros.mounting import Mounting
from lgc_ros.ros.node_parameters import (
    NodeParameters,
    default_parameters,
    describe_parameters,
    flat_settings,
)
from lgc_ros.ros.odometry_node import spin
from lgc_ros.ros.scale_input import DepthImages, WheelOdometry
from lgc_ros.ros.topic_watch import TopicWatch
from lgc_ros.ros.worker import LatestItemWorker, SerialThread


def rigid(angles, position):
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = euler2mat(*angles), position
    return T


T_BC = rigid((-1.5, 0.1, -1.6), (0.3, -0.1, 0.5))
T_WC = rigid((0.2, -0.4, 0.3), (1.0, 2.0, -0.5))
RNG = np.random.default_rng(0)


def state(T_wc=T_WC, **changes):
    points = RNG.uniform((-1, -1, 2), (1, 1, 4), (50, 3))
    made = OdometryState(10**9, "ok", "", T_wc, np.eye(6), np.zeros(6), points_cam=points)
    return replace(made, **changes)


def test_covariance_of_the_base_matches_simulated_camera_errors():
    root = 1e-4 * RNG.normal(size=(6, 6))
    errors = RNG.normal(size=(20_000, 6)) @ root.T

    def base(error):
        moved = T_WC.copy()
        moved[:3, :3] = euler2mat(*error[3:]) @ T_WC[:3, :3]
        moved[:3, 3] += error[:3]
        return T_BC @ moved @ np.linalg.inv(T_BC)

    motion = base_motion(state(covariance=root @ root.T), T_BC, np.eye(6))
    positions = np.array([base(error)[:3, 3] for error in errors])
    expected = np.cov(positions.T)
    tolerance = 0.05 * np.trace(expected)
    np.testing.assert_allclose(motion.covariance[:3, :3], expected, atol=tolerance)
    turns = np.array([base(error)[:3, :3] @ motion.T_ob[:3, :3].T for error in errors])
    vectors = np.column_stack([turns[:, 2, 1], turns[:, 0, 2], turns[:, 1, 0]])
    expected = np.cov(vectors.T)
    tolerance = 0.05 * np.trace(expected)
    np.testing.assert_allclose(motion.covariance[3:, 3:], expected, atol=tolerance)


def test_velocity_of_the_base_includes_the_lever_arm():
    linear, angular, dt = np.array([0.4, -0.2, 1.0]), np.array([0.1, 0.3, -0.2]), 1e-6
    step = rigid(angular * dt, linear * dt)
    before = base_motion(state(), T_BC, np.eye(6)).T_ob
    after = base_motion(state(T_WC @ step), T_BC, np.eye(6)).T_ob
    moved = np.linalg.inv(before) @ after
    twist = base_motion(state(twist=np.concatenate([linear, angular])), T_BC, np.eye(6)).twist
    np.testing.assert_allclose(twist[:3], moved[:3, 3] / dt, atol=1e-4)
    turn = np.array([moved[2, 1], moved[0, 2], moved[1, 0]]) / dt
    np.testing.assert_allclose(twist[3:], turn, atol=1e-4)


def test_velocity_covariance_follows_landmark_depth_and_elapsed_time():
    last, now = state(), state(stamp_ns=2 * 10**9)
    near = twist_covariance(now, last, 500.0, 1.0)
    far = twist_covariance(replace(now, points_cam=10 * now.points_cam), last, 500.0, 1.0)
    soon = twist_covariance(replace(now, stamp_ns=1_500_000_000), last, 500.0, 1.0)
    assert np.linalg.eigvalsh(near).min() > 0
    np.testing.assert_allclose(far[:3, :3], 100 * near[:3, :3], rtol=0.01)
    np.testing.assert_allclose(soon, 4 * near, rtol=0.01)


def test_velocity_covariance_includes_the_scale_error():
    speed = np.array([0.3, -0.4, 1.2])
    now = state(stamp_ns=2 * 10**9, twist=np.concatenate([speed, np.zeros(3)]))
    for sigma in (0.02, 1.0):
        spread = twist_covariance(replace(now, scale_sigma=sigma), state(), 500.0, 1.0)
        along = speed / np.linalg.norm(speed)
        assert np.sqrt(along @ spread[:3, :3] @ along) > sigma * np.linalg.norm(speed)


def is_positive_definite(covariance):
    """Symmetric, and every combination of position and orientation has some variance."""
    sigmas = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(sigmas, sigmas)
    return np.array_equal(covariance, covariance.T) and np.linalg.eigvalsh(correlation).min() > 0


@given(
    metres=st.floats(0, 1e5),
    sigma=st.floats(0, 1.0),
    drift=st.floats(0, 1e3),
    angles=st.tuples(*3 * [st.floats(-3, 3)]),
    lever=st.tuples(*3 * [st.floats(-5, 5)]),
    speed=st.floats(0, 100),
    count=st.integers(0, 20),
    elapsed_ns=st.integers(10**6, 10**10),
)
def test_every_published_covariance_is_symmetric_and_positive_definite(
    metres, sigma, drift, angles, lever, speed, count, elapsed_ns
):
    """Whatever is certain: the first pose, a straight way, landmarks on one ray."""
    odometry = VisualOdometry.__new__(VisualOdometry)
    odometry.options = OdometryOptions()
    odometry.reset()
    T_wc = rigid(angles, metres * np.array([0.6, 0.0, 0.8]))
    spread = in_world(np.diag([0, 0, drift**2, 0, drift**2, 0]), T_wc)
    now = state(
        T_wc,
        stamp_ns=10**9 + elapsed_ns,
        covariance=odometry._report.published(spread, T_wc),
        twist=np.array([0, 0, speed, 0, 0, 0]),
        points_cam=np.tile([0.1, 0.2, 3.0], (count, 1)),
        scale_sigma=sigma,
    )
    T_bc = rigid(angles, lever)
    motion = base_motion(now, T_bc, twist_covariance(now, state(), 500.0, 0.35))
    message = odometry_message(Header(), "base", motion)
    for covariance in (now.covariance, message.pose.covariance, message.twist.covariance):
        assert is_positive_definite(np.reshape(covariance, (6, 6)))


@pytest.mark.parametrize(
    "held", [{"status": "lost"}, {"status": "rotation_only", "points_cam": np.empty((0, 3))}]
)
def test_velocity_is_unknown_if_the_pose_is_or_was_held(held):
    for now, last in [(state(**held), state()), (state(), state(**held))]:
        spread = twist_covariance(replace(now, stamp_ns=2 * 10**9), last, 500.0, 1.0)
        np.testing.assert_array_equal(spread, UNKNOWN_VARIANCE * np.eye(6))


def two_views():
    """A state that rests on the first half of its matches, and the keyframe it was matched to."""
    scene = random_scene(points=60)
    matches = as_correspondences(scene.x0, scene.x1)
    inliers = np.arange(len(matches)) < len(matches) // 2
    points = scene.X0[inliers] @ scene.R_10.T + scene.t_10
    scores = np.linspace(0, 1, len(points))
    result = TwoViewResult(matches, inliers, inliers, None, "", None, {})
    T_wc = np.linalg.inv(np.vstack([np.column_stack([scene.R_10, scene.t_10]), [0, 0, 0, 1]]))
    now = state(T_wc, relative=result, points_cam=points, scores=scores)
    view = View(0, None, None, scene.x0)
    return now, Keyframe(view, np.eye(3), np.zeros(3)), scene


def test_markers_show_landmarks_by_score_rejected_rays_and_keyframes_in_the_camera_frame():
    now, keyframe, scene = two_views()
    header = Header(frame_id="camera")
    markers = {m.ns: m for m in inlier_markers(header, now, [keyframe]).markers}
    assert markers.keys() == {"inliers", "rejected", "keyframes"}
    assert {m.header.frame_id for m in markers.values()} == {"camera"}
    assert {m.action for m in markers.values()} == {Marker.ADD}

    def points(name):
        return np.array([[p.x, p.y, p.z] for p in markers[name].points])

    np.testing.assert_allclose(points("inliers"), now.points_cam)
    worst, best = (markers["inliers"].colors[i] for i in (0, -1))
    assert (worst.r, worst.g, best.r, best.g) == (1.0, 0.0, 0.0, 1.0), "from red to green"
    rays, rejected = points("rejected"), scene.x1[~now.relative.inliers]
    np.testing.assert_allclose(rays[:, :2] / rays[:, 2:], np.repeat(rejected, 2, axis=0))
    assert markers["rejected"].color.r > markers["rejected"].color.g
    # The tips of the keyframe's edges are its centre, which is the world's origin.
    distance = np.linalg.norm(points("keyframes") - scene.t_10, axis=1)
    assert np.isclose(distance, 0).sum() == 4


def test_markers_replace_earlier_ones_and_are_deleted_if_empty():
    now, keyframe, _ = two_views()
    shown = inlier_markers(Header(), now, [keyframe]).markers
    lost = replace(now, relative=None, points_cam=np.empty((0, 3)), scores=np.empty(0))
    after = inlier_markers(Header(), lost, []).markers
    assert [(m.ns, m.id) for m in shown] == [(m.ns, m.id) for m in after]
    assert {m.action for m in after} == {Marker.DELETE}
    assert all(m.lifetime.sec > 0 for m in shown), "old ones vanish when the node is silent"


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


def test_a_busy_worker_processes_the_newest_item_and_counts_dropped_ones():
    started, go_on, seen, done = (threading.Event(), threading.Event(), [], threading.Event())

    def work(item):
        started.set()
        go_on.wait()
        seen.append(item)
        if item == 4:
            done.set()

    worker = LatestItemWorker(work, "worker")
    worker.put(0)
    started.wait()
    for item in (1, 2, 3, 4):
        worker.put(item)
    go_on.set()
    done.wait()
    worker.stop()
    assert seen == [0, 4]
    assert worker.dropped == 3


def test_a_call_runs_in_the_background_and_the_next_one_waits_for_it():
    prepared_next, ended = threading.Event(), []
    behind = SerialThread("behind")

    def first():
        assert prepared_next.wait(DEADLINE_S), "the caller is held up"
        ended.append("first")

    behind.wait()
    behind.call(first)
    assert not ended
    prepared_next.set()
    behind.call(lambda: ended.append("second"))
    assert ended[0] == "first"
    behind.stop()
    assert ended == ["first", "second"]


def publisher(topic_type="sensor_msgs/msg/Image", **policies):
    return TopicEndpointInfo(
        node_name="driver",
        node_namespace="/front",
        topic_type=topic_type,
        qos_profile=QoSProfile(depth=1, **policies),
    )


BEST_EFFORT = {"reliability": ReliabilityPolicy.BEST_EFFORT}


@pytest.mark.parametrize(
    ("publishers", "cause", "remedy"),
    [
        ([], "no publisher on /image", "-r image:=TOPIC"),
        ([publisher()], "no messages arrive from 1 publisher(s) of /image", "check the driver"),
        (
            [publisher("sensor_msgs/msg/CompressedImage")],
            "/front/driver publishes sensor_msgs/msg/CompressedImage, this node expects "
            "sensor_msgs/msg/Image",
            "-r image:=TOPIC",
        ),
        (
            [publisher(**BEST_EFFORT)],
            "in reliability, its publisher /front/driver offers best_effort and this node "
            "requests reliable",
            "qos_overrides./image.subscription.reliability to best_effort",
        ),
        (
            [publisher(durability=DurabilityPolicy.VOLATILE)],
            "in durability, its publisher /front/driver offers volatile",
            "qos_overrides./image.subscription.durability to volatile",
        ),
    ],
)
def test_a_silent_topic_is_explained(publishers, cause, remedy):
    watch = TopicWatch("/image", "image", "sensor_msgs/msg/Image", lambda topic: publishers)
    watch.requested = QoSProfile(depth=1)
    if "durability" in cause:
        watch.requested.durability = DurabilityPolicy.TRANSIENT_LOCAL
    assert cause in watch.complaint()
    assert remedy in watch.complaint()
    watch.on_message(Image())
    assert watch.complaint() == ""


class Lines(list):
    """Stands for a logger: keeps what it is told."""

    warning = error = list.append


def test_a_problem_that_persists_is_logged_once_although_its_numbers_change():
    lines = Lines()
    log = Log(lines)
    for number in range(3):
        log.warn(f"{number} images dropped")
        log.error("no data", details="traceback")
        log.error(f"image of {number} bytes, expected {10 * number}", details=f"line {number}")
    assert lines == [
        "0 images dropped",
        "no data\ntraceback",
        "image of 0 bytes, expected 0\nline 0",
    ]


@pytest.mark.parametrize(
    ("held", "consequence"),
    [
        ({"status": "initializing"}, "positions are held until the first measurement"),
        ({"status": "ok"}, "positions are not metric until the first measurement"),
        ({"status": "ok", "scale_sigma": 0.02}, "the last scale is kept"),
    ],
)
def test_a_missing_scale_source_is_reported_with_its_consequence(held, consequence):
    images, info, odom = (
        TopicWatch(f"/{name}", name, "", lambda topic: []) for name in ("image", "info", "odom")
    )
    for watch in (images, info):
        watch.on_message(Image())
    monitor = Monitor(images, info, Lines())
    monitor.scale_watch, monitor.scale_input = odom, WheelOdometry()
    monitor.matched()
    monitor.processed(state(**held), 1.0)
    message = monitor.report("node", {}, 0, settings()).message
    assert f"no scale from odom, {consequence}: no publisher on /odom" in message


def settings(profile="default", **changes):
    """Parameters of a node started with these values."""
    return NodeParameters(profile=profile, odometry=load_profile(profile), **changes)


def report_of(p, images_s=(), infos_s=(), dropped=0):
    """The message of a node with these parameters that heard messages with these stamps."""
    watches = [TopicWatch(f"/{name}", name, "", lambda topic: []) for name in ("image", "info")]
    for watch, stamps_s in zip(watches, (images_s, infos_s), strict=True):
        for stamp_s in stamps_s:
            message = Image()
            message.header.stamp = stamp(round(stamp_s * 1e9))
            watch.on_message(message)
    monitor = Monitor(*watches, Lines())
    if dropped:
        monitor.matched()
        monitor.processed(state(), 1.0)
        first = monitor.report("node", {}, dropped, p)
        assert "dropped" not in first.message, "the first frame takes longer than others"
        dropped += dropped
    return monitor.report("node", {}, dropped, p).message


@pytest.mark.parametrize(
    ("p", "infos_s", "remedy"),
    [
        (settings(), [1.03], "at least 30.000 ms; give both the same stamp in the driver, or"),
        (settings(approximate_sync=True), [1.03], "a larger sync_slop_s (it is 0.02"),
        (settings(approximate_sync=True), [9.0], "use the same clock for both"),
        (
            settings(),
            [1.0],
            "more than 10 messages apart: restart the node with a larger sync_queue",
        ),
    ],
)
def test_stamps_that_never_match_are_reported_with_an_effective_remedy(p, infos_s, remedy):
    assert remedy in report_of(p, [1.0], infos_s)


def test_a_slow_node_suggests_only_remedies_not_in_use():
    slow = report_of(settings(), [1.0], [1.0], dropped=9)
    assert "use the profile fast, or fewer max_keypoints than 2000" in slow
    fast = report_of(settings("fast", pipelined=True), [1.0], [1.0], dropped=9)
    assert "use fewer max_keypoints than 1000, or smaller images" in fast


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
def test_depth_of_the_same_stamp_is_in_metres(depth):
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


@pytest.mark.parametrize("topic", ["camera_info", "odom"])
def test_inputs_that_cannot_be_opened_leave_no_subscription(monkeypatch, topic):
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    context = Context()
    context.init(domain_id=free_domain())
    override = Parameter(f"qos_overrides./{topic}.subscription.reliability", value="perhaps")
    node = Node("node", context=context, parameter_overrides=[override])
    before = len(list(node.subscriptions))
    options = OdometryOptions(scale=ScaleOptions(source="odom"))
    with pytest.raises(ConfigError, match=f"invalid parameters qos_overrides./{topic}"):
        Inputs(node, NodeParameters(odometry=options), print)
    assert len(list(node.subscriptions)) == before
    node.destroy_node()
    context.try_shutdown()


def odometry_yaml():
    """The text of the shipped parameter file, and all its parameters, also the commented ones."""
    text = (config_folder() / "odometry.yaml").read_text()
    full = re.sub(r"(?m)^( +)# (?=[a-z_.]+: )", r"\1", text)
    return text, full


def test_the_shipped_parameter_file_lists_every_parameter_with_its_default():
    text, full = odometry_yaml()
    shipped = yaml.safe_load(full)["/**"]["ros__parameters"]
    assert shipped.pop("base_to_camera") is not None
    assert shipped == default_parameters()
    active = yaml.safe_load(text)["/**"]["ros__parameters"]
    assert not active.keys() & flat_settings(load_profile()).keys(), "the profile sets these"


def test_comments_in_the_shipped_parameter_file_are_the_descriptions_of_the_parameters():
    _, full = odometry_yaml()
    comments = dict(re.findall(r"(?m)^ +([a-z_.]+): .*?  # (.+)$", full))
    assert comments == describe_parameters()


STUCK = """
from lgc_ros.ros import session

session.SHUTDOWN_S = 0.5
with session.session("stuck") as ros:
    ros.node.destroy_node = lambda: any(iter(int, 1))
"""


def test_a_process_whose_dds_shutdown_hangs_ends_with_an_error(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", STUCK],
        env=environment(free_domain(), tmp_path),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 1
    assert "session.py" in done.stderr
    assert "in shut_down" in done.stderr

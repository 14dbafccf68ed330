"""Why there is no output, and which remedy helps."""

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.topic_endpoint_info import TopicEndpointInfo
from ros.motion import state
from ros.processes import stamp
from sensor_msgs.msg import Image

from lgc_ros.odometry.profiles import load_profile
from lgc_ros.ros.diagnostics import Log, Monitor
from lgc_ros.ros.inputs import TopicWatch
from lgc_ros.ros.node_parameters import (
    NodeParameters,
)
from lgc_ros.ros.scale_input import WheelOdometry


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
    """Stands for a logger: keeps the messages."""

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


def test_a_player_that_waits_for_an_answer_does_not_hide_why_there_is_none(monkeypatch):
    """The node may wait seconds for a transform, and the player does not send another image."""
    now_s = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    images, info = (
        TopicWatch(f"/{name}", name, "", lambda topic: [publisher("")])
        for name in ("image", "info")
    )
    monitor = Monitor(images, info, Lines())
    for watch in (images, info):
        watch.on_message(Image())
    monitor.matched()
    now_s[0] += 5.0
    assert monitor.report("node", {}, 0, settings()).message == "processing the first frame"
    monitor.fault("no transform")
    now_s[0] += 1.0
    assert monitor.report("node", {}, 0, settings()).message == "no transform"
    now_s[0] += 5.0
    assert "no messages arrive" in monitor.report("node", {}, 0, settings()).message


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

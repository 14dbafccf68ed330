"""Pairing of images and camera_infos, by itself and in a node that hears them over DDS."""

import signal
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import Odometry
from ros.processes import FRAME, image_message, info_message, running_node, stamp
from sensor_msgs.msg import CameraInfo, Image

from lgc_ros.geometry.camera import Camera
from lgc_ros.images.stamps import stamp_ns
from lgc_ros.ros import compat
from lgc_ros.ros.synchronizer import Synchronizer
from lgc_ros.sources.synthetic import SyntheticSource

SECOND_NS = 10**9
HOUR_NS = 3600 * SECOND_NS
QUEUE = 10


class Streams:
    """Two inputs of a synchronizer, and the pairs of stamps (s) that come out."""

    def __init__(self, queue_size=QUEUE, slop_s=0.0, on_pair=None):
        self.pairs, self.refused = [], []
        self._inputs = compat.SimpleFilter(), compat.SimpleFilter()
        Synchronizer(
            *self._inputs,
            on_pair or self._keep,
            lambda message: self.refused.append(type(message)),
            queue_size,
            slop_s,
        )

    def _keep(self, image, camera_info):
        assert (type(image), type(camera_info)) == (Image, CameraInfo)
        self.pairs.append((_seconds(image), _seconds(camera_info)))

    def image(self, *stamps_s):
        self._send(0, Image, stamps_s)

    def info(self, *stamps_s):
        self._send(1, CameraInfo, stamps_s)

    def _send(self, index, kind, stamps_s):
        for stamp_s in stamps_s:
            message = kind()
            message.header.stamp = stamp(round(stamp_s * 1e9))
            self._inputs[index].signalMessage(message)


def _seconds(message):
    return stamp_ns(message.header.stamp) / 1e9


@pytest.mark.parametrize("slop_s", [0.0, 0.1])
def test_equal_stamps_are_paired_once_whichever_comes_first(slop_s):
    streams = Streams(slop_s=slop_s)
    streams.image(1)
    streams.info(1)
    streams.info(2)
    streams.image(2)
    assert streams.pairs == [(1, 1), (2, 2)]
    streams.image(2)
    assert streams.pairs == [(1, 1), (2, 2)], "a camera_info belongs to one image"


def test_exact_pairing_requires_equal_stamps():
    streams = Streams()
    streams.image(1)
    streams.info(1 + 1e-9)
    assert streams.pairs == []


def test_approximate_pairing_takes_the_nearest_stamp_within_the_slop():
    streams = Streams(slop_s=0.1)
    streams.info(0.91, 1.04, 0.98)
    streams.image(1)
    assert streams.pairs == [(1, 0.98)]
    streams = Streams(slop_s=0.1)
    streams.info(1)
    streams.image(1.1 + 1e-6)
    assert streams.pairs == []
    streams.image(1.1)
    assert streams.pairs == [(1.1, 1)], "the slop itself is allowed"


def test_one_stream_may_run_ahead_by_the_length_of_the_queue():
    streams = Streams(queue_size=3)
    streams.image(0, 1, 2, 3, 4)
    streams.info(0, 1, 2, 3, 4)
    assert streams.pairs == [(2, 2), (3, 3), (4, 4)]


def test_pairs_come_in_the_order_of_their_stamps():
    streams = Streams()
    streams.image(1, 2, 3)
    streams.info(2, 1, 3)
    assert streams.pairs == [(2, 2), (3, 3)], "odometry cannot use an image of the past"


@pytest.mark.parametrize("slop_s", [0.0, 0.1])
@pytest.mark.parametrize("stale", [12, QUEUE - 1])
def test_unmatched_messages_of_the_future_do_not_block_later_pairs(slop_s, stale):
    future = range(1000, 1000 + stale)
    for fill in ("image", "info"):
        streams = Streams(slop_s=slop_s)
        getattr(streams, fill)(*future)
        for stamp_s in range(1, 39):
            streams.image(stamp_s)
            streams.info(stamp_s)
        assert streams.pairs == [(stamp_s, stamp_s) for stamp_s in range(1, 39)]


def test_messages_from_before_a_time_jump_are_never_paired():
    """In the second round of a looped recording, the image of the first is another one."""
    streams = Streams()
    streams.image(5)
    streams.image(1)
    streams.info(1)
    streams.info(5)
    assert streams.pairs == [(1, 1)]


def test_a_single_stamp_of_the_future_costs_no_pair():
    streams = Streams()
    streams.image(1)
    streams.image(1000)
    streams.image(2)
    streams.info(1, 2)
    assert streams.pairs == [(1, 1), (2, 2)]


def test_negative_stamps_are_refused():
    streams = Streams(slop_s=0.1)
    streams.info(-1, 1)
    streams.image(-1, 1)
    assert streams.pairs == [(1, 1)]
    assert streams.refused == [CameraInfo, Image]


def test_a_callback_that_fails_does_not_block_the_next_pair():
    calls = []

    def fail_at_first(image, camera_info):
        calls.append(_seconds(image))
        if len(calls) == 1:
            raise RuntimeError("no luck")

    streams = Streams(on_pair=fail_at_first)
    streams.image(1)
    with pytest.raises(RuntimeError, match="no luck"):
        streams.info(1)
    streams.image(2)
    streams.info(2)
    assert calls == [1, 2]


@given(
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=60),
    slop_s=st.sampled_from([0.0, 0.05, 0.3]),
)
def test_pairs_are_disjoint_ordered_and_within_the_slop(steps, slop_s):
    streams, clock_s = Streams(slop_s=slop_s), [0.0, 0.0]
    for of_info, step in steps:
        clock_s[of_info] += step / 100
        (streams.info if of_info else streams.image)(clock_s[of_info])
    for of_one in zip(*streams.pairs, strict=True):
        assert list(of_one) == sorted(set(of_one))
    assert all(abs(a - b) <= slop_s + 1e-9 for a, b in streams.pairs)


@pytest.fixture(scope="module")
def frames(walk):
    K = np.array([[262.0, 0, 159.5], [0, 262.0, 119.5], [0, 0, 1]])
    camera = Camera.from_K(K, 320, 240)
    return list(SyntheticSource("walk", 6, rate_hz=5, camera=camera, world=walk.world))


class NodeWithCamera:
    """A node that loses no message, and a camera whose messages come in any order."""

    def __init__(self, robot, frames):
        self.robot, self._frames = robot, frames
        self.images = robot.speak(Image, "image", 100)
        self.infos = robot.speak(CameraInfo, "camera_info", 100)
        self._answers = robot.listen(Odometry, "/lgc_odometry/odometry")

    def all_answered(self, start_ns):
        """Show all frames from this time on, each after the answer to the one before."""
        for index, frame in enumerate(self._frames):
            sent = replace(frame, stamp_ns=start_ns + index * SECOND_NS)
            self.infos.publish(info_message(sent))
            self.images.publish(image_message(sent))
            self._await_answer(sent.stamp_ns)

    def _await_answer(self, sent_ns):
        def answered():
            return any(stamp_ns(answer.header.stamp) == sent_ns for answer in self._answers)

        self.robot.spin_until(answered, f"the answer to the image of {sent_ns}")

    def heard(self, key, count):
        """Wait until the node reports so many messages, such as `images`."""
        reports = self.robot.listen(DiagnosticArray, "/diagnostics")

        def counted():
            values = {v.key: v.value for r in reports[-1:] for v in r.status[0].values}
            return int(values.get(key, 0)) >= count

        self.robot.spin_until(counted, f"{count} {key}")


@pytest.fixture(params=["false", "true"], ids=["exact", "approximate"])
def node(request, tmp_path, frames):
    reliable = {
        f"qos_overrides./{topic}.subscription.{policy}": value
        for topic in ("image", "camera_info")
        for policy, value in (("reliability", "reliable"), ("depth", 100))
    }
    parameters = {"base_frame": FRAME, "approximate_sync": request.param}
    with running_node(tmp_path, **reliable, **parameters) as robot:
        yield NodeWithCamera(robot, frames)
        assert robot.end(signal.SIGINT) == 0
        assert "Traceback" not in robot.log


def test_the_node_survives_a_negative_stamp_and_names_the_remedy(node, frames):
    for _ in range(3):
        info = info_message(frames[0])
        info.header.stamp = Time(sec=-5)
        node.infos.publish(info)
    node.all_answered(frames[0].stamp_ns)
    assert node.robot.log.count("ignored because of its negative stamp (-5.000 s)") == 1


def test_the_node_pairs_after_images_of_the_future_without_camera_info(node, frames):
    future_ns = frames[0].stamp_ns + HOUR_NS
    for index in range(12):
        node.images.publish(image_message(frames[0], future_ns + index * SECOND_NS))
    node.heard("images", 12)
    node.all_answered(frames[0].stamp_ns)


def test_the_node_pairs_after_camera_infos_whose_images_were_lost_before_a_loop(node, frames):
    end_ns = frames[0].stamp_ns + HOUR_NS
    node.all_answered(end_ns - len(frames) * SECOND_NS)
    for index in range(12):
        node.infos.publish(info_message(frames[0], end_ns + index * SECOND_NS))
    node.heard("camera_infos", len(frames) + 12)
    node.all_answered(frames[0].stamp_ns)

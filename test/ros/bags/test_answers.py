"""Playback in step with a node that answers images, late, or never."""

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from ros.bags.bag_commands import (
    FRAMES,
    IMAGES,
    INFOS,
    STAMPS_NS,
    STORE,
    TYPES,
    messages,
    playing,
    stamps,
)
from ros.processes import DEADLINE_S
from rosbags.rosbag2 import StoragePlugin, Writer
from sensor_msgs.msg import CameraInfo, Image


def test_in_step_playback_waits_for_the_answer_to_each_image(bag, tmp_path):
    words = bag, "--topics", IMAGES, "--wait-for-subscribers", IMAGES, "--in-step-with", "/answer"
    with playing(tmp_path, *words, "--rate", 100) as player:
        images = player.listen(Image, IMAGES)
        answers = player.speak(CameraInfo, "/answer")
        for number in range(1, FRAMES + 1):
            player.spin_until(lambda number=number: len(images) >= number, "the next image")
            assert stamps(images) == STAMPS_NS[:number]
            answers.publish(CameraInfo(header=images[-1].header))
        assert player.process.wait(DEADLINE_S) == 0


def test_in_step_playback_sends_an_image_and_its_camera_info_again(bag, tmp_path):
    """Whoever answers did not receive the first images: best-effort QoS loses some."""
    words = bag, "--topics", IMAGES, "--topics", INFOS, "--wait-for-subscribers", IMAGES
    step = "--in-step-with", "/answer", "--answer-timeout", 4
    with playing(tmp_path, *words, *step, "--duration", 0.08) as player:
        images, infos = player.listen(Image, IMAGES), player.listen(CameraInfo, INFOS)
        answers = player.speak(CameraInfo, "/answer")
        for sent_ns in STAMPS_NS[:2]:
            for heard in (images, infos):
                player.spin_until(lambda h=heard, ns=sent_ns: stamps(h).count(ns) == 2, "it again")
            answers.publish(CameraInfo(header=images[-1].header))
        assert player.process.wait(DEADLINE_S) == 0
        assert "has not answered" not in player.log


def test_depth_images_are_neither_answered_nor_held(tmp_path):
    depth = "/depth/image"
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        for topic in (IMAGES, depth):
            connection = writer.add_connection(topic, TYPES[IMAGES], typestore=STORE)
            for stamp in STAMPS_NS[:3]:
                message = messages(stamp)[IMAGES]
                message.encoding = "32FC1" if topic == depth else message.encoding
                writer.write(connection, stamp, bytes(STORE.serialize_cdr(message, TYPES[IMAGES])))
    step = "--in-step-with", "/answer", "--answer-timeout", 4
    with playing(tmp_path, tmp_path / "bag", *step) as player:
        images, depths = player.listen(Image, IMAGES), player.listen(Image, depth)
        answers = player.speak(CameraInfo, "/answer")
        for number in range(1, 4):
            # As a node does whose scale is that of the depth images.
            player.spin_until(lambda n=number: min(len(images), len(depths)) >= n, "both images")
            answers.publish(CameraInfo(header=images[-1].header))
        assert player.process.wait(DEADLINE_S) == 0
        assert "has not answered" not in player.log


def test_unanswered_image_topics_are_not_held_if_the_answered_one_is_named(tmp_path):
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        for topic in (IMAGES, "/other/image"):
            connection = writer.add_connection(topic, TYPES[IMAGES], typestore=STORE)
            for shift, stamp in enumerate(STAMPS_NS[:3]):
                message = messages(stamp if topic == IMAGES else stamp + shift)[IMAGES]
                data = bytes(STORE.serialize_cdr(message, TYPES[IMAGES]))
                writer.write(connection, stamp, data)
    named = "--wait-for-subscribers", IMAGES, "--in-step-with", "/answer"
    with playing(tmp_path, tmp_path / "bag", *named) as player:
        images = player.listen(Image, IMAGES)
        answers = player.speak(CameraInfo, "/answer")
        for number in range(1, 4):
            player.spin_until(lambda number=number: len(images) >= number, "the next image")
            answers.publish(CameraInfo(header=images[-1].header))
        assert player.process.wait(DEADLINE_S) == 0
        assert "has not answered" not in player.log


def test_a_node_that_never_answers_ends_playback_with_its_diagnostics(bag, tmp_path):
    words = bag, "--topics", IMAGES, "--wait-for-subscribers", IMAGES
    step = "--in-step-with", "/robot/answer", "--answer-timeout", 1
    with playing(tmp_path, *words, *step) as player:
        images = player.listen(Image, IMAGES)
        player.speak(CameraInfo, "/robot/answer")
        reports = player.speak(DiagnosticArray, "/diagnostics")

        def report(name, message, faults):
            values = [KeyValue(key="faults", value=str(faults))]
            status = DiagnosticStatus(name=name, message=message, values=values)
            reports.publish(DiagnosticArray(status=[status]))

        player.spin_until(lambda: images, "an image")
        report("battery: charge", "full", 0)
        report("robot: odometry", "no transform to the camera", 1)
        player.spin_until(lambda: len(set(stamps(images))) == 2, "the next image")
        report("robot: odometry", "nobody publishes images", 1)
        assert player.process.wait(DEADLINE_S) == 1
        printed = " ".join(player.log.split())
        assert "error: /robot/answer answered 0 of 3 images, and none of the last 3" in printed
        assert "/diagnostics says: no transform to the camera" in printed

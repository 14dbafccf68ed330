"""What the node does with images that are late, lost, invalid, too many or from elsewhere."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path as FilePath

import cv2
import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from diagnostic_msgs.msg import DiagnosticStatus
from nav_msgs.msg import Odometry
from rclpy.qos import QoSProfile, ReliabilityPolicy
from ros.node.connected import (
    HOUR_NS,
    NODE,
    OVERRIDES,
    QUEUE,
    SECOND_NS,
    ShownCamera,
    changed,
    diagnosis,
    fresh_report,
    heard,
    is_origin,
    says,
    values,
)
from ros.processes import (
    FRAME,
    environment,
    info_message,
    running_node,
    stamp,
)
from sensor_msgs.msg import Image
from std_srvs.srv import Empty

from lgc_ros.geometry.camera import Camera


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


@pytest.mark.usefixtures("with_and_without_pipeline")
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
        tests = str(FilePath(__file__).parents[2])
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

"""Start, transitions and end of the node, and what it says when it cannot start."""

import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from nav_msgs.msg import Odometry
from rclpy.qos import ReliabilityPolicy
from ros.node.connected import (
    NODE,
    SECOND_NS,
    diagnosis,
    fresh_report,
    is_origin,
    says,
    set_parameter,
)
from ros.processes import (
    DEADLINE_S,
    FRAME,
    completed,
    compressed_message,
    environment,
    free_domain,
    image_message,
    info_message,
    running_node,
    stamp,
)
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from lgc_ros.filter.checkpoint import find_model


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

        def reported_in_simulated_time():
            return any(report.header.stamp == stamp(now_ns) for report in reports)

        robot.spin_until(reported_in_simulated_time, "a report, though the clock stands still")
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


def test_a_damaged_model_ends_the_node_with_the_reason(tmp_path):
    model = tmp_path / "copied.safetensors"
    damaged = bytearray(find_model("sift").read_bytes())
    damaged[-3] ^= 1  # one bit of a weight
    model.write_bytes(damaged)
    with running_node(tmp_path, method="cn", model=str(model)) as robot:
        assert robot.process.wait(DEADLINE_S) == 1
        assert robot.log.count("copied.safetensors is damaged: its checksum") == 1
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

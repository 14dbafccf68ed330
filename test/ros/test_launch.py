"""The launch files as `ros2 launch` runs them: upstream's launch, real processes, real DDS."""

import json
import re
import runpy
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("launch_ros", reason="launch_ros is not installed: no launch files to run")

from launch.launch_description_sources import get_launch_description_from_python_launch_file
from nav_msgs.msg import Odometry
from rcl_interfaces.srv import GetParameters
from rclpy.parameter import parameter_value_to_python
from rclpy.qos import ReliabilityPolicy
from ros.processes import running_process

from lgc_ros.geometry.camera import Camera
from lgc_ros.sources.bag_poses import read_poses
from lgc_ros.sources.bag_writer import CAMERA_FRAME, write_bag
from lgc_ros.sources.synthetic import SyntheticSource

ROOT = Path(__file__).parents[2]
ODOMETRY, REPLAY = (ROOT / "launch" / f"{name}.launch.py" for name in ("odometry", "replay"))
METHOD = {"method": "poselib+ratio"}
DEADLINE_S = 300.0  # that only what hangs meets
# What `ros2 launch` does without a terminal; it is a package of its own.
RUN = """
import sys
from launch import LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import AnyLaunchDescriptionSource

path, *arguments = sys.argv[1:]
arguments = [argument.split(":=", 1) for argument in arguments]
included = IncludeLaunchDescription(AnyLaunchDescriptionSource(path), launch_arguments=arguments)
service = LaunchService(noninteractive=True)
service.include_launch_description(LaunchDescription([included]))
sys.exit(service.run())
"""
PROGRAMS = {
    (
        "lgc_ros",
        "odometry_node",
    ): "from lgc_ros.cli.ros import odometry_node as main; sys.exit(main())",
    ("lgc_ros", "lgc"): "from lgc_ros.cli.main import main; main()",
    ("rviz2", "rviz2"): "import time; print('rviz2', *sys.argv[1:], flush=True); time.sleep(600)",
}


@pytest.fixture(autouse=True)
def workspace(tmp_path, monkeypatch):
    """A prefix with our programs, and one that prints the arguments of RViz, as installed."""
    prefix = tmp_path / "install"
    index = prefix / "share" / "ament_index" / "resource_index" / "packages"
    index.mkdir(parents=True)
    for (package, program), code in PROGRAMS.items():
        (index / package).touch()
        script = prefix / "lib" / package / program
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f'#!/bin/sh\nexec \'{sys.executable}\' -c "import sys; {code}" "$@"\n')
        script.chmod(0o755)
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(prefix), prepend=":")
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")


@contextmanager
def launched(folder, file, **arguments):
    """A running launch file, and the robot around it."""
    words = [f"{name}:={value}" for name, value in arguments.items()]
    with running_process(folder, [sys.executable, "-c", RUN, str(file), *words]) as robot:
        try:
            yield robot
        finally:
            # If it were killed, what it has started would go on.
            robot.process.send_signal(signal.SIGINT)
            robot.process.wait(DEADLINE_S)


def ended(folder, file, **arguments) -> tuple[int, str]:
    """Exit code and log of a launch file that ends by itself."""
    with launched(folder, file, **arguments) as robot:
        return robot.process.wait(DEADLINE_S), robot.log


def parameters(robot, node, *names) -> list:
    values = robot.call(GetParameters, f"{node}/get_parameters", names=list(names)).values
    return [parameter_value_to_python(value) for value in values]


def reliability(robot, topic) -> ReliabilityPolicy:
    """Of the node's subscription, once there is one."""
    infos = robot.spin_until(lambda: robot.node.get_subscriptions_info_by_topic(topic), topic)
    return infos[0].qos_profile.reliability


@pytest.mark.parametrize("file", [ODOMETRY, REPLAY], ids=lambda file: file.stem)
def test_every_argument_has_a_description_and_only_the_bag_is_required(file):
    arguments = get_launch_description_from_python_launch_file(str(file)).get_launch_arguments()
    assert {"image", "camera_info", "namespace", "config", "profile", "device", "rviz"} <= {
        argument.name for argument in arguments
    }
    assert all(argument.description for argument in arguments)
    assert {a.name for a in arguments if a.default_value is None} <= {"bag"}


def test_topics_names_and_parameters_reach_the_node_and_it_shuts_down_cleanly(tmp_path):
    arguments = METHOD | {
        "image": "/front/image_raw",
        "camera_info": "front/info",
        "namespace": "robot",
        "name": "vo",
        "profile": "fast",
        "device": "cpu",
        "image_transport": "compressed",
        "rectified": "true",
        "base_to_camera": "0 0 1 0 0 0 1",
        "use_sim_time": "true",
        "reliable": "true",
    }
    with launched(tmp_path, ODOMETRY, **arguments) as robot:
        asked = ("method", "features", "device", "rectified", "base_to_camera", "use_sim_time")
        assert parameters(robot, "/robot/vo", *asked) == [
            *("poselib+ratio", "orb", "cpu", True, [0, 0, 1, 0, 0, 0, 1], True)
        ]
        for topic in ("/front/image_raw/compressed", "/robot/front/info"):
            assert reliability(robot, topic) == ReliabilityPolicy.RELIABLE
        robot.listen(Odometry, "/robot/vo/odometry")
        assert robot.end() == 0
        assert "process has finished cleanly" in robot.log


def test_arguments_override_the_file_and_the_file_overrides_defaults(tmp_path):
    config = tmp_path / "mine.yaml"
    frames = "odom_frame: of_file, base_frame: of_file"
    config.write_text(f"/**: {{ros__parameters: {{{frames}, method: poselib+ratio}}}}")
    with launched(tmp_path, ODOMETRY, config=config, odom_frame="of_argument") as robot:
        asked = parameters(robot, "/lgc_odometry", "odom_frame", "base_frame", "use_sim_time")
        assert asked == ["of_argument", "of_file", False]
        assert reliability(robot, "/image") == ReliabilityPolicy.BEST_EFFORT


def test_the_node_respects_a_namespace_pushed_by_another_launch_file(tmp_path):
    fleet = tmp_path / "fleet.launch.xml"
    fleet.write_text(
        f"""<launch><group><push_ros_namespace namespace="fleet"/><include file="{ODOMETRY}">
        <arg name="namespace" value="one"/><arg name="method" value="poselib+ratio"/>
        <arg name="reliable" value="true"/></include></group></launch>"""
    )
    pytest.importorskip("launch_xml", reason="launch_xml is not installed")
    with launched(tmp_path, fleet) as robot:
        assert parameters(robot, "/fleet/one/lgc_odometry", "method") == ["poselib+ratio"]
        assert reliability(robot, "/fleet/one/image") == ReliabilityPolicy.RELIABLE


def test_rviz_shows_the_topics_of_a_renamed_node(tmp_path):
    arguments = METHOD | {
        "rviz": "true",
        "namespace": "robot",
        "name": "vo",
        "odom_frame": "world",
    }
    with launched(tmp_path, ODOMETRY, **arguments) as robot:
        arguments = robot.spin_until(
            lambda: [line for line in robot.log.splitlines() if "rviz2 --display-config" in line]
        )[0]
    assert "lgc.rviz --fixed-frame world" in arguments
    assert "__ns:=/robot" in arguments
    for topic in re.findall(r"/lgc_odometry/(\w+)", (ROOT / "config" / "lgc.rviz").read_text()):
        assert f"/lgc_odometry/{topic}:=vo/{topic}" in arguments


@pytest.mark.parametrize(
    ("file", "arguments", "reason"),
    [
        (ODOMETRY, {"rviz": "maybe"}, "Valid options are: ('true', 'false')"),
        (ODOMETRY, {"config": "nowhere.yaml"}, "config:=nowhere.yaml is not a file"),
        (ODOMETRY, {"rviz": "true", "rviz_config": "my.rviz"}, "rviz_config:=my.rviz is not a"),
        (ODOMETRY, {"rectified": "perhaps"}, "rectified:=perhaps cannot be used"),
        (ODOMETRY, {"base_to_camera": "1 2 three"}, "base_to_camera:=1 2 three cannot be used"),
        (REPLAY, {}, "missing required argument 'bag'"),
        (REPLAY, {"bag": "nowhere"}, "bag:=nowhere does not exist"),
        (
            REPLAY,
            {"bag": ".", "record": "odometry paths"},
            "record:=paths is not an output: did you mean 'path'?",
        ),
        (REPLAY, {"bag": ".", "rate": "0"}, "rate:=0 cannot be used: give a positive number"),
        (REPLAY, {"bag": ".", "answer_timeout": "long"}, "answer_timeout:=long cannot be used"),
        (REPLAY, {"bag": ".", "out": __file__}, f"out:={__file__} cannot be created"),
    ],
)
def test_an_invalid_argument_aborts_the_launch_and_is_named(tmp_path, file, arguments, reason):
    code, log = ended(tmp_path, file, **arguments)
    assert code == 1
    assert reason in log
    assert "waiting for" not in log


def test_without_rviz_installed_nothing_is_started_and_left_running(tmp_path):
    (tmp_path / "install/share/ament_index/resource_index/packages/rviz2").unlink()
    code, log = ended(tmp_path, ODOMETRY, rviz="true")
    assert code == 1
    assert "rviz:=true needs RViz, which is not installed: install the package" in log
    assert "process started" not in log


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"method": "foo"}, "could not configure: unknown method 'foo'"),
        ({"image": "two words"}, "invalid argument -r image:=two words: give NAME:=NAME"),
    ],
    ids=str,
)
def test_an_invalid_parameter_ends_the_launch_with_the_reason_of_the_node(
    tmp_path, arguments, reason
):
    code, log = ended(tmp_path, ODOMETRY, **arguments, rviz="true")
    assert code == 1
    assert reason in log
    assert log.count("failed with exit code 1, see its log above") == 1
    assert "[odometry_node-1] Traceback" not in log


# Another launch file, with an argument of its own and something else to run.
ROBOT = """
from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, ExecuteProcess, IncludeLaunchDescription

def generate_launch_description():
    node = IncludeLaunchDescription({file!r}, launch_arguments=[("method", "foo")])
    arm = ExecuteProcess(cmd=["sleep", "600"], name="arm")
    return LaunchDescription([DeclareLaunchArgument("wheels"), node, arm])
"""


def test_a_failing_node_leaves_the_rest_of_a_robot_running(tmp_path):
    file = tmp_path / "robot.launch.py"
    file.write_text(ROBOT.format(file=str(ODOMETRY)))
    with launched(tmp_path, file, wheels=3) as robot:
        robot.spin_until(lambda: "[odometry_node-1]: process has died" in robot.log)
        assert robot.end() == 1
        assert "[arm-2]: process has died" in robot.log.partition("user interrupted")[2]


@pytest.mark.parametrize(
    ("file", "argument", "remedy"),
    [(ODOMETRY, "metod", "did you mean 'method'?"), (REPLAY, "xyz", "known are align, ")],
)
def test_an_unknown_argument_is_refused_with_the_known_ones(tmp_path, file, argument, remedy):
    required = {"bag": tmp_path} if file is REPLAY else {}
    code, log = ended(tmp_path, file, **required, **{argument: "cn"})
    assert code == 1
    assert f"unknown launch argument '{argument}': {remedy}" in log
    assert "process started" not in log


@pytest.fixture(scope="module")
def bag(tmp_path_factory, walk):
    """Five views of a walk, with true poses."""
    pytest.importorskip("rosbags", reason="rosbags is not installed: no bags")
    camera = Camera.from_K([[262.0, 0, 159.5], [0, 262.0, 119.5], [0, 0, 1]], 320, 240)
    path = tmp_path_factory.mktemp("bags") / "walk"
    write_bag(SyntheticSource("walk", 5, rate_hz=5.0, camera=camera, world=walk.world), path)
    return path


def test_a_replay_processes_records_and_evaluates_every_image(tmp_path, bag):
    pytest.importorskip("evo", reason="evo is not installed: no trajectory errors")
    arguments = METHOD | {"bag": bag, "out": tmp_path / "out", "gt": "/ground_truth"}
    code, log = ended(
        tmp_path, REPLAY, **arguments, base_frame=CAMERA_FRAME, namespace="robot", name="vo"
    )
    assert code == 0, log
    poses = read_poses(tmp_path / "out" / "odometry.mcap", "/robot/vo/odometry")
    true = read_poses(bag, "/ground_truth")
    assert poses.stamps_ns.tolist() == true.stamps_ns.tolist()
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["poses"] == 5


@pytest.mark.parametrize("gt", ["/camera/image_raw", "nowhere.txt"])
def test_ground_truth_that_cannot_be_used_is_refused_before_the_replay(tmp_path, bag, gt):
    pytest.importorskip("evo", reason="evo is not installed: no trajectory errors")
    code, log = ended(tmp_path, REPLAY, bag=bag, out=tmp_path / "out", gt=gt)
    assert code == 1
    assert f"gt:={gt} is neither a file nor a topic with poses: {bag} has /camera/" in log
    assert "process started" not in log


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"image": "/other/image"}, "has no /other/image"),
        ({"method": "foo"}, "could not configure: unknown method 'foo'"),
        # The node waits for a transform, if tf2 is installed, longer than a topic may be silent.
        (
            {"base_frame": "nosuch", "answer_timeout": 12.0},
            "answered 0 of 3 images, and none of the last 3 within 12 s; /diagnostics says: no "
            f"transform from base_frame 'nosuch' to camera frame '{CAMERA_FRAME}'",
        ),
    ],
    ids=str,
)
def test_a_failing_replay_ends_with_the_reason(tmp_path, bag, arguments, reason):
    code, log = ended(tmp_path, REPLAY, bag=bag, out=tmp_path / "out", **METHOD | arguments)
    assert code == 1
    assert reason in log
    assert "Traceback" not in log
    assert not (tmp_path / "out" / "metrics.json").exists()


def test_a_replay_can_record_all_outputs_of_the_node(tmp_path):
    outputs = runpy.run_path(str(REPLAY))["OUTPUTS"]
    with launched(tmp_path, ODOMETRY, **METHOD) as robot:
        robot.listen(Odometry, "/lgc_odometry/odometry")

        def published():
            names = {name for name, _ in robot.node.get_topic_names_and_types()}
            own = {name for name in names if name.startswith("/lgc_odometry/")}
            own = {name for name in own if robot.node.count_publishers(name)}
            return own >= {f"/lgc_odometry/{output}" for output in outputs} and own

        assert robot.spin_until(published) == {
            f"/lgc_odometry/{output}" for output in (*outputs, "transition_event")
        }

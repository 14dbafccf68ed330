"""Visual odometry of one camera, optionally with RViz.

    ros2 launch lgc_ros odometry.launch.py image:=/cam/image_raw camera_info:=/cam/camera_info

`--show-args` lists all arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import launch.logging
from ament_index_python.packages import PackageNotFoundError, get_package_prefix
from launch import LaunchContext, LaunchDescription
from launch.action import Action
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.conditions import IfCondition
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.utilities import make_namespace_absolute, prefix_namespace

from lgc_ros.ros.dds_profile import choose_dds_profile
from lgc_ros.ros.launching import checked_arguments, failing_with
from lgc_ros.ros.node_parameters import describe_parameters

# The installed share folder and the checkout have the same layout.
CONFIG = Path(__file__).resolve().parents[1] / "config"
NODE = "lgc_odometry"
# The node finishes the current frame, which may take long on a small computer.
CLOSING_S = "30"
# A killed process leaves its shared memory behind.
KILLED_AFTER_S = "20"
TRUE_FALSE = ("true", "false")
LOG_LEVELS = ("debug", "info", "warn", "error", "fatal")

INPUTS = {
    "image": "Image topic; for compressed images, without the suffix /compressed",
    "camera_info": "CameraInfo topic, with the stamps of the images",
    "odom": "Wheel odometry topic, for scale.source odom",
    "depth": "Depth image topic, for scale.source depth",
}
# Outputs of the node that the RViz configuration shows.
SHOWN = ("odometry", "path", "inliers", "matches_image")


def _numbers(text: str) -> list[float]:
    return [float(word) for word in text.strip("[] ").replace(",", " ").split()]


def _boolean(text: str) -> bool:
    if text.lower() not in TRUE_FALSE:
        raise ValueError("use true or false")
    return text.lower() == "true"


# Parameters of the node that are also launch arguments, with the type of their values.
PARAMETERS: dict[str, Callable[[str], Any]] = {
    "profile": str,
    "method": str,
    "device": str,
    "image_transport": str,
    "rectified": _boolean,
    "odom_frame": str,
    "base_frame": str,
    "base_to_camera": _numbers,
    "publish_tf": _boolean,
    "background_mapping": _boolean,
}


def generate_launch_description() -> LaunchDescription:
    descriptions = describe_parameters()
    description = LaunchDescription(
        [
            *(
                DeclareLaunchArgument(name, default_value=name, description=description)
                for name, description in INPUTS.items()
            ),
            DeclareLaunchArgument(
                "namespace", default_value="", description="Namespace of the node and its topics"
            ),
            DeclareLaunchArgument("name", default_value=NODE, description="Name of the node"),
            DeclareLaunchArgument(
                "config",
                default_value=str(CONFIG / "odometry.yaml"),
                description="YAML file with the parameters of the node",
            ),
            *(
                DeclareLaunchArgument(
                    name,
                    default_value="",
                    description=f"{descriptions[name]}; empty: as in config",
                )
                for name in PARAMETERS
            ),
            DeclareLaunchArgument(
                "use_sim_time",
                default_value="false",
                choices=TRUE_FALSE,
                description="Use the time of /clock, for bags and simulators",
            ),
            DeclareLaunchArgument(
                "reliable",
                default_value="false",
                choices=TRUE_FALSE,
                description="Subscribe with reliable QoS, for bags; the publisher must offer it",
            ),
            DeclareLaunchArgument(
                "log_level",
                default_value="info",
                choices=LOG_LEVELS,
                description="Log level of the node",
            ),
            DeclareLaunchArgument(
                "rviz", default_value="false", choices=TRUE_FALSE, description="Start RViz"
            ),
            DeclareLaunchArgument(
                "rviz_config",
                default_value=str(CONFIG / "lgc.rviz"),
                description="RViz configuration file",
            ),
            OpaqueFunction(function=_start),
        ]
    )
    return checked_arguments(__file__, description)


def _start(context: LaunchContext) -> list[Action]:
    """The node, and RViz in the same namespace, with its displays remapped to the node."""

    def value(name: str) -> str:
        return LaunchConfiguration(name).perform(context)

    # A launch file that includes this one may have pushed a namespace.
    pushed = context.launch_configurations.get("ros_namespace")
    namespace = make_namespace_absolute(prefix_namespace(pushed, value("namespace")))
    logger = f"{namespace}/{value('name')}".strip("/").replace("/", ".")
    sim_time = {"use_sim_time": True} if value("use_sim_time") == "true" else {}
    overrides = _given(value) | _qos(namespace, value) | sim_time
    config = _existing("config", value("config"), "a YAML file")
    if value("rviz") == "true":
        _check_rviz(value("rviz_config"))
    dds = choose_dds_profile(context.environment, CONFIG, 2 if value("rviz") == "true" else 1)
    if dds.environment:  # otherwise the node logs why not
        dds.log_to(launch.logging.get_logger("lgc_ros"))
    node = Node(
        package="lgc_ros",
        executable="odometry_node",
        namespace=namespace,
        name=value("name"),
        parameters=[config, overrides],
        remappings=[(name, value(name)) for name in INPUTS],
        ros_arguments=["--log-level", f"{logger}:={value('log_level')}"],
        additional_env=dds.environment,
        output="screen",
        emulate_tty=True,
        sigterm_timeout=CLOSING_S,
        sigkill_timeout=KILLED_AFTER_S,
    )
    frame = ["--fixed-frame", value("odom_frame")] if value("odom_frame") else []
    rviz = Node(
        package="rviz2",
        executable="rviz2",
        namespace=namespace,
        name=f"{value('name')}_rviz",
        parameters=[sim_time],
        remappings=[(f"/{NODE}/{topic}", f"{value('name')}/{topic}") for topic in SHOWN],
        arguments=["--display-config", value("rviz_config"), *frame],
        additional_env=dds.environment,
        output="screen",
        condition=IfCondition(value("rviz")),
    )
    return [failing_with(node, rviz), node, rviz]


def _given(value: Callable[[str], str]) -> dict[str, Any]:
    """Parameters given as arguments, which override those of the file."""
    given = {}
    for name, read in PARAMETERS.items():
        text = value(name)
        try:
            if text:
                given[name] = read(text)
        except ValueError as error:
            raise ValueError(
                f"{name}:={text} cannot be used ({error}): {describe_parameters()[name]}"
            ) from error
    return given


def _qos(namespace: str, value: Callable[[str], str]) -> dict[str, str]:
    """QoS overrides of the camera topics, whose parameters contain fully qualified names."""
    if value("reliable") == "false":
        return {}
    relative = value("image"), f"{value('image')}/compressed", value("camera_info")
    topics = [prefix_namespace(namespace, topic) for topic in relative]
    return {f"qos_overrides.{topic}.subscription.reliability": "reliable" for topic in topics}


def _existing(argument: str, path: str, kind: str) -> str:
    """Check that the file exists; launch_ros ignores missing parameter files."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"{argument}:={path} is not a file: give the path of {kind}")
    return path


def _check_rviz(config: str) -> None:
    """Check that RViz can start: if launch found out itself, it would leave the node running."""
    _existing("rviz_config", config, "an RViz configuration")
    try:
        get_package_prefix("rviz2")
    except PackageNotFoundError as error:
        raise ValueError(
            "rviz:=true needs RViz, which is not installed: install the package "
            "ros-$ROS_DISTRO-rviz2, or launch without rviz"
        ) from error

"""Play a bag to the node, record its output, and evaluate it against ground truth.

    ros2 launch lgc_ros replay.launch.py bag:=my_bag gt:=/ground_truth out:=results/replay

The arguments of odometry.launch.py apply as well; `--show-args` lists all. Bags are played and
recorded by `lgc` instead of `ros2 bag`: it publishes an image only after the node has answered the
previous one, so that a slow machine loses no frames and replays are repeatable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from launch import LaunchContext, LaunchDescription
from launch.action import Action
from launch.actions import (
    DeclareLaunchArgument,
    EmitEvent,
    ExecuteProcess,
    IncludeLaunchDescription,
    OpaqueFunction,
    RegisterEventHandler,
    TimerAction,
)
from launch.event_handlers import OnProcessExit
from launch.events import Shutdown, matches_action
from launch.events.process import ProcessExited, ShutdownProcess
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.substitutions import ExecutableInPackage

from lgc_ros.errors import did_you_mean
from lgc_ros.evaluation.trajectory_metrics import load_evo
from lgc_ros.ros.dds_profile import choose_dds_profile
from lgc_ros.ros.launching import checked_arguments
from lgc_ros.sources.bag_reader import open_bag, topic_listing, topic_types
from lgc_ros.sources.bag_types import POSE_TYPES
from lgc_ros.sources.trajectory import read_trajectory_file

# The installed share folder and the checkout have the same layout.
SHARE = Path(__file__).resolve().parents[1]
TRUE_FALSE = ("true", "false")
PROCESSES = 3  # node, player and recorder
RECORDING = "odometry.mcap"
OUTPUTS = ("odometry", "pose", "relative_pose", "path", "inliers", "matches_image")
ALIGNMENTS = ("sim3", "se3", "scale", "none")
# The node may take minutes to start on a small computer.
START_S = 300.0
# With in_step:=false, the node may still be processing after the last image.
LAST_FRAME_S = 3.0
# Time to write the index of the recording on a busy machine.
CLOSING_S = "60"


def generate_launch_description() -> LaunchDescription:
    node = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(SHARE / "launch" / "odometry.launch.py")),
        launch_arguments={
            "use_sim_time": "true",
            "reliable": "true",
            "background_mapping": "false",  # repeatable
        }.items(),
    )
    description = LaunchDescription(
        [
            *_arguments(),
            OpaqueFunction(function=_prepare),
            node,
            OpaqueFunction(function=_replay),
        ]
    )
    return checked_arguments(__file__, description)


def _arguments() -> list[DeclareLaunchArgument]:
    return [
        DeclareLaunchArgument("bag", description="rosbag2 folder, .mcap or .db3 file to play"),
        DeclareLaunchArgument(
            "image",
            default_value="/camera/image_raw",
            description="Image topic in the bag; for compressed images, without the suffix "
            "/compressed",
        ),
        DeclareLaunchArgument(
            "camera_info",
            default_value="/camera/camera_info",
            description="CameraInfo topic in the bag",
        ),
        DeclareLaunchArgument(
            "out",
            default_value="replay",
            description="Folder for odometry.mcap and, with gt, metrics.json",
        ),
        DeclareLaunchArgument(
            "gt",
            default_value="",
            description="Ground truth of base_frame: a topic of the bag, or a TUM or KITTI file; "
            "empty: no evaluation",
        ),
        DeclareLaunchArgument(
            "align",
            default_value="sim3",
            choices=ALIGNMENTS,
            description="Alignment applied before computing errors",
        ),
        DeclareLaunchArgument(
            "rate", default_value="1.0", description="Maximum playback rate; 1.0 is real time"
        ),
        DeclareLaunchArgument(
            "in_step",
            default_value="true",
            choices=TRUE_FALSE,
            description="Hold each image until the node has answered the previous one; false: "
            "play without waiting, as a camera would",
        ),
        DeclareLaunchArgument(
            "answer_timeout",
            default_value="20.0",
            description="Seconds to wait for the answer to an image; the replay fails after "
            "three consecutive images without one",
        ),
        DeclareLaunchArgument(
            "record",
            default_value="odometry relative_pose",
            description=f"Outputs of the node to record: {', '.join(OUTPUTS)}",
        ),
    ]


def _prepare(context: LaunchContext) -> None:
    """Check the arguments before any process starts."""

    def value(name: str) -> str:
        return LaunchConfiguration(name).perform(context)

    for output in value("record").split():
        if output not in OUTPUTS:
            hint = did_you_mean(output, OUTPUTS)
            raise ValueError(f"record:={output} is not an output: {hint}")
    for name in ("rate", "answer_timeout"):
        _check_positive(name, value(name))
    bag, out = Path(value("bag")), Path(value("out"))
    if not bag.exists():
        raise FileNotFoundError(f"bag:={bag} does not exist: give the path of a bag")
    if value("gt"):
        _check_ground_truth(bag, value("gt"))
    if (out / RECORDING).exists():
        raise FileExistsError(
            f"{out / RECORDING} already exists: choose another folder with out:=FOLDER"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"out:={out} cannot be created ({error.strerror}): choose another folder"
        ) from error


def _check_positive(name: str, text: str) -> None:
    try:
        positive = 0 < float(text) < math.inf
    except ValueError:
        positive = False
    if not positive:
        raise ValueError(f"{name}:={text} cannot be used: give a positive number")


def _check_ground_truth(bag: Path, gt: str) -> None:
    """Find out now, and not after the replay, that there is nothing to compare with."""
    load_evo()
    if Path(gt).is_file():
        read_trajectory_file(gt)
        return
    with open_bag(bag, quiet=True) as reader:
        if topic_types(reader).get(gt) not in POSE_TYPES:
            raise ValueError(
                f"gt:={gt} is neither a file nor a topic with poses: {bag} has "
                f"{topic_listing(reader)}"
            )


def _replay(context: LaunchContext) -> list[Action]:
    """Start recorder and player, which waits for it and for the node; then evaluate."""

    def value(name: str) -> str:
        return LaunchConfiguration(name).perform(context)

    bag, out = value("bag"), Path(value("out"))
    recording = out / RECORDING
    node = "/".join(["", *filter(None, f"{value('namespace')}/{value('name')}".split("/"))])
    outputs = dict.fromkeys(["odometry", *value("record").split()])
    topics = [f"{node}/{output}" for output in outputs]
    odometry = topics[0]

    image, camera_info = value("image"), value("camera_info")
    if value("image_transport") == "compressed":
        image = f"{image}/compressed"
    # Remapping a topic to itself makes the player reject a bag that lacks it.
    held = [f"--remap={topic}:={topic}" for topic in (image, camera_info)]
    awaited = [f"--wait-for-subscribers={topic}" for topic in (image, camera_info, *topics)]
    step = [f"--in-step-with={odometry}", f"--answer-timeout={value('answer_timeout')}"]
    step = step if value("in_step") == "true" else []
    dds = choose_dds_profile(context.environment, SHARE / "config", PROCESSES).environment

    record = _lgc(dds, "record", str(recording), *topics, "/diagnostics")
    play = _lgc(
        *(dds, "play", bag, "--clock", "--reliable", f"--rate={value('rate')}"),
        *(*held, *awaited, f"--wait-timeout={START_S}", *step),
    )
    gt = value("gt")
    truth = gt if not gt or Path(gt).is_file() else f"{bag}:{gt}"
    evaluate = _lgc(
        *(dds, "evaluate", "trajectory", f"{recording}:{odometry}", truth),
        *("--align", value("align"), "--json", str(out / "metrics.json")),
    )

    def on_exit(event: ProcessExited, context: LaunchContext) -> Action | None:
        if context.is_shutdown or event.process_name.startswith("rviz2"):
            return None
        if event.action is play and event.returncode == 0:
            stop = ShutdownProcess(process_matcher=matches_action(record))
            return TimerAction(period=LAST_FRAME_S, actions=[EmitEvent(event=stop)])
        if event.action is record and event.returncode == 0 and truth:
            return evaluate
        if event.action in (record, evaluate) and event.returncode == 0:
            return EmitEvent(event=Shutdown(reason="the replay is complete"))
        if event.action not in (record, play, evaluate) and event.returncode != 0:
            # odometry.launch.py makes launch exit with 1.
            return EmitEvent(event=Shutdown(reason=f"{event.process_name} failed"))
        raise RuntimeError(
            f"the replay failed: {event.process_name} ended with exit code {event.returncode}, "
            "see its log above"
        )

    return [RegisterEventHandler(OnProcessExit(on_exit=on_exit)), record, play]


def _lgc(environment: Mapping[str, str], command: str, *words: str) -> ExecuteProcess:
    return ExecuteProcess(
        cmd=[ExecutableInPackage("lgc", "lgc_ros"), command, *words],
        name=f"lgc_{command}",
        additional_env=environment,
        output="screen",
        sigterm_timeout=CLOSING_S,
    )

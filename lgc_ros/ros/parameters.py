"""Parameters of the node: each with a description, a range where there is one, and its checks.

The settings of odometry are parameters under their own names (`method`, `scale.source`, ...); the
profile gives their defaults. ROS has no null: an empty text or a zero stands for it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.node import Node
from rclpy.parameter import Parameter
from transforms3d.quaternions import quat2mat

from lgc_ros.errors import ConfigError
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.profiles import load_profile
from lgc_ros.odometry.scale import ScaleOptions

TRANSPORTS = ("raw", "compressed")
SCALE = "scale"
# Declared with the subscriptions and publishers, not at the start.
QOS_OVERRIDES = "qos_overrides."
NULLS = {"str | None": "", "int | None": 0, "float | None": 0.0}


@dataclass(frozen=True)
class Setting:
    """What a user is told about a parameter, and what is held to: limits, or no change at all."""

    description: str
    low: float | None = None
    high: float | None = None
    read_only: bool = False


_NODE: dict[str, tuple[Any, Setting]] = {
    "autostart": (True, Setting("configure and activate the node by itself", read_only=True)),
    "profile": (
        "default",
        Setting(
            "defaults of the odometry settings: default, fast, accurate or a YAML file",
            read_only=True,
        ),
    ),
    "image_transport": (
        "raw",
        Setting("raw: topic image; compressed: topic image/compressed", read_only=True),
    ),
    "rectified": (
        False,
        Setting("the images are rectified: use P of camera_info, not K and D", read_only=True),
    ),
    "approximate_sync": (
        False,
        Setting(
            "pair images with a camera_info of nearly the same stamp, not the very same",
            read_only=True,
        ),
    ),
    "sync_slop_s": (
        0.02,
        Setting("largest difference of stamps with approximate_sync, s", 0.0, 10.0, True),
    ),
    "sync_queue": (10, Setting("messages that wait for their counterpart", 1, 1000, True)),
    "pipelined": (
        False,
        Setting("find keypoints of the next image during this one: higher rate, later answers"),
    ),
    "odom_frame": ("odom", Setting("frame of the odometry: base_frame when it started")),
    "base_frame": ("base_link", Setting("frame of the robot whose motion is published")),
    "base_to_camera": (
        None,
        Setting(
            "pose of the camera's optical frame in base_frame: x y z (m) and quaternion x y z w; "
            "without it TF is asked"
        ),
    ),
    "publish_tf": (True, Setting("publish the transform of odom_frame and base_frame")),
    "invert_tf": (
        False,
        Setting("publish it as base_frame -> odom_frame, where base_frame has a parent already"),
    ),
    "path_length": (1000, Setting("poses that ~/path keeps; 0 publishes none", 0, 100_000)),
}

_ODOMETRY: dict[str, Setting] = {
    "method": Setting("which matches to trust: cn (learned filter) or one such as ransac+ratio"),
    "features": Setting("keypoints: sift, rootsift, orb, akaze or an ONNX file"),
    "max_keypoints": Setting("keypoints per image", 50, 20_000),
    "spread": Setting("take keypoints from all over the image, not the strongest only"),
    "model": Setting("filter model: shipped name or .safetensors file; empty: by features"),
    "device": Setting("where the filter runs: auto, cpu, cuda or cuda:N"),
    "engine": Setting("what runs it: auto, torch, openvino, onnxruntime or tensorrt"),
    "threads": Setting("threads that each library may use at most; 0: one per core", 0, 1024),
    "threshold_px": Setting("largest distance of a right match from its line, px", 0.01, 100.0),
    "max_iterations": Setting(
        "samples of the robust estimator; 0: 100 behind the filter, else its own limit",
        0,
        10_000_000,
    ),
    "sigma_px": Setting("standard deviation of a keypoint's position, px", 0.01, 100.0),
    "min_inliers": Setting("right matches a frame needs", 8, 10_000),
    "init_parallax_deg": Setting("parallax at which landmarks can be made, degrees", 0.01, 90.0),
    "keyframe_parallax_deg": Setting("parallax that calls for a keyframe, degrees", 0.01, 90.0),
    "keyframe_turn_deg": Setting("turn that calls for a keyframe, degrees", 0.01, 180.0),
    "keyframe_overlap": Setting("share of matches below which a keyframe is made", 0.01, 0.99),
    "keyframe_interval_s": Setting("time after which half the parallax is enough, s", 0.0, 3600.0),
    "still_px": Setting("motion of the image that counts as none, px", 0.001, 100.0),
    "retry_keyframes": Setting("latest keyframes tried when the current one fails", 0, 1000),
    "lost_after": Setting("frames without matches after which status is lost", 0, 100_000),
    "restart_s": Setting("lost for longer than this, begin anew at the last pose, s", 0.0, 3600.0),
    "max_keyframes": Setting("keyframes remembered", 2, 10_000),
    "window": Setting("keyframes refined together", 2, 1000),
    "window_fixed": Setting("older keyframes that hold the window in place", 0, 1000),
    "window_iterations": Setting("steps of the refinement at most", 0, 1000),
    "seed": Setting("of all random sampling", 0, 2**31 - 1),
    "scale.source": Setting(
        "where metres come from: none, constant_speed, camera_height, odom (topic odom: the wheel "
        "odometry of base_frame) or depth (topic depth: images aligned with the images). While "
        "the topic is silent, the last scale holds; before there is one, the position is held "
        "for scale.wait_s, then the unit is the first baseline, and the covariance says that "
        "positions may be wrong by their own size"
    ),
    "scale.speed_mps": Setting("speed of the robot for constant_speed, m/s", 0.0, 1000.0),
    "scale.camera_height_m": Setting("height over ground for camera_height, m", 0.0, 1000.0),
    "scale.camera_pitch_deg": Setting("how far the camera looks down, degrees", -90.0, 90.0),
    "scale.wait_s": Setting(
        "how long, in seconds of motion, the position is held until odom or depth tells metres",
        0.0,
        1e6,
    ),
}


@dataclass(frozen=True, eq=False)
class NodeParameters:
    """Values of all parameters, checked against one another."""

    autostart: bool
    profile: str
    image_transport: str
    rectified: bool
    approximate_sync: bool
    sync_slop_s: float
    sync_queue: int
    pipelined: bool
    odom_frame: str
    base_frame: str
    T_bc: np.ndarray | None  # (4, 4) camera to base; None: ask TF
    publish_tf: bool
    invert_tf: bool
    path_length: int
    odometry: OdometryOptions

    @property
    def slop_s(self) -> float:
        """Largest difference of the stamps of an image and what belongs to it, seconds."""
        return self.sync_slop_s if self.approximate_sync else 0.0


def declare_parameters(node: Node) -> None:
    """Declare all parameters; `profile` comes first, because it decides the other defaults.

    Raises:
        ConfigError: the profile cannot be read.
    """
    for name, (default, setting) in _NODE.items():
        node.declare_parameter(name, default, _descriptor(setting, default))
    for name, default in flat_settings(load_profile(node.get_parameter("profile").value)).items():
        node.declare_parameter(name, default, _descriptor(_ODOMETRY[name], default))


def default_parameters() -> dict[str, Any]:
    """What holds where nobody says otherwise, by name; what has no default is left out."""
    own = {name: default for name, (default, _) in _NODE.items() if default is not None}
    return own | flat_settings(load_profile())


def describe_parameters() -> dict[str, tuple[Any, str]]:
    """Default value (None: there is none) and description of every parameter, by name."""
    settings = {name: setting for name, (_, setting) in _NODE.items()} | _ODOMETRY
    defaults = default_parameters()
    return {name: (defaults.get(name), s.description) for name, s in settings.items()}


def unknown_parameters(node: Node) -> list[str]:
    """A warning for each value that was given for a parameter that the node does not have."""
    given = [name for name in node._parameter_overrides if not name.startswith(QOS_OVERRIDES)]
    warnings = []
    for name in sorted(name for name in given if not node.has_parameter(name)):
        near = difflib.get_close_matches(name, [*_NODE, *_ODOMETRY], n=1)
        hint = f"did you mean '{near[0]}'?" if near else "see odometry_node --help"
        warnings.append(f"unknown parameter '{name}' is ignored: {hint}")
    return warnings


def deletion_refused(node: Node, changes: Iterable[Parameter]) -> str:
    """Why the changes cannot be made if one of them deletes a parameter; else empty."""
    for change in changes:
        if change.type_ == Parameter.Type.NOT_SET and node.has_parameter(change.name):
            return (
                f"{change.name} cannot be deleted: set another value, or restart the node "
                "without it"
            )
    return ""


def read_parameters(node: Node, changes: Iterable[Parameter] = ()) -> NodeParameters:
    """The values as they are, or as they would be after some changes.

    Raises:
        ConfigError: a value cannot be used; the message says why.
    """
    values = {name: node.get_parameter(name).value for name in (*_NODE, *_ODOMETRY)}
    values |= {parameter.name: parameter.value for parameter in changes}
    if values["image_transport"] not in TRANSPORTS:
        raise ConfigError(
            f"image_transport is '{values['image_transport']}': use {' or '.join(TRANSPORTS)}"
        )
    if not values["odom_frame"] or values["odom_frame"] == values["base_frame"]:
        raise ConfigError("odom_frame and base_frame must be the names of two different frames")
    same = {field.name for field in fields(NodeParameters)} - {"T_bc", "odometry"}
    return NodeParameters(
        T_bc=_mounting(values["base_to_camera"]),
        odometry=_options(values),
        **{name: values[name] for name in same},
    )


def _mounting(numbers: Any) -> np.ndarray | None:
    if numbers is None:
        return None
    try:
        pose = np.array(numbers, np.float64)
    except (TypeError, ValueError):
        pose = np.empty(0)
    if pose.shape != (7,) or not np.isfinite(pose).all():
        raise ConfigError(
            f"base_to_camera is {numbers}: give 7 numbers, x y z (m) and quaternion x y z w"
        )
    if abs(np.linalg.norm(pose[3:]) - 1) > 1e-2:
        raise ConfigError(
            f"the quaternion of base_to_camera, {pose[3:].tolist()}, must have length 1; no "
            "rotation is 0 0 0 1"
        )
    T_bc = np.eye(4)
    T_bc[:3, :3], T_bc[:3, 3] = quat2mat(np.roll(pose[3:], 1)), pose[:3]
    return T_bc


def _options(values: Mapping[str, Any]) -> OdometryOptions:
    def build(kind: type, prefix: str = "") -> dict[str, Any]:
        known = {field.name: values.get(prefix + field.name) for field in fields(kind)}
        nullable = {field.name: NULLS.get(field.type) for field in fields(kind)}
        return {
            name: None if value == nullable[name] and nullable[name] is not None else value
            for name, value in known.items()
        }

    scale = ScaleOptions(**build(ScaleOptions, f"{SCALE}."))
    return OdometryOptions(**build(OdometryOptions) | {SCALE: scale})


def flat_settings(options: OdometryOptions | ScaleOptions, prefix: str = "") -> dict[str, Any]:
    """Settings by name of parameter, with what stands for null."""
    flat: dict[str, Any] = {}
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name == SCALE:
            flat |= flat_settings(value, f"{SCALE}.")
        else:
            flat[prefix + field.name] = NULLS[field.type] if value is None else value
    return flat


def _descriptor(setting: Setting, default: Any) -> ParameterDescriptor:
    descriptor = ParameterDescriptor(
        description=setting.description,
        read_only=setting.read_only,
        # Without a default there is no type; whole numbers are as good as others then.
        dynamic_typing=default is None,
    )
    if isinstance(default, int) and setting.low is not None:
        limits = IntegerRange(from_value=int(setting.low), to_value=int(setting.high), step=1)
        descriptor.integer_range = [limits]
    elif setting.low is not None:
        limits = FloatingPointRange(from_value=setting.low, to_value=setting.high, step=0.0)
        descriptor.floating_point_range = [limits]
    return descriptor

"""All parameters of the node: names, defaults, descriptions and ranges.

The settings of odometry are parameters under their own names (`method`, `scale.source`, ...); the
profile gives their defaults. ROS has no null: an empty string or a zero stands for it. Launch
files read the descriptions from here, so nothing is imported that a plain ROS install lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from lgc_ros.errors import ConfigError
from lgc_ros.odometry.options import MATCH, OdometryOptions
from lgc_ros.odometry.profiles import load_profile
from lgc_ros.odometry.scale import ScaleOptions
from lgc_ros.runtime.settings import Setting, check_ranges, setting, settings_of

TRANSPORTS = ("raw", "compressed")
SCALE = "scale"
_NULLS = {"str | None": "", "int | None": 0, "float | None": 0.0}


@dataclass(frozen=True, eq=False)
class NodeParameters:
    """Values of all parameters, checked against one another."""

    autostart: bool = setting(
        True,
        "Configure and activate on startup; false: wait for a lifecycle manager",
        read_only=True,
    )
    profile: str = setting(
        "default",
        "Defaults of the odometry settings: default, fast, accurate or a YAML file",
        read_only=True,
    )
    image_transport: str = setting(
        "raw",
        "Image transport: raw (topic image) or compressed (topic image/compressed)",
        read_only=True,
    )
    rectified: bool = setting(
        False,
        "Input images are rectified (image_rect topics): use P of camera_info instead of K and D",
        read_only=True,
    )
    approximate_sync: bool = setting(
        False,
        "Pair images with the camera_info and depth of the nearest stamp instead of an equal one",
        read_only=True,
    )
    sync_slop_s: float = setting(
        0.02,
        "Maximum stamp difference with approximate_sync",
        unit="s",
        low=0.0,
        high=10.0,
        read_only=True,
    )
    sync_queue: int = setting(
        10,
        "Queue size per topic of the image and camera_info synchronizer",
        low=1,
        high=1000,
        read_only=True,
    )
    background_mapping: bool = setting(
        True,
        "tracking flow: map keyframes in a thread of their own while tracking goes on; false: the "
        "same images always give the same poses, as offline",
    )
    pipelined: bool = setting(
        False,
        "tracking match: extract keypoints of the next image while tracking this one; higher "
        "rate, more latency",
    )
    odom_frame: str = setting(
        "odom", "Fixed frame of the odometry: base_frame at initialization (REP 105)"
    )
    base_frame: str = setting(
        "base_link",
        "Robot frame whose motion is published; set it to the camera frame for camera motion",
    )
    base_to_camera: tuple[float, ...] | None = setting(
        None,
        "Pose of the camera's optical frame in base_frame: x y z [m] and quaternion x y z w; "
        "default: looked up in TF",
    )
    publish_tf: bool = setting(True, "Publish the transform odom_frame -> base_frame")
    invert_tf: bool = setting(
        False,
        "Publish base_frame -> odom_frame instead, for a base_frame that already has a parent",
    )
    path_length: int = setting(
        1000, "Maximum number of poses in ~/path; 0: do not publish it", low=0, high=100_000
    )
    odometry: OdometryOptions = field(default_factory=OdometryOptions)

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.image_transport not in TRANSPORTS:
            raise ConfigError(
                f"image_transport is '{self.image_transport}': use {' or '.join(TRANSPORTS)}"
            )
        if not self.odom_frame or self.odom_frame == self.base_frame:
            raise ConfigError(
                "odom_frame and base_frame must be the names of two different frames"
            )
        _check_pose(self.base_to_camera)

    @cached_property
    def is_pipelined(self) -> bool:
        """Whether keypoints of the next image are extracted while this one is tracked."""
        return self.pipelined and self.odometry.tracking == MATCH and self.odometry.threads != 1

    @property
    def slop_s(self) -> float:
        """Maximum stamp difference between an image and its camera_info or depth, seconds."""
        return self.sync_slop_s if self.approximate_sync else 0.0

    @cached_property
    def T_bc(self) -> np.ndarray | None:
        """(4, 4) camera to base from `base_to_camera`; None: look it up in TF."""
        if self.base_to_camera is None:
            return None
        from transforms3d.quaternions import quat2mat  # not part of a plain ROS install

        x, y, z, *(qx, qy, qz, qw) = self.base_to_camera
        T_bc = np.eye(4)
        T_bc[:3, :3], T_bc[:3, 3] = quat2mat([qw, qx, qy, qz]), (x, y, z)
        return T_bc


def parameter_settings() -> dict[str, Setting]:
    """Description and range of every parameter, by name."""
    scale = {f"{SCALE}.{name}": known for name, known in settings_of(ScaleOptions).items()}
    return settings_of(NodeParameters) | settings_of(OdometryOptions) | scale


def node_defaults() -> dict[str, Any]:
    """Defaults of the parameters that are not settings of odometry."""
    return {f.name: f.default for f in fields(NodeParameters) if f.name != "odometry"}


def default_parameters() -> dict[str, Any]:
    """Defaults of all parameters by name, with the default profile; those without are left out."""
    own = {name: value for name, value in node_defaults().items() if value is not None}
    return own | flat_settings(load_profile())


def describe_parameters() -> dict[str, str]:
    """Description of every parameter, by name, as ROS users see it."""
    defaults = flat_settings(OdometryOptions())
    return {
        name: known.describe('""' if defaults.get(name) == "" else defaults.get(name))
        for name, known in parameter_settings().items()
    }


def flat_settings(options: OdometryOptions | ScaleOptions, prefix: str = "") -> dict[str, Any]:
    """Odometry settings by parameter name, with an empty string or zero in place of None."""
    flat: dict[str, Any] = {}
    for f in fields(options):
        value = getattr(options, f.name)
        if f.name == SCALE:
            flat |= flat_settings(value, f"{SCALE}.")
        else:
            flat[prefix + f.name] = _NULLS[str(f.type)] if value is None else value
    return flat


def parameters_from_values(values: Mapping[str, Any]) -> NodeParameters:
    """Check and group the values of all parameters.

    Raises:
        ConfigError: a value cannot be used; the message says why.
    """
    own = {name: values[name] for name in node_defaults()}
    pose = own["base_to_camera"]
    own["base_to_camera"] = pose if pose is None or np.isscalar(pose) else tuple(pose)
    scale = ScaleOptions(**_with_none(ScaleOptions, values, f"{SCALE}."))
    odometry = OdometryOptions(**_with_none(OdometryOptions, values), scale=scale)
    return NodeParameters(**own, odometry=odometry)


def _with_none(kind: type, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The settings of a class of options, with None in place of an empty string or zero."""
    settings = {}
    for f in fields(kind):
        if f.name != SCALE:
            value = values[prefix + f.name]
            is_null = f.type in _NULLS and value == _NULLS[f.type]
            settings[f.name] = None if is_null else value
    return settings


def _check_pose(numbers: Any) -> None:
    if numbers is None:
        return
    try:
        pose = np.array(numbers, np.float64)
    except (TypeError, ValueError):
        pose = np.empty(0)
    if pose.shape != (7,) or not np.isfinite(pose).all():
        shown = list(numbers) if isinstance(numbers, tuple) else numbers
        raise ConfigError(
            f"base_to_camera is {shown}: give 7 numbers, x y z (m) and quaternion x y z w"
        )
    if abs(np.linalg.norm(pose[3:]) - 1) > 1e-2:
        raise ConfigError(
            f"the quaternion of base_to_camera, {pose[3:].tolist()}, must have length 1; no "
            "rotation is 0 0 0 1"
        )

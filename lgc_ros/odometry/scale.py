"""Metric scale of a monocular map, measured by other means.

| source           | needs                                            | gives                    |
|------------------|--------------------------------------------------|--------------------------|
| `none`           | nothing                                          | unit: the first baseline |
| `constant_speed` | `speed_mps`, a robot that keeps that speed       | meters, as good as that  |
| `odom`           | wheel odometry around the stamps of the frames   | meters, as the wheels    |
| `depth`          | depth images aligned with the color images       | meters, best             |
| `camera_height`  | fixed `camera_height_m` over flat ground, pitch  | meters if ground shows   |

At each keyframe the source measures how many meters one unit of the map is. The median over the
latest keyframes corrects the map, so that single outliers have no effect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lgc_ros.errors import ConfigError
from lgc_ros.runtime.settings import check_ranges, setting

UNKNOWN_SIGMA = 1.0
# Sources that rest on measurements, which may begin after the images or arrive late.
MEASURED = ("odom", "depth")
# Smallest relative standard deviation of each source, however well its measurements agree.
MIN_SIGMA = {"constant_speed": 0.1, "odom": 0.02, "depth": 0.005, "camera_height": 0.05}
MIN_DEPTHS = 15
MIN_GROUND_POINTS = 12
# Ground points lie between these angles below the horizon: below is the robot, above is imprecise.
GROUND_BELOW_DEG = (4.0, 60.0)
# Motion steeper than this is not along the ground.
MAX_CLIMB_DEG = 30.0
# Half width of the neighborhood, relative to the height, in which ground points are counted.
GROUND_BAND = 0.06
# The ground holds at least this share of the points of the most populated height.
GROUND_SUPPORT = 0.5


@dataclass(frozen=True)
class ScaleOptions:
    """Source of metric scale, and the settings of that source."""

    source: str = setting(
        "none",
        "Source of metric scale: none, constant_speed, camera_height, odom (topic odom) or depth "
        "(topic depth)",
    )
    speed_mps: float | None = setting(
        None, "constant_speed: speed of the robot", unit="m/s", low=0.0, high=1000.0
    )
    camera_height_m: float | None = setting(
        None,
        "camera_height: height of the camera above flat ground",
        unit="m",
        low=0.0,
        high=1000.0,
    )
    camera_pitch_deg: float = setting(
        0.0,
        "camera_height: angle of the optical axis below the horizon",
        unit="deg",
        low=-90.0,
        high=90.0,
    )
    wait_s: float = setting(
        10.0,
        "odom, depth: maximum time in motion for which the position is held until the first scale",
        unit="s",
        low=0.0,
        high=1e6,
    )

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise ConfigError(
                f"unknown scale source {self.source!r}: use one of {', '.join(SOURCES)}"
            )
        for source, name in (
            ("constant_speed", "speed_mps"),
            ("camera_height", "camera_height_m"),
        ):
            value = getattr(self, name)
            if self.source == source and (value is None or not 0 < value < float("inf")):
                raise ConfigError(f"scale source {source} needs a positive {name}, got {value}")
        check_ranges(self)


@dataclass(frozen=True, eq=False)
class ScaleEvidence:
    """What a source can measure from at a keyframe; map lengths are in map units.

    Attributes:
        elapsed_s: time since the previous keyframe.
        motion_cam: (3,) translation since that keyframe, in the camera frame.
        odom_distance_m: distance by the wheel odometry; None without it.
        points_cam: (N, 3) landmarks seen, in the camera frame.
        depths_m: (N,) measured depth of these landmarks, 0 where unknown; None without depth.
    """

    elapsed_s: float
    motion_cam: np.ndarray
    odom_distance_m: float | None
    points_cam: np.ndarray
    depths_m: np.ndarray | None

    @property
    def distance(self) -> float:
        """Distance of the camera from the previous keyframe, in map units."""
        return float(np.linalg.norm(self.motion_cam))


def _none(evidence: ScaleEvidence, options: ScaleOptions) -> float | None:
    return None


def _constant_speed(evidence: ScaleEvidence, options: ScaleOptions) -> float | None:
    assert options.speed_mps is not None  # ScaleOptions requires it for this source
    return _ratio(options.speed_mps * evidence.elapsed_s, evidence.distance)


def _odom(evidence: ScaleEvidence, options: ScaleOptions) -> float | None:
    if evidence.odom_distance_m is None:
        return None
    return _ratio(evidence.odom_distance_m, evidence.distance)


def _depth(evidence: ScaleEvidence, options: ScaleOptions) -> float | None:
    if evidence.depths_m is None:
        return None
    z = evidence.points_cam[:, 2]
    known = np.isfinite(evidence.depths_m) & (evidence.depths_m > 0) & (z > 0)
    if known.sum() < MIN_DEPTHS:
        return None
    return float(np.median(evidence.depths_m[known] / z[known]))


def _camera_height(evidence: ScaleEvidence, options: ScaleOptions) -> float | None:
    """The ground is at the lowest height with many landmarks."""
    down = _down(evidence.motion_cam, options.camera_pitch_deg)
    if down is None:
        return None
    height = evidence.points_cam @ down
    level = np.linalg.norm(evidence.points_cam - height[:, None] * down, axis=1)
    below = np.degrees(np.arctan2(height, level))
    low, high = GROUND_BELOW_DEG
    height = np.sort(height[(height > 0) & (below > low) & (below < high)])
    if len(height) < MIN_GROUND_POINTS:
        return None
    first = np.searchsorted(height, height * (1 - GROUND_BAND))
    last = np.searchsorted(height, height * (1 + GROUND_BAND))
    support = last - first
    dense = support >= max(MIN_GROUND_POINTS, GROUND_SUPPORT * support.max())
    if not dense.any():
        return None
    # Curbs, grass and cars have many landmarks, too, but above the ground.
    lowest = np.flatnonzero(dense)[-1]
    ground = np.median(height[first[lowest] : last[lowest]])
    assert options.camera_height_m is not None  # ScaleOptions requires it for this source
    return _ratio(options.camera_height_m, ground)


def _down(motion_cam: np.ndarray, pitch_deg: float) -> np.ndarray | None:
    """Normal of the ground in the camera frame; None if the camera climbs.

    A camera at a fixed height moves parallel to the ground, which gives the pitch more precisely
    than its mounting: one degree is a tenth of the height ten meters ahead.
    """
    pitch = np.radians(pitch_deg)
    down = np.array([0.0, np.cos(pitch), np.sin(pitch)])
    length = np.linalg.norm(motion_cam)
    if length < 1e-9:
        return down
    ahead = motion_cam / length
    if abs(down @ ahead) > np.sin(np.radians(MAX_CLIMB_DEG)):
        return None
    level = down - (down @ ahead) * ahead
    return level / np.linalg.norm(level)


def _ratio(meters: float, units: float) -> float | None:
    return float(meters / units) if meters > 0 and units > 1e-9 else None


NEEDS = {
    "constant_speed": "motion",
    "odom": "wheel odometry with every frame",
    "depth": "depth at the landmarks",
    "camera_height": "flat ground with many keypoints on it (SIFT finds more there than ORB)",
}
"""What each source needs, for messages to users."""

SOURCES: dict[str, Callable[[ScaleEvidence, ScaleOptions], float | None]] = {
    "none": _none,
    "constant_speed": _constant_speed,
    "odom": _odom,
    "depth": _depth,
    "camera_height": _camera_height,
}

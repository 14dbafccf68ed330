"""Metric scale of a monocular map, from what else is known about the robot.

| source           | needs                                            | gives                    |
|------------------|--------------------------------------------------|--------------------------|
| `none`           | nothing                                          | unit: the first baseline |
| `constant_speed` | `speed_mps`, a robot that keeps to it            | metres, as good as that  |
| `odom`           | a wheel odometry pose with every frame           | metres, as the wheels    |
| `depth`          | depth images aligned with the colour images      | metres, best             |
| `camera_height`  | `camera_height_m` over flat ground, the pitch    | metres if ground shows   |

Each source looks at the newest keyframe and says how many metres one unit of the map is. The
median over the latest keyframes corrects the map, so that one bad answer changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lgc_ros.errors import ConfigError

# Answers that count: few enough to follow a drift, enough to outvote bad ones.
MEMORY = 15
UNKNOWN_SIGMA = 1.0
# What a source cannot know better than, however well its answers agree: relative.
MIN_SIGMA = {"constant_speed": 0.1, "odom": 0.02, "depth": 0.005, "camera_height": 0.1}
MIN_DEPTHS = 15
MIN_GROUND_POINTS = 12
# Ground lies between these angles below the horizon: nearer is the robot, farther is imprecise.
GROUND_BELOW_DEG = (4.0, 60.0)
# A robot pitches and rolls, a hand more so: the ground may be tilted by this against the mounting.
GROUND_TILT_DEG = 10.0
# Distance from the ground, relative to its height, within which a point belongs to it.
GROUND_BAND = 0.04
# Surfaces closer to one another than this, relative to the height, compete for being the ground.
GROUND_STEP = 0.1
# The ground holds at least this share of the points of the fullest plane.
GROUND_SUPPORT = 0.5
GROUND_SAMPLES = 300


@dataclass(frozen=True)
class ScaleOptions:
    """Which source, and what it needs to know.

    Args:
        source: a key of SOURCES.
        speed_mps: for `constant_speed`.
        camera_height_m: height of the camera over the ground, for `camera_height`.
        camera_pitch_deg: how far the camera looks below the horizon, for `camera_height`.
    """

    source: str = "none"
    speed_mps: float | None = None
    camera_height_m: float | None = None
    camera_pitch_deg: float = 0.0

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


@dataclass(frozen=True, eq=False)
class ScaleEvidence:
    """What is known at a keyframe; lengths of the map are in its own unit.

    Attributes:
        elapsed_s, distance: time and way of the camera since the previous keyframe.
        odom_distance_m: the way of the wheel odometry in that time; None without it.
        points_cam: (N, 3) landmarks seen, in the camera frame.
        depths_m: (N,) measured depth of these landmarks, 0 where unknown; None without depth.
    """

    elapsed_s: float
    distance: float
    odom_distance_m: float | None
    points_cam: np.ndarray
    depths_m: np.ndarray | None


def _none(evidence: ScaleEvidence, options: ScaleOptions) -> float | None:
    return None


def _constant_speed(evidence: ScaleEvidence, options: ScaleOptions) -> float | None:
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
    """The lowest plane on which many landmarks lie is the ground.

    Its tilt is fitted, not taken from the mounting: one degree of pitch is a twentieth of the
    height for ground three heights away.
    """
    pitch = np.radians(options.camera_pitch_deg)
    down = np.array([0.0, np.cos(pitch), np.sin(pitch)])
    points = evidence.points_cam
    height = points @ down
    below = np.degrees(np.arctan2(height, np.linalg.norm(np.cross(points, down), axis=1)))
    points = points[(below > GROUND_BELOW_DEG[0]) & (below < GROUND_BELOW_DEG[1])]
    if len(points) < MIN_GROUND_POINTS:
        return None
    normals, heights = _planes(points, down)
    if not len(heights):
        return None
    on_plane = np.abs(points @ normals.T - heights) < GROUND_BAND * heights
    support = on_plane.sum(axis=0)
    enough = support >= max(MIN_GROUND_POINTS, GROUND_SUPPORT * support.max())
    if not enough.any():
        return None
    # Kerbs, tables and cars hold many points, too, but lie above the ground.
    lowest = int(np.argmax(np.where(enough, heights, 0.0)))
    # The very lowest is one that noise has tilted.
    near = enough & (heights > (1 - GROUND_STEP) * heights[lowest])
    fullest = int(np.argmax(np.where(near, support, 0)))
    ground = points[on_plane[:, fullest]]
    centre = ground.mean(axis=0)
    normal = np.linalg.svd(ground - centre)[2][2]
    return _ratio(options.camera_height_m, abs(float(centre @ normal)))


def _planes(points: np.ndarray, down: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unit normals (M, 3) and heights (M,) of planes through three points that may be ground."""
    rng = np.random.default_rng(0)
    a, b, c = points[rng.integers(len(points), size=(GROUND_SAMPLES, 3))].transpose(1, 0, 2)
    normals = np.cross(b - a, c - a)
    length = np.linalg.norm(normals, axis=1)
    normals = normals / np.maximum(length, np.finfo(np.float64).tiny)[:, None]
    normals *= np.where(normals @ down < 0, -1.0, 1.0)[:, None]
    heights = np.einsum("ij,ij->i", normals, a)
    level = (normals @ down > np.cos(np.radians(GROUND_TILT_DEG))) & (heights > 0)
    return normals[level], heights[level]


def _ratio(metres: float, units: float) -> float | None:
    return float(metres / units) if metres > 0 and units > 1e-9 else None


SOURCES: dict[str, Callable[[ScaleEvidence, ScaleOptions], float | None]] = {
    "none": _none,
    "constant_speed": _constant_speed,
    "odom": _odom,
    "depth": _depth,
    "camera_height": _camera_height,
}


class ScaleEstimator:
    """Turns the answers of a source into corrections of the map."""

    def __init__(self, options: ScaleOptions) -> None:
        self.options = options
        self._log_ratios: deque[float] = deque(maxlen=MEMORY)

    @property
    def sigma(self) -> float:
        """Relative standard deviation of the scale; 1 while it is unknown."""
        if not self._log_ratios:
            return UNKNOWN_SIGMA
        answers = np.array(self._log_ratios)
        spread = 1.4826 * np.median(np.abs(answers - np.median(answers)))
        return float(np.hypot(MIN_SIGMA[self.options.source], spread / np.sqrt(len(answers))))

    def correction(self, evidence: ScaleEvidence) -> float:
        """The factor to multiply the map with, 1 if nothing is known."""
        ratio = SOURCES[self.options.source](evidence, self.options)
        if ratio is None:
            return 1.0
        self._log_ratios.append(np.log(ratio))
        step = float(np.median(self._log_ratios))
        # Earlier answers were about the map before the correction.
        self._log_ratios = deque((answer - step for answer in self._log_ratios), MEMORY)
        return float(np.exp(step))

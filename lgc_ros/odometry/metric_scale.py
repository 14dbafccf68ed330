"""Metric scale applied to the map: when to ask the source, what to correct, what to hold back.

Until `odom` or `depth` has measured the scale, positions mean nothing in meters. They are held at
the origin for `scale.wait_s` seconds of motion; the first measurement then scales the whole map
about the origin. Later corrections scale it about the current camera, so that nothing jumps.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from lgc_ros.odometry.keyframe_policy import landmark_parallax_deg
from lgc_ros.odometry.map import Keyframe, LandmarkMap, View
from lgc_ros.odometry.scale import (
    MEASURED,
    MIN_SIGMA,
    NEEDS,
    SOURCES,
    UNKNOWN_SIGMA,
    ScaleEvidence,
    ScaleOptions,
)
from lgc_ros.odometry.tracking import Pose, Track

# Measurements in the median: few enough to follow a drift, enough to outvote outliers.
MEMORY = 15
# Standard deviation of a held position: what a fast robot (10 m/s) covers in the waiting time.
HELD_POSITION_SIGMA_M = 100.0


class Correction(NamedTuple):
    """A factor for all lengths of the map, and the point that stays."""

    factor: float
    about: np.ndarray


class ScaleEstimator:
    """Turns the measurements of a source into corrections of the map.

    Attributes:
        asked, answered: number of keyframes, and of those with a measurement.
    """

    def __init__(self, options: ScaleOptions) -> None:
        self.options = options
        self.asked = self.answered = 0
        self._log_ratios: deque[float] = deque(maxlen=MEMORY)

    @property
    def sigma(self) -> float:
        """Relative standard deviation of the scale; 1 before the first measurement."""
        if not self._log_ratios:
            return UNKNOWN_SIGMA
        answers = np.array(self._log_ratios)
        spread = 1.4826 * np.median(np.abs(answers - np.median(answers)))
        return float(np.hypot(MIN_SIGMA[self.options.source], spread / np.sqrt(len(answers))))

    @property
    def awaited(self) -> bool:
        """Whether the first measurement of the scale is still to come."""
        return self.options.source in MEASURED and not self.answered

    def correction(self, evidence: ScaleEvidence, again: bool = False) -> float:
        """Factor for all lengths of the map; 1 without a measurement.

        `again`: this keyframe was counted before, when its measurement had not arrived yet.
        """
        ratio = SOURCES[self.options.source](evidence, self.options)
        self.asked += not again
        if ratio is None:
            return 1.0
        self.answered += 1
        self._log_ratios.append(np.log(ratio))
        step = float(np.median(self._log_ratios))
        # Earlier measurements refer to the map before the correction.
        self._log_ratios = deque((answer - step for answer in self._log_ratios), MEMORY)
        return float(np.exp(step))


class MetricScale:
    """The scale of one map.

    Args:
        options: the source and what it needs.
        landmarks: the map.

    Attributes:
        displacement: (3,) error of the current position that earlier corrections leave behind:
            the trajectory before them keeps its old scale, because nothing may jump.
        held_s: seconds of motion for which the position has been held.
    """

    def __init__(self, options: ScaleOptions, landmarks: LandmarkMap) -> None:
        self._options, self._map = options, landmarks
        self._estimator = ScaleEstimator(options)
        self.displacement = np.zeros(3)
        self.held_s = 0.0
        # Keyframes and their predecessors whose wheel odometry has not arrived yet.
        self._late: deque[tuple[Keyframe, Keyframe]] = deque(maxlen=MEMORY)

    @property
    def sigma(self) -> float:
        """Relative standard deviation of the scale; 1 while no source has measured it."""
        return self._estimator.sigma

    @property
    def is_awaited(self) -> bool:
        """Whether the position is held because the scale has not been measured yet."""
        awaited = self._map.initialized and self._estimator.awaited
        return awaited and self.held_s < self._options.wait_s

    @property
    def held_message(self) -> str:
        """Why the position is held, for users."""
        source = self._options.source
        return f"no metric scale from {source} yet, it needs {NEEDS[source]}; position is held"

    @property
    def held_sigma_m(self) -> float:
        """Standard deviation of the position that holding it adds."""
        return HELD_POSITION_SIGMA_M if self.is_awaited else 0.0

    def warning(self) -> str:
        """What the source lacks if it could rarely measure the scale; empty otherwise."""
        scale, source = self._estimator, self._options.source
        if source == "none" or 2 * scale.answered >= scale.asked:
            return ""
        return (
            f"scale source {source} measured nothing at {scale.asked - scale.answered} of "
            f"{scale.asked} keyframes; do not rely on metric scale: it needs {NEEDS[source]}"
        )

    def shown(self, T_wc: np.ndarray) -> np.ndarray:
        """The pose to publish: at the origin while the scale is awaited."""
        if not self.is_awaited:
            return T_wc
        shown = T_wc.copy()
        shown[:3, 3] = 0.0
        return shown

    def wants_keyframe(
        self,
        view: View,
        track: Track,
        pose: Pose,
        landmarks: LandmarkMap,
        has_depth: bool,
        min_parallax_deg: float,
    ) -> bool:
        """Whether a keyframe here would bring the first measurement, or prepare it."""
        if not self.is_awaited:
            return False
        if self._options.source == "depth":
            measured = has_depth
        else:
            measured = view.wheels() is not None
            if measured and track.reference.wheel_position() is None:
                return True
        return measured and landmark_parallax_deg(track, pose, landmarks) > min_parallax_deg

    def measure(
        self, keyframe: Keyframe, previous: Keyframe, depth: np.ndarray | None, about: np.ndarray
    ) -> Correction:
        """Ask the source at a new keyframe; `about` should stay where it is."""
        about = self._fixed_point(about)
        evidence = self._evidence(keyframe, previous, depth)
        if self._options.source == "odom" and evidence.odom_distance_m is None:
            self._late.append((keyframe, previous))
        return Correction(self._estimator.correction(evidence), about)

    def late_pairs(self, reference: Keyframe) -> list[tuple[Keyframe, Keyframe]]:
        """Keyframe pairs whose wheel odometry has arrived by now."""
        if self._options.source != "odom":
            return []
        reference.wheel_position()  # remembered before the wheel odometry is forgotten
        arrived = []
        for keyframe, previous in tuple(self._late):
            positions = keyframe.wheel_position(), previous.wheel_position()
            known = all(position is not None for position in positions)
            kept = keyframe in self._map.keyframes and previous in self._map.keyframes
            if known or not kept:
                self._late.remove((keyframe, previous))
            if known and kept:
                arrived.append((keyframe, previous))
        return arrived

    def measure_late(
        self, keyframe: Keyframe, previous: Keyframe, about: np.ndarray
    ) -> Correction:
        """Use wheel odometry that arrived after its keyframe."""
        about = self._fixed_point(about)
        evidence = self._evidence(keyframe, previous, None)
        return Correction(self._estimator.correction(evidence, again=True), about)

    def note(self, correction: Correction) -> None:
        """Account for a correction that was applied to the map."""
        factor, about = correction
        self.displacement = factor * self.displacement + (1 - factor) * about

    def _fixed_point(self, here: np.ndarray) -> np.ndarray:
        """What a correction leaves in place: the position that was published."""
        return np.zeros(3) if self.is_awaited else here

    def _evidence(
        self, keyframe: Keyframe, previous: Keyframe, depth: np.ndarray | None
    ) -> ScaleEvidence:
        seen = np.flatnonzero(keyframe.landmark_ids >= 0)
        points = self._map.points[keyframe.landmark_ids[seen]]
        depths_m = None
        if depth is not None:
            last = np.array(depth.shape[::-1]) - 1
            pixels = np.round(keyframe.view.features.points[seen]).astype(int)
            column, row = np.clip(pixels, 0, last).T
            depths_m = depth[row, column]
        start, end = previous.wheel_position(), keyframe.wheel_position()
        odom_distance_m = None
        if start is not None and end is not None:
            odom_distance_m = float(np.linalg.norm(end - start))
        return ScaleEvidence(
            elapsed_s=(keyframe.view.stamp_ns - previous.view.stamp_ns) * 1e-9,
            motion_cam=keyframe.R_cw @ (keyframe.center - previous.center),
            odom_distance_m=odom_distance_m,
            points_cam=points @ keyframe.R_cw.T + keyframe.t_cw,
            depths_m=depths_m,
        )

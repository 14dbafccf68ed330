"""The state after a frame, and the statuses it can have."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from lgc_ros.estimation.two_view import TwoViewResult
from lgc_ros.odometry.options import MATCH

OK = "ok"
INITIALIZING = "initializing"
NO_MOTION = "no_motion"
ROTATION_ONLY = "rotation_only"
DEGENERATE = "degenerate"
FEW_MATCHES = "few_matches"
LOST = "lost"
STATUSES = (OK, INITIALIZING, NO_MOTION, ROTATION_ONLY, DEGENERATE, FEW_MATCHES, LOST)
TRACKED = (OK, NO_MOTION, ROTATION_ONLY)
"""Statuses with an estimated pose; with the others, all or part of it is held."""


@dataclass(frozen=True, eq=False)
class OdometryState:
    """Result of one frame.

    Attributes:
        stamp_ns: of the frame.
        status: one of STATUSES.
        message: the reason, in user terms; empty if tracked.
        T_wc: (4, 4) camera to world; the first frame's camera is the world.
        covariance: (6, 6) of position and orientation (fixed axes), as in ROS.
        twist: (6,) linear (m/s) and angular (rad/s) velocity in the camera frame.
        keyframe: whether the frame became a keyframe.
        tracking: how the frame was tracked: `flow` (optical flow) or `match` (keypoints).
        relative: two-view result of the frame against its keyframe; None if nothing was matched.
        relative_stamp_ns: stamp of that keyframe, which gives `relative` its meaning: as an edge
            of a pose graph, or against ground truth.
        points_cam: (N, 3) landmarks the pose rests on, in the camera frame.
        points_px: (N, 2) their keypoints in the image.
        scores: (N,) of their matches, in [0, 1].
        counts: features, matches, kept, inliers and landmarks.
        ms: milliseconds by stage.
        scale_sigma: relative standard deviation of the scale; 1 while no source has measured it.
    """

    stamp_ns: int
    status: str
    message: str
    T_wc: np.ndarray
    covariance: np.ndarray
    twist: np.ndarray
    keyframe: bool = False
    relative: TwoViewResult | None = None
    relative_stamp_ns: int | None = None
    points_cam: np.ndarray = field(default_factory=lambda: np.empty((0, 3)))
    points_px: np.ndarray = field(default_factory=lambda: np.empty((0, 2)))
    scores: np.ndarray = field(default_factory=lambda: np.empty(0))
    counts: dict[str, int] = field(default_factory=dict)
    ms: dict[str, float] = field(default_factory=dict)
    scale_sigma: float = 1.0
    tracking: str = MATCH

    @property
    def tracked(self) -> bool:
        """Whether the pose is estimated from this frame rather than held."""
        return self.status in TRACKED

    def without_matches(self) -> OdometryState:
        """The same without matches and landmarks, which take a thousand times the memory."""
        return replace(
            self,
            relative=None,
            points_cam=np.empty((0, 3)),
            points_px=np.empty((0, 2)),
            scores=np.empty(0),
        )


def match_counts(result: TwoViewResult | None, landmarks: int) -> dict[str, int]:
    """Matches of a frame, those kept by outlier rejection, inliers, and landmarks used."""
    if result is None:
        return {"matches": 0, "kept": 0, "inliers": 0, "landmarks": 0}
    return {
        "matches": len(result.kept),
        "kept": int(result.kept.sum()),
        "inliers": int(result.inliers.sum()),
        "landmarks": landmarks,
    }

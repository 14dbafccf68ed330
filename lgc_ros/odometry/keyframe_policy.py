"""When a frame becomes a keyframe."""

from __future__ import annotations

import numpy as np

from lgc_ros.geometry.epipolar import parallax_deg, rotation_error_deg
from lgc_ros.odometry.map import LandmarkMap, View
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.tracking import MIN_LANDMARKS, Pose, Track

# Share of the matches that should show landmarks; below, new ones are made as soon as possible.
MIN_LANDMARK_SHARE = 1 / 3
# Share of the matches that must show the parallax asked for: far points never do.
PARALLAX_SHARE = 1 / 3
# Points that leave the view for each match that is lost: matches are also lost as views change.
POINTS_PER_MATCH = 2 / 3
# Share of the points that were found lately. With fewer, a keyframe comes too late on fast drives
# past trees: too few of its keypoints match, and the next one has fewer still.
MIN_SHARE_LEFT = 0.7


def keyframe_is_due(
    view: View,
    track: Track,
    pose: Pose,
    landmarks: LandmarkMap,
    overlap_is_low: bool,
    options: OdometryOptions,
) -> bool:
    """Whether a tracked view should become a keyframe.

    Args:
        overlap_is_low: whether too little of the current keyframe is left in view.
    """
    turned_deg = rotation_error_deg(pose.R_cw, track.reference.R_cw)
    if overlap_is_low or turned_deg > options.keyframe_turn_deg:
        return True
    elapsed_s = (view.stamp_ns - track.reference.view.stamp_ns) * 1e-9
    needed_deg = options.keyframe_parallax_deg
    if elapsed_s > options.keyframe_interval_s or pose.used.sum() < 3 * MIN_LANDMARKS:
        needed_deg /= 2
    if landmark_parallax_deg(track, pose, landmarks) > needed_deg:
        return True
    if pose.used.sum() > MIN_LANDMARK_SHARE * len(track.index0):
        return False
    x0, x1 = track.reference.view.x[track.index0], view.x[track.index1]
    R_10 = pose.R_cw @ track.reference.R_cw.T
    return shared_parallax_deg(R_10, x0, x1) > options.init_parallax_deg


def few_points_left(overlap: float, share_left: float, options: OdometryOptions) -> bool:
    """Whether so few of the points that are followed are left that a new keyframe is due.

    Args:
        overlap: share of the keyframe's points that is in view, found or not. Points that blur
            hides will be found again.
        share_left: share of all points that was found lately. Those that were not look different
            from here, or are hidden by others, and the keypoints around them can no longer be
            matched either.
    """
    left_view = 1 - overlap > POINTS_PER_MATCH * (1 - options.keyframe_overlap)
    return left_view or share_left < MIN_SHARE_LEFT


def few_matches_left(track: Track, most_matches: int, options: OdometryOptions) -> bool:
    """Whether so few matches are left that a new keyframe should take over.

    Without landmarks the keyframe is kept longer: what only it saw would be lost with it.
    """
    share = options.keyframe_overlap
    share = share if track.pose is not None else share / 2
    return len(track.index0) < share * most_matches


def landmark_parallax_deg(track: Track, pose: Pose, landmarks: LandmarkMap) -> float:
    """Median angle at which landmarks see the current keyframe and this camera."""
    points = landmarks.points[track.reference.landmark_ids[track.index0[pose.used]]]
    a, b = points - track.reference.center, points - pose.center
    across = np.linalg.norm(np.cross(a, b), axis=1)
    return float(np.degrees(np.median(np.arctan2(across, np.einsum("ij,ij->i", a, b)))))


def shared_parallax_deg(R_10: np.ndarray, x0: np.ndarray, x1: np.ndarray) -> float:
    """Parallax that at least PARALLAX_SHARE of the matches have."""
    return float(np.quantile(parallax_deg(R_10, x0, x1), 1 - PARALLAX_SHARE))

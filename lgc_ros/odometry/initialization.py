"""Map initialization: the first landmarks from two views, and their scale.

Monocular scale is unobservable, so the first baseline is the unit. A map that is re-initialized
after tracking was lost takes its scale from landmarks in common or, without any, from the speed
and the scene depth before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lgc_ros.features.image_sharpness import noise_ratio
from lgc_ros.odometry.covariance import with_blur
from lgc_ros.odometry.history import PoseHistory
from lgc_ros.odometry.keyframe_policy import shared_parallax_deg
from lgc_ros.odometry.map import NONE, Keyframe, LandmarkMap, View
from lgc_ros.odometry.motion_search import (
    Motion,
    ReferenceMatches,
    find_motion,
    motion_covariance,
)
from lgc_ros.odometry.tracking import Pose, Track

# A map needs this many landmarks, and this share of the matches must become one.
MIN_LANDMARKS = 40
MIN_LANDMARK_SHARE = 1 / 3
# Error of the first motion that all matches share: rotation by the noise of one keypoint, and
# translation by this part of the baseline.
SHARED_SIGMA = 0.02
# Landmarks in common that carry the scale over to a re-initialized map.
MIN_COMMON_LANDMARKS = 5
# Without them, the speed is assumed to last this long, and the depth to change at most by this
# factor.
SPEED_LASTS_S = 1.5
MAX_DEPTH_CHANGE = 2.0


@dataclass(frozen=True, eq=False)
class FirstMotion:
    """A motion to initialize the map from.

    Attributes:
        motion: to the view, from its keyframe.
        inliers: (N,) mask over the candidates of the track.
        parallax_deg: that enough of the inliers show.
        is_clear: whether no other motion explains the views as well.
    """

    motion: Motion
    inliers: np.ndarray
    parallax_deg: float
    is_clear: bool


def first_motion(
    track: Track,
    x1: np.ndarray,
    between: Sequence[ReferenceMatches],
    needed_deg: float,
    threshold: float,
) -> FirstMotion:
    """The motion that explains the view and those before it best.

    Args:
        x1: (M, 2) two-view inliers in the view, normalized.
        between: matches of the views since the keyframe.
        needed_deg: parallax that initialization needs.
        threshold: inlier threshold of the epipolar distance, normalized.
    """
    pose, x_reference = track.result.pose, track.reference.view.x
    assert pose is not None  # the two views were trusted
    motion, is_clear = Motion(pose.R_10, pose.t_10, 0.0), False
    # While parallax is far too small, it does not matter which motion it belongs to.
    if shared_parallax_deg(pose.R_10, x_reference[track.index0], x1) > needed_deg / 2:
        motion, is_clear = find_motion(
            x_reference, between, track.candidates, pose.R_10, pose.t_10, threshold
        )
    x0, x1 = x_reference[track.candidates.index0], track.candidates.x
    inliers = motion.inliers(x0, x1, threshold)
    parallax = shared_parallax_deg(motion.R_10, x0[inliers], x1[inliers])
    return FirstMotion(motion, inliers, parallax, is_clear)


def triangulate_first_landmarks(
    landmarks: LandmarkMap, view: View, track: Track, first: FirstMotion, history: PoseHistory
) -> tuple[Keyframe, Pose] | None:
    """Make the view the second keyframe, with landmarks; None if too few can be triangulated."""
    reference, motion = track.reference, first.motion
    index0 = track.candidates.index0[first.inliers]
    index1 = track.candidates.index1[first.inliers]

    def placed(baseline: float) -> Keyframe:
        t_cw = motion.R_10 @ reference.t_cw + baseline * motion.t_10
        return Keyframe(view, motion.R_10 @ reference.R_cw, t_cw)

    good, points0, _ = landmarks.triangulate_rays(reference, placed(1.0), index0, index1)
    if good.sum() < max(MIN_LANDMARKS, len(good) * MIN_LANDMARK_SHARE):
        return None
    baseline = _baseline(landmarks, view, reference, index0[good], points0[good, 2], history)
    keyframe = placed(baseline)
    reference.landmark_ids[index0] = NONE  # those there were could not locate this view
    landmarks.triangulate(reference, keyframe, index0, index1)
    x0, x1 = reference.view.x[index0], view.x[index1]
    sigma = landmarks.sigma(view.camera)
    spread = motion_covariance(motion.R_10, motion.t_10, x0, x1, sigma)
    ratio = max(noise_ratio(v.features.sharpness) for v in (reference.view, view))
    spread += np.diag(np.repeat([sigma, SHARED_SIGMA], 3) ** 2)
    spread = with_blur(spread, ratio)
    unit = np.repeat([1.0, baseline], 3)
    spread *= np.outer(unit, unit)
    used = reference.landmark_ids[track.index0] >= 0
    landmarks.add_keyframe(keyframe, keep=reference)
    return keyframe, Pose(keyframe.R_cw, keyframe.t_cw, spread, used)


def _baseline(
    landmarks: LandmarkMap,
    view: View,
    reference: Keyframe,
    index0: np.ndarray,
    depths: np.ndarray,
    history: PoseHistory,
) -> float:
    """Distance of the two views in map units.

    From landmarks in common. Without them it is a guess: the robot keeps its speed for a moment,
    and the scene is about as far away as before. The latter limits the former, and is all there is
    after a while.

    Args:
        index0: keypoints of the reference that were triangulated.
        depths: their depths for a baseline of one.
    """
    ids = reference.landmark_ids[index0]
    common = ids >= 0
    if common.sum() >= MIN_COMMON_LANDMARKS:
        return float(np.median(landmarks.depths(reference, ids[common]) / depths[common]))
    good = history.last_tracked
    if history.depth is None or good is None:
        return 1.0
    by_depth = history.depth / float(np.median(depths))
    elapsed_s = (view.stamp_ns - reference.view.stamp_ns) * 1e-9
    by_speed = elapsed_s * float(np.linalg.norm(good.twist[:3]))
    if by_speed == 0 or view.stamp_ns - good.stamp_ns > 1e9 * SPEED_LASTS_S:
        return by_depth
    return float(np.clip(by_speed, by_depth / MAX_DEPTH_CHANGE, by_depth * MAX_DEPTH_CHANGE))

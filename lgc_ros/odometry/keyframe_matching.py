"""Tracking by matching: keypoints of a view are matched to a keyframe, and landmarks locate it.

This bridges wide baselines: the two-view method, by default the learned filter, rejects the
outliers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import poselib

from lgc_ros.estimation.estimators import EstimatorOptions
from lgc_ros.estimation.methods import parse_method
from lgc_ros.estimation.two_view import RelativePoseSolver, TwoViewResult
from lgc_ros.matching.correspondences import Matches, correspond, match, nearest_per_keypoint
from lgc_ros.odometry.map import Keyframe, LandmarkMap, View, motion_between
from lgc_ros.odometry.motion_search import ReferenceMatches
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.pose_optimization import is_determined, project, refine_pose
from lgc_ros.odometry.tracking import (
    EXPLAINED_SHARE,
    MIN_AGREEING_SHARE,
    MIN_LANDMARKS,
    TRUSTED_SAMPLES,
    Pose,
    Track,
)
from lgc_ros.odometry.triangulation import OUTLIER_SIGMAS
from lgc_ros.runtime.stage_timer import StageTimer

PNP_THRESHOLD_PX = 4.0
# Fewest PnP samples; with many outliers more are drawn. The best sample is refined a little here
# and thoroughly afterwards.
PNP_SAMPLES = 20
PNP_REFINEMENTS = 5
# Instead of EXPLAINED_SHARE where no filter has rejected outliers, for a pose from optical flow.
UNFILTERED_SHARE = 0.3
# Share of the filtered matches that must agree with the motion that a map is initialized from.
FIRST_SHARE = 0.5


class KeyframeMatcher:
    """Matches views to keyframes with the method that the options name."""

    def __init__(self, options: OdometryOptions) -> None:
        self.options = o = options
        samples = o.max_iterations or (TRUSTED_SAMPLES if parse_method(o.method).filter else None)
        estimator = EstimatorOptions(o.threshold_px, max_iterations=samples, seed=o.seed)
        self.solver = RelativePoseSolver(
            o.method, o.features, o.model, o.device, estimator, o.engine
        )

    @property
    def first_share(self) -> float:
        """Share of the matches that must agree with the first motion; unfiltered ones may be few.

        Under strong blur most matches are outliers, and a motion that few agree on is wrong.
        """
        return FIRST_SHARE if self.solver.filter else 0.0

    def __call__(
        self,
        view: View,
        reference: Keyframe,
        landmarks: LandmarkMap,
        timer: StageTimer,
        pose: Pose | None = None,
    ) -> Track:
        """Match a view to a keyframe, and locate it if the keyframe shows enough landmarks.

        Args:
            pose: of the view, if optical flow has found it: the matches then only have to agree.
        """
        matches, rejected = self._match(view, reference, timer)
        located = self._track_by_landmarks(view, reference, landmarks, matches, rejected, pose)
        timer.lap("track")
        if located is not None:
            return located
        track = _make_track(view, reference, matches, self.solver.estimate(rejected))
        timer.lap("estimate")
        track = replace(track, pose=locate(view, track, landmarks, self.options))
        timer.lap("track")
        return track

    def _match(
        self, view: View, reference: Keyframe, timer: StageTimer
    ) -> tuple[Matches, TwoViewResult]:
        matches = match(reference.view.features, view.features)
        correspondences = correspond(
            reference.view.features, view.features, matches, reference.view.camera, view.camera
        )
        timer.lap("match")
        rejected = self.solver.reject_outliers(correspondences)
        timer.lap("filter")
        return matches, rejected

    def _track_by_landmarks(
        self,
        view: View,
        reference: Keyframe,
        landmarks: LandmarkMap,
        matches: Matches,
        rejected: TwoViewResult,
        pose: Pose | None,
    ) -> Track | None:
        """Locate the view by landmarks alone, if they explain the filtered matches.

        This saves the two-view pose, which decides otherwise. Without a filter it is needed to
        reject outliers.
        """
        if self.solver.filter is None and pose is None:
            return None
        kept = _make_track(view, reference, matches, replace(rejected, inliers=rejected.kept))
        if pose is None:
            pose = locate(view, kept, landmarks, self.options)
        else:
            pose = _confirmed(view, kept, landmarks, pose)
        if pose is None:
            return None
        result = self.solver.classify_inliers(rejected, *motion_between(reference, pose))
        track = _make_track(view, reference, matches, result)
        needed = EXPLAINED_SHARE if self.solver.filter else UNFILTERED_SHARE
        if len(track.index0) < needed * len(kept.index0):
            return None
        used = np.isin(track.rows, kept.rows[pose.used])
        return replace(track, pose=replace(pose, used=used))


def locate(
    view: View, track: Track, landmarks: LandmarkMap, options: OdometryOptions
) -> Pose | None:
    """The pose from the landmarks of the matched keypoints (PnP and refinement).

    None if too few of them agree, or if they do not determine the pose.
    """
    ids = track.reference.landmark_ids[track.index0]
    known = np.flatnonzero(ids >= 0)
    if len(known) < MIN_LANDMARKS:
        return None
    ids, x = ids[known], view.x[track.index1[known]]
    points, focal = landmarks.points[ids], view.camera.focal
    camera = {"model": "SIMPLE_PINHOLE", "width": 1, "height": 1, "params": [focal, 0.0, 0.0]}
    pose, info = poselib.estimate_absolute_pose(
        x * focal,
        points,
        camera,
        {
            "max_reproj_error": PNP_THRESHOLD_PX,
            "min_iterations": PNP_SAMPLES,
            "seed": options.seed,
        },
        {
            "loss_type": "CAUCHY",
            "loss_scale": options.sigma_px,
            "max_iterations": PNP_REFINEMENTS,
        },
    )
    needed = max(MIN_LANDMARKS, MIN_AGREEING_SHARE * len(known))
    if info["num_inliers"] < MIN_LANDMARKS:
        return None
    refined = refine_pose(
        pose.R, pose.t, points, x, landmarks.whitening(view), landmarks.covariances[ids]
    )
    agree = refined.distance < OUTLIER_SIGMAS
    if agree.sum() < needed:
        return None
    if not is_determined(refined, points[agree]):
        return None
    used = np.zeros(len(track.index0), bool)
    used[known[agree]] = True
    return Pose(refined.R_cw, refined.t_cw, refined.covariance, used)


def _confirmed(view: View, track: Track, landmarks: LandmarkMap, pose: Pose) -> Pose:
    """A pose from optical flow, with the landmarks of matched keypoints that agree with it.

    Its covariance is that of the keypoints and landmarks: the error of a keyframe is the error of
    the map, however well patches can be aligned with it.
    """
    ids = track.reference.landmark_ids[track.index0]
    known = np.flatnonzero(ids >= 0)
    points, x = landmarks.points[ids[known]], view.x[track.index1[known]]
    whitening, covariances = landmarks.whitening(view), landmarks.covariances[ids[known]]
    refined = refine_pose(pose.R_cw, pose.t_cw, points, x, whitening, covariances)
    points_cam = points @ pose.R_cw.T + pose.t_cw
    distance = np.linalg.norm((project(points_cam)[0] - x) @ whitening.T, axis=1)
    used = np.zeros(len(ids), bool)
    used[known[(distance < OUTLIER_SIGMAS) & (points_cam[:, 2] > 0)]] = True
    spread = refined.covariance if used.sum() >= MIN_LANDMARKS else pose.covariance
    return replace(pose, covariance=spread, used=used)


def _make_track(view: View, reference: Keyframe, matches: Matches, result: TwoViewResult) -> Track:
    rows, kept = (
        nearest_per_keypoint(matches, chosen) for chosen in (result.inliers, result.kept)
    )
    index1 = matches.index1[kept]
    candidates = ReferenceMatches(matches.index0[kept], index1, view.x[index1])
    return Track(reference, result, matches.index0[rows], matches.index1[rows], rows, candidates)

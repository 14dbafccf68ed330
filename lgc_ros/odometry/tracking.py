"""Tracking: a view is matched to a keyframe and located by the landmarks its keypoints show."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
import poselib

from lgc_ros.estimation.estimators import EstimatorOptions
from lgc_ros.estimation.methods import parse_method
from lgc_ros.estimation.two_view import RelativePoseSolver, TwoViewResult
from lgc_ros.matching.correspondences import Matches, correspond, match, nearest_per_keypoint
from lgc_ros.odometry.map import NONE, OUTLIER_SIGMAS, Keyframe, LandmarkMap, View, motion_between
from lgc_ros.odometry.motion_search import ReferenceMatches
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.pose_optimization import refine_pose
from lgc_ros.runtime.stage_timer import StageTimer

# Views since the reference that are kept to tell motions apart.
MAX_VIEWS_BETWEEN = 5
# Fewest landmarks that give a pose.
MIN_LANDMARKS = 15
PNP_THRESHOLD_PX = 4.0
# Fewest PnP samples; with many outliers more are drawn. The best sample is refined a little here
# and thoroughly afterwards.
PNP_SAMPLES = 20
PNP_REFINEMENTS = 5
# Samples of the two-view estimator behind the filter: nearly all it trusts are true matches.
FILTERED_SAMPLES = 100
# A rough two-view pose is enough while parallax is below this part of what initialization needs.
ROUGH_PARALLAX = 1 / 3
# Share of the matched landmarks that must agree with a pose.
MIN_LANDMARK_SHARE = 0.5
# Largest standard deviation of a pose, in radians and in landmark depths. Real and rendered
# sequences stay ten times below, even with 16 landmarks.
MAX_POSE_SIGMA = 0.1
# Share of the filtered matches that a pose from landmarks must explain; otherwise the two-view
# estimator decides.
EXPLAINED_SHARE = 0.8


@final
@dataclass(frozen=True, eq=False)
class Track:
    """A view matched to a keyframe.

    Attributes:
        reference: the keyframe.
        result: of the two-view solver.
        index0, index1: (M,) one-to-one inliers: keypoints of the keyframe and of the view.
        rows: (M,) their rows among the correspondences of the result.
        candidates: all matches that outlier rejection kept, one to one.
        pose: of the view; None if landmarks did not give one.
    """

    reference: Keyframe
    result: TwoViewResult
    index0: np.ndarray
    index1: np.ndarray
    rows: np.ndarray
    candidates: ReferenceMatches
    pose: Pose | None = None


@dataclass(frozen=True, eq=False)
class Pose:
    """Pose of a view, and the landmarks it rests on."""

    R_cw: np.ndarray
    t_cw: np.ndarray
    covariance: np.ndarray  # (6, 6) of the step on the left, relative to the keyframe
    used: np.ndarray  # (M,) bool over the track's matches: landmarks that agree

    @property
    def center(self) -> np.ndarray:
        """Position of the camera in the world."""
        return -self.R_cw.T @ self.t_cw


@dataclass(eq=False)
class Reference:
    """The keyframe that views are matched to, and what was seen since it took over.

    Attributes:
        most_matches: largest number of matches a view had with it.
        views: matches of the views since then, for initialization.
    """

    keyframe: Keyframe
    most_matches: int = 0
    views: list[ReferenceMatches] = field(default_factory=list)

    def saw(self, track: Track) -> None:
        """Count the matches of a view."""
        self.most_matches = max(self.most_matches, len(track.index0))

    def remember(self, matches: ReferenceMatches) -> None:
        """Keep the matches of a view; of many views every other one."""
        self.views.append(matches)
        if len(self.views) > MAX_VIEWS_BETWEEN:
            self.views = self.views[1::2]


class KeyframeMatcher:
    """Matches views to keyframes with the method that the options name."""

    def __init__(self, options: OdometryOptions) -> None:
        self.options = o = options
        samples = o.max_iterations or (FILTERED_SAMPLES if parse_method(o.method).filter else None)
        estimator = EstimatorOptions(o.threshold_px, max_iterations=samples, seed=o.seed)
        self.solver = RelativePoseSolver(
            o.method, o.features, o.model, o.device, estimator, o.engine
        )

    def __call__(
        self, view: View, reference: Keyframe, landmarks: LandmarkMap, timer: StageTimer
    ) -> Track:
        """Match a view to a keyframe, and locate it if the keyframe shows enough landmarks."""
        matches, rejected = self._match(view, reference, timer)
        located = self._track_by_landmarks(view, reference, landmarks, matches, rejected)
        timer.lap("track")
        if located is not None:
            return located
        track = _make_track(view, reference, matches, self._two_view(reference, rejected))
        timer.lap("estimate")
        track = replace(track, pose=self._locate(view, track, landmarks))
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

    def _two_view(self, reference: Keyframe, rejected: TwoViewResult) -> TwoViewResult:
        """The two-view pose; a rough one while parallax is far too small for initialization.

        Only the scores of a filter tell which matches a rough pose can rest on.
        """
        if self.solver.filter is not None and np.all(reference.landmark_ids == NONE):
            rough = self.solver.estimate(rejected, rough=True)
            needed_deg = ROUGH_PARALLAX * self.options.init_parallax_deg
            if rough.pose is not None and rough.parallax_deg < needed_deg:
                return rough
        return self.solver.estimate(rejected)

    def _track_by_landmarks(
        self,
        view: View,
        reference: Keyframe,
        landmarks: LandmarkMap,
        matches: Matches,
        rejected: TwoViewResult,
    ) -> Track | None:
        """Locate the view by landmarks alone, if they explain the filtered matches.

        This saves the two-view pose. Without a filter it is needed to reject outliers.
        """
        if self.solver.filter is None:
            return None
        kept = _make_track(view, reference, matches, replace(rejected, inliers=rejected.kept))
        pose = self._locate(view, kept, landmarks)
        if pose is None:
            return None
        result = self.solver.classify_inliers(rejected, *motion_between(reference, pose))
        track = _make_track(view, reference, matches, result)
        if len(track.index0) < EXPLAINED_SHARE * len(kept.index0):
            return None
        used = np.isin(track.rows, kept.rows[pose.used])
        return replace(track, pose=replace(pose, used=used))

    def _locate(self, view: View, track: Track, landmarks: LandmarkMap) -> Pose | None:
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
                "seed": self.options.seed,
            },
            {
                "loss_type": "CAUCHY",
                "loss_scale": self.options.sigma_px,
                "max_iterations": PNP_REFINEMENTS,
            },
        )
        needed = max(MIN_LANDMARKS, MIN_LANDMARK_SHARE * len(known))
        if info["num_inliers"] < MIN_LANDMARKS:
            return None
        refined = refine_pose(
            pose.R, pose.t, points, x, landmarks.whitening(view), landmarks.covariances[ids]
        )
        agree = refined.distance < OUTLIER_SIGMAS
        if agree.sum() < needed:
            return None
        depth = np.median(points[agree] @ refined.R_cw[2] + refined.t_cw[2])
        variances = np.diag(refined.covariance) / np.repeat([1.0, depth], 3) ** 2
        if max(variances[:3].sum(), variances[3:].sum()) > MAX_POSE_SIGMA**2:
            return None
        used = np.zeros(len(track.index0), bool)
        used[known[agree]] = True
        return Pose(refined.R_cw, refined.t_cw, refined.covariance, used)


def _make_track(view: View, reference: Keyframe, matches: Matches, result: TwoViewResult) -> Track:
    rows, kept = (
        nearest_per_keypoint(matches, chosen) for chosen in (result.inliers, result.kept)
    )
    index1 = matches.index1[kept]
    candidates = ReferenceMatches(matches.index0[kept], index1, view.x[index1])
    return Track(reference, result, matches.index0[rows], matches.index1[rows], rows, candidates)

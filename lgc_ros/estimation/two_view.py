"""The paper's pipeline, from two images to their relative pose.

It can be read along with the paper: features and putative matches (section 3.1), the network that
scores them (3.2), the 8-point algorithm weighted by the scores (3.3), the labels that it is
trained and evaluated with (3.4), and a robust estimator on the surviving matches (3.5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lgc_ros.errors import CheckpointError
from lgc_ros.estimation.estimators import (
    EIGHT_POINT,
    ESTIMATORS,
    REFINED_EIGHT_POINT,
    EstimatorOptions,
    PoseEstimate,
)
from lgc_ros.estimation.methods import FILTER_ESTIMATOR, parse_method
from lgc_ros.features.base import make_extractor
from lgc_ros.filter.checkpoint import shipped_models
from lgc_ros.filter.correspondence_filter import (
    CorrespondenceFilter,
    FilterResult,
    top_scoring,
)
from lgc_ros.filter.probability import given_agreement
from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.epipolar import (
    EIGHT_POINT_MINIMUM,
    essential_from_pose,
    homogeneous,
    parallax_deg,
    sampson_distance,
    symmetric_epipolar_distance,
)
from lgc_ros.matching.correspondences import (
    Correspondences,
    correspond,
    match,
    one_to_one,
    ratio_test,
)
from lgc_ros.runtime.stage_timer import StageTimer

STAGES = ("features", "match", "filter", "estimate")
FILTERED_THRESHOLD_PX = 1.5
# Squared symmetric epipolar distance of true matches, normalized: (1e-2)², section 3.4.
LABEL_THRESHOLD = 1e-4
PROBABLY_TRUE = 0.5  # score of a match that is kept once the pose is known
NO_POSE = (
    "no relative pose agrees with enough matches: they may be identical, or the images may not "
    "show the same scene"
)


@dataclass(frozen=True, eq=False)
class TwoViewResult:
    """Relative pose of an image pair, the matches that support it, and the time of each stage.

    Attributes:
        correspondences: all putative matches.
        kept: (N,) bool, matches that passed outlier rejection; those that are probably true if the
            filter has scored them and a pose was found.
        inliers: (N,) bool, kept matches that agree with the estimated pose.
        pose: R_10, unit t_10 and E_10; None if no pose was found. Its own inliers are over the
            kept matches.
        failure: reason for a missing pose, in user terms; empty otherwise.
        scores: (N,) probabilities of being true, from the filter and, once it is known, from the
            pose; None for methods without the filter.
        ms: milliseconds by stage, see ``STAGES``.
        trust_score: score from which on the pose is estimated from a match.
    """

    correspondences: Correspondences
    kept: np.ndarray
    inliers: np.ndarray
    pose: PoseEstimate | None
    failure: str
    scores: np.ndarray | None
    ms: dict[str, float]
    trust_score: float = 0.0

    @property
    def parallax_deg(self) -> float:
        """Median angle between the viewing rays of the inliers; near 0, t_10 is meaningless."""
        if self.pose is None or not self.inliers.any():
            return 0.0
        inliers = self.correspondences.subset(self.inliers)
        return float(np.median(parallax_deg(self.pose.R_10, inliers.x0, inliers.x1)))

    def as_dict(self) -> dict:
        """JSON-compatible summary."""
        pose = self.pose
        return {
            "success": pose is not None,
            "failure": self.failure,
            "R_10": None if pose is None else pose.R_10.tolist(),
            "t_10": None if pose is None else pose.t_10.tolist(),
            "E_10": None if pose is None else pose.E_10.tolist(),
            "matches": len(self.correspondences),
            "kept": int(self.kept.sum()),
            "inliers": int(self.inliers.sum()),
            "parallax_deg": self.parallax_deg,
            "ms": {**self.ms, "total": sum(self.ms.values())},
        }


def true_matches(
    correspondences: Correspondences, R_gt: np.ndarray, t_gt: np.ndarray
) -> np.ndarray:
    """(N,) bool: matches that agree with the true relative pose (the labels of section 3.4).

    Without translation there is no epipolar geometry: the rotation maps points of image 0 to those
    of image 1.
    """
    x0, x1 = correspondences.x0, correspondences.x1
    if not np.any(t_gt):
        turned = homogeneous(x0) @ R_gt.T
        return np.square(turned[:, :2] / turned[:, 2:] - x1).sum(axis=1) < LABEL_THRESHOLD
    E_gt = essential_from_pose(R_gt, t_gt)
    return symmetric_epipolar_distance(E_gt, x0, x1) < LABEL_THRESHOLD


class TwoViewPipeline:
    """Relative pose of image pairs: extractor, matcher, filter and estimator.

    Args:
        method: see :func:`lgc_ros.estimation.methods.parse_method`.
        features: name of an extractor, see :mod:`lgc_ros.features.base`.
        max_keypoints: maximum number of keypoints per image.
        model: filter model, by name or path; defaults to the shipped model for these features.
        device: device of the filter: auto, cpu, cuda or cuda:N.
        options: threshold, confidence, iterations and seed of the estimator.
        engine: backend of the filter, see :mod:`lgc_ros.filter.backends.engines`.
        extractor_model: ONNX file of a learned extractor.
    """

    def __init__(
        self,
        method: str = "cn",
        features: str = "sift",
        max_keypoints: int = 2000,
        model: str | Path | None = None,
        device: str = "auto",
        options: EstimatorOptions | None = None,
        engine: str = "auto",
        extractor_model: str | Path | None = None,
    ) -> None:
        self.extract = make_extractor(features, max_keypoints, model=extractor_model)
        self.solver = RelativePoseSolver(method, features, model, device, options, engine)

    def __call__(
        self, image0: np.ndarray, image1: np.ndarray, camera0: Camera, camera1: Camera
    ) -> TwoViewResult:
        """The pose of camera 0 in camera 1, ``X1 = R_10 X0 + t_10``."""
        # Section 3.1: nearest neighbors in normalized coordinates.
        timer = StageTimer()
        features0, features1 = self.extract(image0), self.extract(image1)
        timer.lap("features")
        matches = match(features0, features1)
        correspondences = correspond(features0, features1, matches, camera0, camera1)
        timer.lap("match")
        result = self.solver(correspondences)
        return replace(result, ms=timer.ms | result.ms)


class RelativePoseSolver:
    """Relative pose from putative matches: outlier rejection, then a robust estimate.

    Args: see `TwoViewPipeline`; `match_filter` replaces the filter that `features`, `model`,
        `device` and `engine` describe, for a network that is still being trained.
    """

    def __init__(
        self,
        method: str = "cn",
        features: str = "sift",
        model: str | Path | None = None,
        device: str = "auto",
        options: EstimatorOptions | None = None,
        engine: str = "auto",
        match_filter: Callable[[Correspondences], FilterResult] | None = None,
    ) -> None:
        self.method = parse_method(method)
        self.options = options or estimator_options(method)
        self.filter: CorrespondenceFilter | None = None
        self._score = match_filter
        if self.method.filter and match_filter is None:
            self.filter = CorrespondenceFilter(model or default_model(features), device, engine)
            self.filter.check_features(features)
            self._score = self.filter

    def __call__(self, correspondences: Correspondences) -> TwoViewResult:
        return self.rescore(self.estimate(self.reject_outliers(correspondences)))

    def reject_outliers(self, correspondences: Correspondences) -> TwoViewResult:
        """Select the matches to estimate from; the result has no pose yet."""
        timer = StageTimer()
        kept, scores, trust_score = np.ones(len(correspondences), bool), None, 0.0
        if self._score is not None:  # section 3.2
            filtered = self._score(correspondences)
            kept, scores, trust_score = filtered.kept, filtered.scores, filtered.trust_score
            closed_form = self.method.estimator == EIGHT_POINT
            used = filtered.weights if closed_form else scores
            correspondences = replace(correspondences, scores=used)
        elif self.method.ratio:
            kept = ratio_test(correspondences)
        failure = self._too_few(len(correspondences), int(kept.sum()))
        timer.lap("filter")
        no_inliers = np.zeros_like(kept)
        return TwoViewResult(
            correspondences, kept, no_inliers, None, failure, scores, timer.ms, trust_score
        )

    def estimate(self, rejected: TwoViewResult) -> TwoViewResult:
        """Estimate the pose from the kept matches."""
        timer = StageTimer()
        result = rejected
        if not rejected.failure:
            survivors = rejected.correspondences.subset(rejected.kept)
            pose = self._estimate(survivors, rejected.trust_score)
            result = (
                self.classify_inliers(rejected, pose.R_10, pose.t_10)
                if pose
                else replace(rejected, failure=NO_POSE)
            )
        timer.lap("estimate")
        return replace(result, ms=result.ms | timer.ms)

    def rescore(self, result: TwoViewResult) -> TwoViewResult:
        """Score all matches again, now that the pose is known, and keep the probably true ones.

        The filter sees no epipolar geometry but its own guess: it misses true matches that look
        like no others, and keeps outliers that the pose contradicts.
        """
        if result.pose is None or result.scores is None:
            return result
        timer = StageTimer()
        c, pose = result.correspondences, result.pose
        strangers = np.roll(c.x1, len(c) // 2, axis=0)  # agree with the points x0 by chance only
        agrees, by_chance = (
            symmetric_epipolar_distance(pose.E_10, c.x0, x1) < LABEL_THRESHOLD
            for x1 in (c.x1, strangers)
        )
        scores = given_agreement(result.scores, agrees, by_chance.mean())
        result = replace(result, scores=scores, kept=scores >= PROBABLY_TRUE)
        result = self.classify_inliers(result, pose.R_10, pose.t_10)
        timer.lap("estimate")
        total_ms = result.ms["estimate"] + timer.ms["estimate"]
        return replace(result, ms={**result.ms, "estimate": total_ms})

    def classify_inliers(
        self,
        rejected: TwoViewResult,
        R_10: np.ndarray,
        t_10: np.ndarray,
        threshold_px: float | None = None,
    ) -> TwoViewResult:
        """Mark the kept matches that agree with a given pose as its inliers.

        `threshold_px` is the maximum Sampson distance; it defaults to the estimator's.
        """
        c, kept = rejected.correspondences, rejected.kept
        E_10 = essential_from_pose(R_10, t_10)
        distance = sampson_distance(E_10, c.x0[kept], c.x1[kept])
        agreeing = distance < ((threshold_px or self.options.threshold_px) / c.focal) ** 2
        inliers = np.zeros_like(kept)
        inliers[kept] = agreeing
        pose = PoseEstimate(R_10, t_10 / np.linalg.norm(t_10), E_10, agreeing)
        return replace(rejected, inliers=inliers, pose=pose)

    def _estimate(self, survivors: Correspondences, trust_score: float) -> PoseEstimate | None:
        """Section 3.5, or 3.3 where the method's estimator is the 8-point algorithm."""
        if self.method.unique:
            scores = -survivors.ratio if survivors.scores is None else survivors.scores
            survivors = survivors.subset(one_to_one(survivors, scores))
        if self._score is not None and self.method.estimator != EIGHT_POINT:
            assert survivors.scores is not None  # the filter scored all matches
            survivors = survivors.subset(top_scoring(survivors.scores, trust_score))
        return ESTIMATORS[self.method.estimator](survivors, self.options)

    def _too_few(self, matches: int, kept: int) -> str:
        if matches < EIGHT_POINT_MINIMUM:
            return (
                f"only {matches} matches, at least {EIGHT_POINT_MINIMUM} are needed: the images "
                "have too little texture, or max_keypoints is too low"
            )
        if kept < EIGHT_POINT_MINIMUM:
            rejection = "filter" if self._score else "ratio test"
            return (
                f"the {rejection} kept {kept} of {matches} matches, at least "
                f"{EIGHT_POINT_MINIMUM} are needed: the images may not show the same scene"
            )
        return ""


def estimator_options(method: str, threshold_px: float | None = None) -> EstimatorOptions:
    """Options of a method's estimator; the threshold defaults to the one that suits the method.

    The filter leaves few outliers, which allows a wider threshold to tolerate blur and imperfect
    calibration, provided that the estimator refines its pose, as those of `cn` and `cn-8pt` do.
    Without the filter, a wider threshold would admit outliers, and RANSAC would return any pose
    within it.
    """
    if threshold_px is None:
        parsed = parse_method(method)
        wide = parsed.filter and parsed.estimator in (FILTER_ESTIMATOR, REFINED_EIGHT_POINT)
        threshold_px = FILTERED_THRESHOLD_PX if wide else EstimatorOptions.threshold_px
    return EstimatorOptions(threshold_px)


def default_model(features: str) -> str:
    """Name of the shipped model for a kind of features."""
    if features not in shipped_models():
        raise CheckpointError(
            f"no shipped model was trained on {features} features (available: "
            f"{', '.join(shipped_models())}): pass a model file, or choose a method without cn"
        )
    return features

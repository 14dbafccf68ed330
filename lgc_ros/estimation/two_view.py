"""The paper, end to end: from two images to their relative pose (sections 3.1 to 3.5)."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lgc_ros.errors import CheckpointError
from lgc_ros.estimation.estimators import EIGHT_POINT, ESTIMATORS, EstimatorOptions, PoseEstimate
from lgc_ros.estimation.methods import FILTER_ESTIMATOR, parse_method
from lgc_ros.features.base import make_extractor
from lgc_ros.filter.checkpoint import shipped_models
from lgc_ros.filter.correspondence_filter import (
    MAX_TRUSTED,
    CorrespondenceFilter,
    match_scores,
    top_scoring,
)
from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.epipolar import (
    EIGHT_POINT_MINIMUM,
    essential_from_pose,
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

STAGES = ("features", "match", "filter", "estimate")
FILTERED_THRESHOLD_PX = 1.5
# A rough pose is that of so many samples of so many matches.
ROUGH_SAMPLES, ROUGH_MATCHES = 25, 250
LABEL_THRESHOLD = 1e-4
"""A match is right below this squared symmetric epipolar distance, normalized: (1e-2)²."""
NO_POSE = (
    "no relative pose agrees with enough matches: they may all be equal, or the images may not "
    "show the same scene"
)


@dataclass(frozen=True, eq=False)
class TwoViewResult:
    """Relative pose of a pair, the matches it rests on, and where the time went.

    Attributes:
        correspondences: all putative matches.
        kept: (N,) bool, matches that outlier rejection let through to the estimator.
        inliers: (N,) bool, matches that agree with the estimated pose.
        pose: R_10, unit t_10 and E_10; None when no pose was found. Its own inliers are over the
            kept matches.
        failure: why there is no pose, in user terms; empty otherwise.
        scores: (N,) weights in [0, 1) that the filter gave; None for methods without it.
        ms: milliseconds by stage, of ``STAGES``.
    """

    correspondences: Correspondences
    kept: np.ndarray
    inliers: np.ndarray
    pose: PoseEstimate | None
    failure: str
    scores: np.ndarray | None
    ms: dict[str, float]

    @property
    def parallax_deg(self) -> float:
        """Median angle between the viewing rays of the inliers; near 0, t_10 means nothing."""
        if self.pose is None or not self.inliers.any():
            return 0.0
        seen = self.correspondences.subset(self.inliers)
        return float(np.median(parallax_deg(self.pose.R_10, seen.x0, seen.x1)))

    def as_dict(self) -> dict:
        """Plain numbers and lists, for JSON."""
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
    """(N,) bool: matches that agree with the true relative pose (the paper's labels)."""
    E_gt = essential_from_pose(R_gt, t_gt)
    distance = symmetric_epipolar_distance(E_gt, correspondences.x0, correspondences.x1)
    return distance < LABEL_THRESHOLD


class TwoViewPipeline:
    """Extractor, matcher, filter and estimator, set up once and used on many pairs.

    Args:
        method: see :func:`lgc_ros.estimation.methods.parse_method`.
        features: name of an extractor, see :mod:`lgc_ros.features.base`.
        max_keypoints: keypoints per image.
        model: filter model, by name or path; by default the shipped one for these features.
        device: where the filter runs: auto, cpu, cuda or cuda:N.
        options: threshold, confidence, iterations and seed of the estimator.
        engine: what runs the filter, see :mod:`lgc_ros.filter.backends.engines`.
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
    ) -> None:
        self.extract = make_extractor(features, max_keypoints)
        self.solver = RelativePoseSolver(method, features, model, device, options, engine)

    def __call__(
        self, image0: np.ndarray, image1: np.ndarray, camera0: Camera, camera1: Camera
    ) -> TwoViewResult:
        """The pose of camera 0 seen from camera 1, ``X1 = R_10 X0 + t_10``."""
        start = time.perf_counter()
        features0, features1 = self.extract(image0), self.extract(image1)
        extracted = time.perf_counter()
        matches = match(features0, features1)
        correspondences = correspond(features0, features1, matches, camera0, camera1)
        matched = time.perf_counter()
        result = self.solver(correspondences)
        ms = {"features": 1e3 * (extracted - start), "match": 1e3 * (matched - extracted)}
        return replace(result, ms=ms | result.ms)


class RelativePoseSolver:
    """What follows matching: reject outliers, estimate the pose, tell which matches agree."""

    def __init__(
        self,
        method: str = "cn",
        features: str = "sift",
        model: str | Path | None = None,
        device: str = "auto",
        options: EstimatorOptions | None = None,
        engine: str = "auto",
    ) -> None:
        self.method = parse_method(method)
        self.options = options or estimator_options(method)
        self.filter = None
        if self.method.filter:
            model = model or default_model(features)
            self.filter = CorrespondenceFilter(model, device, engine)
            self.filter.check_features(features)

    def __call__(self, correspondences: Correspondences) -> TwoViewResult:
        return self.estimate(self.reject_outliers(correspondences))

    def reject_outliers(self, correspondences: Correspondences) -> TwoViewResult:
        """Outlier rejection alone: which matches are worth a look, and no pose yet."""
        start = time.perf_counter()
        kept, scores = np.ones(len(correspondences), bool), None
        if self.filter is not None:
            filtered = self.filter(correspondences)
            closed_form = self.method.estimator == EIGHT_POINT
            kept, scores = filtered.kept, filtered.weights if closed_form else filtered.scores
            correspondences = replace(correspondences, scores=scores)
        elif self.method.ratio:
            kept = ratio_test(correspondences)
        failure = self._too_few(len(correspondences), int(kept.sum()))
        ms = {"filter": 1e3 * (time.perf_counter() - start)}
        return TwoViewResult(correspondences, kept, np.zeros_like(kept), None, failure, scores, ms)

    def estimate(self, rejected: TwoViewResult, rough: bool = False) -> TwoViewResult:
        """The pose of the matches that outlier rejection kept, or for less time a rough one."""
        start = time.perf_counter()
        result = rejected
        if not rejected.failure:
            pose = self._estimate(rejected.correspondences.subset(rejected.kept), rough)
            result = (
                self.classify_inliers(rejected, pose.R_10, pose.t_10)
                if pose
                else replace(rejected, failure=NO_POSE)
            )
        return replace(result, ms=result.ms | {"estimate": 1e3 * (time.perf_counter() - start)})

    def classify_inliers(
        self,
        rejected: TwoViewResult,
        R_10: np.ndarray,
        t_10: np.ndarray,
        threshold_px: float | None = None,
    ) -> TwoViewResult:
        """Which of the matches that outlier rejection kept agree with a pose.

        `threshold_px` is the largest Sampson distance, the estimator's if not given.
        """
        c, kept = rejected.correspondences, rejected.kept
        E_10 = essential_from_pose(R_10, t_10)
        distance = sampson_distance(E_10, c.x0[kept], c.x1[kept])
        agreeing = distance < ((threshold_px or self.options.threshold_px) / c.focal) ** 2
        inliers = np.zeros_like(kept)
        inliers[kept] = agreeing
        pose = PoseEstimate(R_10, t_10 / np.linalg.norm(t_10), E_10, agreeing)
        return replace(rejected, inliers=inliers, pose=pose)

    def _estimate(self, survivors: Correspondences, rough: bool) -> PoseEstimate | None:
        options, most = self.options, MAX_TRUSTED
        if rough:
            options, most = replace(options, max_iterations=ROUGH_SAMPLES), ROUGH_MATCHES
        if self.method.unique:
            scores = -survivors.ratio if survivors.scores is None else survivors.scores
            survivors = survivors.subset(one_to_one(survivors, scores))
        if self.filter is not None and self.method.estimator != EIGHT_POINT:
            info = self.filter.info
            trusted = top_scoring(survivors.scores, match_scores(info.trust_above, info), most)
            survivors = survivors.subset(trusted)
        return ESTIMATORS[self.method.estimator](survivors, options)

    def _too_few(self, matches: int, kept: int) -> str:
        if matches < EIGHT_POINT_MINIMUM:
            return (
                f"only {matches} matches, at least {EIGHT_POINT_MINIMUM} are needed: the images "
                "have too little texture or too few keypoints were asked for"
            )
        if kept < EIGHT_POINT_MINIMUM:
            rejecter = "filter" if self.filter else "ratio test"
            return (
                f"the {rejecter} kept {kept} of {matches} matches, at least "
                f"{EIGHT_POINT_MINIMUM} are needed: the images may not show the same scene"
            )
        return ""


def estimator_options(method: str, threshold_px: float | None = None) -> EstimatorOptions:
    """Options of a method's estimator with the threshold that suits it, unless one is given.

    What the filter trusts is clean enough for a wider threshold, which forgives blur and imperfect
    calibration, if the estimator refines its pose as `cn`'s does. Among unfiltered matches a wider
    threshold would let in wrong ones; RANSAC would take any pose within it.
    """
    if threshold_px is None:
        parsed = parse_method(method)
        wide = parsed.filter and parsed.estimator == FILTER_ESTIMATOR
        threshold_px = FILTERED_THRESHOLD_PX if wide else EstimatorOptions.threshold_px
    return EstimatorOptions(threshold_px)


def default_model(features: str) -> str:
    """The shipped model for a kind of keypoints."""
    if features not in shipped_models():
        raise CheckpointError(
            f"no shipped model was trained on {features} keypoints (there are: "
            f"{', '.join(shipped_models())}): give a model file, or choose a method without cn"
        )
    return features

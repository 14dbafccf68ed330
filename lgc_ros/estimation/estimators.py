"""Robust estimators of the relative pose, by name, behind one signature.

They are the baselines of the paper (section 4.2) and stronger ones that came later. Each may be
given all matches, those that pass the ratio test, or those that the filter kept (section 3.5);
when the matches carry scores, the estimators that can do so try the best ones first (PROSAC).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import cv2
import numpy as np
import poselib

from lgc_ros.errors import ConfigError, LgcError
from lgc_ros.estimation.mlesac import mlesac
from lgc_ros.geometry.epipolar import (
    EIGHT_POINT_MINIMUM,
    essential_from_pose,
    project_to_essential,
    recover_pose,
    sampson_distance,
    weighted_eight_point,
)
from lgc_ros.matching.correspondences import Correspondences

EIGHT_POINT = "8pt"
REFINED_EIGHT_POINT = "8pt-refined"
FIVE_POINT_MINIMUM = 5
# Samples drawn at least; of what a filter has ranked most is right, and fewer find the best pose.
POSELIB_MIN_ITERATIONS, POSELIB_MIN_ITERATIONS_RANKED = 1000, 300
# OpenCV's 6 is meant for 10000 ORB features; 2000 matches have fewer neighbours to agree.
GMS_THRESHOLD_FACTOR = 3.0
# Keypoints are located to a fraction of a pixel, however large a residual may still be an inlier.
POSELIB_LOSS_PX = 0.25
# A loss that begins wide forgives a bad start; narrowed step by step, it ends as PoseLib's does.
REFINEMENT_LOSSES_PX = (16 * POSELIB_LOSS_PX, 4 * POSELIB_LOSS_PX, POSELIB_LOSS_PX)

# 95 % of Gaussian residuals lie within 1.96 standard deviations.
SIGMA_PER_THRESHOLD = 1 / 1.96


@dataclass(frozen=True)
class EstimatorOptions:
    """What all robust estimators have in common.

    Args:
        threshold_px: largest Sampson distance of an inlier, in pixels of the mean focal length.
        confidence: probability of having drawn a sample without outliers at which to stop.
        max_iterations: most samples drawn; None takes the estimator's entry in MAX_ITERATIONS.
        seed: of the random sampling. OpenCV's RANSAC and LMedS always draw the same samples.
    """

    threshold_px: float = 1.0
    confidence: float = 0.999
    max_iterations: int | None = None
    seed: int = 0

    def __post_init__(self):
        if not 0 < self.threshold_px < float("inf"):
            raise ConfigError(f"threshold_px must be positive, got {self.threshold_px}")
        if not 0 < self.confidence < 1:
            raise ConfigError(f"confidence must lie between 0 and 1, got {self.confidence}")
        if self.max_iterations is not None and self.max_iterations < 1:
            raise ConfigError(f"max_iterations must be at least 1, got {self.max_iterations}")
        if not 0 <= self.seed < 2**31:
            raise ConfigError(f"seed must be 0 or a positive 32-bit integer, got {self.seed}")


@dataclass(frozen=True, eq=False)
class PoseEstimate:
    """The relative pose of two views and the matches that agree with it."""

    R_10: np.ndarray  # (3, 3)
    t_10: np.ndarray  # (3,) unit length
    E_10: np.ndarray  # (3, 3) = [t_10]x R_10
    inliers: np.ndarray  # (N,) bool over the given matches: Sampson distance below the threshold


@dataclass(frozen=True, eq=False)
class _Problem:
    """Clean input of a backend: finite points, best first when they are ranked."""

    matches: Correspondences
    ranked: bool
    options: EstimatorOptions
    max_iterations: int

    @property
    def threshold(self) -> float:
        """The inlier threshold in normalized coordinates."""
        return self.options.threshold_px / self.matches.focal


_Pose = tuple[np.ndarray, np.ndarray]
_Backend = Callable[[_Problem], _Pose | None]


def _opencv(method: int, problem: _Problem) -> _Pose | None:
    """OpenCV's classical robust loop around the five-point solver."""
    c = problem.matches
    E, mask = cv2.findEssentialMat(
        c.x0,
        c.x1,
        np.eye(3),
        method=method,
        prob=problem.options.confidence,
        threshold=problem.threshold,
        maxIters=problem.max_iterations,
    )
    return _pose_from_opencv(E, mask, c)


def _usac(score: int, local_optimization: int, polisher: str, problem: _Problem) -> _Pose | None:
    """OpenCV's USAC framework (Raguram et al. 2013) with the given parts.

    On ranked matches it may stop early: where the best matches lie on one plane, samples from it
    explain most of the rest and end the search with a wrong pose. PoseLib searches on.
    """
    c = problem.matches
    params = cv2.UsacParams()
    params.score = score
    params.loMethod = local_optimization
    if hasattr(cv2, polisher):  # OpenCV 4.6 has fewer; its default polishes less
        params.final_polisher = getattr(cv2, polisher)
    params.sampler = cv2.SAMPLING_PROSAC if problem.ranked else cv2.SAMPLING_UNIFORM
    params.threshold = problem.options.threshold_px
    params.confidence = problem.options.confidence
    params.maxIterations = problem.max_iterations
    params.randomGeneratorState = problem.options.seed
    params.isParallel = False
    # USAC's own constants assume pixels.
    K = np.diag([c.focal, c.focal, 1.0])
    no_distortion = np.zeros(4)
    E, mask = cv2.findEssentialMat(
        c.x0 * c.focal, c.x1 * c.focal, K, K, no_distortion, no_distortion, params
    )
    return _pose_from_opencv(E, mask, c)


def _poselib(problem: _Problem) -> _Pose | None:
    """PoseLib's LO-RANSAC with final non-linear refinement."""
    c, options = problem.matches, problem.options
    least = POSELIB_MIN_ITERATIONS_RANKED if problem.ranked else POSELIB_MIN_ITERATIONS
    camera = _poselib_camera(c)
    pose, info = poselib.estimate_relative_pose(
        c.x0 * c.focal,
        c.x1 * c.focal,
        camera,
        camera,
        {
            "max_epipolar_error": options.threshold_px,
            "success_prob": options.confidence,
            "max_iterations": problem.max_iterations,
            "min_iterations": min(least, problem.max_iterations),
            "progressive_sampling": problem.ranked,
            "seed": options.seed,
        },
        {"loss_type": "CAUCHY", "loss_scale": POSELIB_LOSS_PX},
    )
    if info["num_inliers"] < FIVE_POINT_MINIMUM:
        return None
    return pose.R, pose.t


def _poselib_camera(c: Correspondences) -> dict:
    """A camera that makes pixels of normalized points times the focal length."""
    return {"model": "SIMPLE_PINHOLE", "width": 1, "height": 1, "params": [c.focal, 0.0, 0.0]}


def _mlesac(problem: _Problem) -> _Pose | None:
    """Torr and Zisserman's MLESAC; a wrong match may be anywhere in image 1."""
    c, options = problem.matches, problem.options
    found = mlesac(
        c.x0,
        c.x1,
        sigma=SIGMA_PER_THRESHOLD * problem.threshold,
        window=np.hypot(*c.size1) / c.focal,
        confidence=options.confidence,
        max_iterations=problem.max_iterations,
        seed=options.seed,
    )
    return None if found is None else found[:2]


def _gms(problem: _Problem) -> _Pose | None:
    """Grid-based motion statistics (Bian et al. 2017), then RANSAC on what they keep."""
    kept = problem.matches.subset(_gms_survivors(problem.matches))
    if not _enough_distinct(kept, FIVE_POINT_MINIMUM):
        return None
    survivors = _Problem(kept, problem.ranked, problem.options, problem.max_iterations)
    return _opencv(cv2.RANSAC, survivors)


def _gms_survivors(c: Correspondences) -> np.ndarray:
    """Indices of the matches whose neighbours move alike."""
    if not hasattr(cv2, "xfeatures2d") or not hasattr(cv2.xfeatures2d, "matchGMS"):
        raise LgcError(
            "gms needs OpenCV's contrib modules, which this OpenCV was built without: install "
            "opencv-contrib-python-headless (or opencv-contrib-python) instead of opencv-python, "
            "or choose another method"
        )
    keypoints0, keypoints1 = (
        [cv2.KeyPoint(float(x), float(y), 1.0) for x, y in points] for points in (c.p0, c.p1)
    )
    matches = [cv2.DMatch(i, i, 0.0) for i in range(len(c))]
    kept = cv2.xfeatures2d.matchGMS(
        c.size0,
        c.size1,
        keypoints0,
        keypoints1,
        matches,
        withRotation=True,
        withScale=True,
        thresholdFactor=GMS_THRESHOLD_FACTOR,
    )
    return np.array([match.queryIdx for match in kept], dtype=np.int64)


def _eight_point(problem: _Problem) -> _Pose | None:
    """The paper's weighted 8-point (section 3.3): scores are weights, one closed-form step."""
    c = problem.matches
    weights = np.ones(len(c)) if c.scores is None else np.asarray(c.scores, dtype=np.float64)
    if not _enough_distinct(c.subset(weights > 0), EIGHT_POINT_MINIMUM):
        return None
    E = project_to_essential(weighted_eight_point(c.x0, c.x1, weights, conditioned=True))
    R_10, t_10, _ = recover_pose(E, c.x0, c.x1, weights)
    return R_10, t_10


def _refined_eight_point(problem: _Problem) -> _Pose | None:
    """The weighted 8-point, then least squares with a robust loss from there; nothing is sampled.

    One wrong match in ten is enough to spoil the linear solution, and points near a plane hardly
    determine it: it has eight unknowns, a pose five. As a start it may still do. The refinement
    minimizes the Sampson distance over poses, of all matches that have a weight, alike.
    """
    start = _eight_point(problem)
    if start is None:
        return None
    c = problem.matches
    if c.scores is not None:
        c = c.subset(c.scores > 0)
    pose = poselib.CameraPose()
    pose.R, pose.t = start
    camera = _poselib_camera(c)
    for loss_px in REFINEMENT_LOSSES_PX:
        loss = {"loss_type": "CAUCHY", "loss_scale": loss_px}
        pose, _ = poselib.refine_relative_pose(
            c.x0 * c.focal, c.x1 * c.focal, pose, camera, camera, loss
        )
    return pose.R, pose.t


def _pose_from_opencv(E: np.ndarray | None, mask: np.ndarray | None, c: Correspondences):
    """The pose with most inliers in front of both cameras, over all matrices OpenCV returned.

    The five-point solver has up to ten solutions; given no more than five matches, OpenCV stacks
    them all.
    """
    if E is None or mask is None or not np.isfinite(E).all():
        return None
    inliers = mask.ravel().astype(bool)
    if np.count_nonzero(inliers) < FIVE_POINT_MINIMUM:
        return None
    x0, x1 = c.x0[inliers], c.x1[inliers]
    solutions = [recover_pose(solution, x0, x1) for solution in E.reshape(-1, 3, 3)]
    R_10, t_10, _ = max(solutions, key=lambda solution: np.count_nonzero(solution[2]))
    return R_10, t_10


def _enough_distinct(c: Correspondences, minimum: int) -> bool:
    """Whether both images show enough different points to determine a model."""
    return all(len(np.unique(x[:, 0] + 1j * x[:, 1])) >= minimum for x in (c.x0, c.x1))


def _estimate(
    name: str, matches: Correspondences, options: EstimatorOptions
) -> PoseEstimate | None:
    usable = np.isfinite(matches.x0).all(axis=1) & np.isfinite(matches.x1).all(axis=1)
    order = np.flatnonzero(usable)
    ranked = matches.scores is not None
    if ranked:
        order = order[np.argsort(-matches.scores[order], kind="stable")]
    given = matches.subset(order)
    if not _enough_distinct(given, FIVE_POINT_MINIMUM):
        return None
    # A few matches make only a few different samples; drawing them again and again takes seconds.
    different_samples = math.comb(len(given), FIVE_POINT_MINIMUM)
    max_iterations = min(options.max_iterations or MAX_ITERATIONS[name], 10 * different_samples)
    problem = _Problem(given, ranked, options, max_iterations)
    pose = _BACKENDS[name](problem)
    if pose is None:
        return None
    R_10, t_10 = pose[0], pose[1] / np.linalg.norm(pose[1])
    E_10 = essential_from_pose(R_10, t_10)
    inliers = np.zeros(len(matches), dtype=bool)
    inliers[order] = sampson_distance(E_10, given.x0, given.x1) < problem.threshold**2
    return PoseEstimate(R_10, t_10, E_10, inliers)


# Samples drawn at most by default: about a third of a second for 2000 matches, as long as the
# paper's RANSAC takes (section 4.4); PoseLib keeps its own, more generous limit.
MAX_ITERATIONS = {
    "ransac": 2000,
    "lmeds": 2000,
    "mlesac": 10000,
    "magsac": 20000,
    "usac": 20000,
    "poselib": 100000,
    "gms": 2000,
    EIGHT_POINT: 1,
    REFINED_EIGHT_POINT: 1,
}

_BACKENDS: dict[str, _Backend] = {
    "ransac": partial(_opencv, cv2.RANSAC),
    "lmeds": partial(_opencv, cv2.LMEDS),
    "mlesac": _mlesac,
    "magsac": partial(_usac, cv2.SCORE_METHOD_MAGSAC, cv2.LOCAL_OPTIM_SIGMA, "COV_POLISHER"),
    "usac": partial(_usac, cv2.SCORE_METHOD_MSAC, cv2.LOCAL_OPTIM_INNER_LO, "LSQ_POLISHER"),
    "poselib": _poselib,
    "gms": _gms,
    EIGHT_POINT: _eight_point,
    REFINED_EIGHT_POINT: _refined_eight_point,
}

ESTIMATORS: dict[str, Callable[[Correspondences, EstimatorOptions], PoseEstimate | None]] = {
    name: partial(_estimate, name) for name in _BACKENDS
}

# Those that find the right matches by themselves; the 8-point relies on the weights it is given.
ROBUST_ESTIMATORS = tuple(
    name for name in ESTIMATORS if name not in (EIGHT_POINT, REFINED_EIGHT_POINT)
)

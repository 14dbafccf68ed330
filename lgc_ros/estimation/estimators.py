"""Robust estimators of the relative pose, by name and with one signature.

They are the baselines of the paper (section 4.2) and stronger ones published since. If the matches
carry scores, the estimators that can do so sample the best ones first (PROSAC).

A new backend is a function from `Problem` to a pose, in a file of its own, and a line in BACKENDS
and MAX_ITERATIONS.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from lgc_ros.errors import ConfigError
from lgc_ros.estimation import eight_point, gms, mlesac, opencv, poselib
from lgc_ros.geometry.epipolar import FIVE_POINT_MINIMUM, essential_from_pose, sampson_distance
from lgc_ros.matching.correspondences import Correspondences

EIGHT_POINT = "8pt"
REFINED_EIGHT_POINT = "8pt-refined"


@dataclass(frozen=True)
class EstimatorOptions:
    """Options that all robust estimators share.

    Attributes:
        threshold_px: maximum Sampson distance of an inlier, in pixels of the mean focal length.
        confidence: sampling stops when an outlier-free sample was drawn with this probability.
        max_iterations: maximum number of samples; None uses the estimator's MAX_ITERATIONS.
        seed: seed of the random sampling. OpenCV's RANSAC and LMedS ignore it: they always draw
            the same samples.
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
    """Relative pose of two views and the matches that agree with it."""

    R_10: np.ndarray  # (3, 3)
    t_10: np.ndarray  # (3,) unit length
    E_10: np.ndarray  # (3, 3) = [t_10]x R_10
    inliers: np.ndarray  # (N,) bool over the given matches: Sampson distance below the threshold


@dataclass(frozen=True, eq=False)
class Problem:
    """Input of a backend: finite points, best scores first if the matches are ranked."""

    matches: Correspondences
    ranked: bool
    options: EstimatorOptions
    max_iterations: int

    @property
    def threshold(self) -> float:
        """Inlier threshold in normalized coordinates."""
        return self.options.threshold_px / self.matches.focal

    def has_distinct_points(self, minimum: int) -> bool:
        """Whether both images show enough distinct points to determine a model."""
        points = self.matches.x0, self.matches.x1
        return all(len(np.unique(x[:, 0] + 1j * x[:, 1])) >= minimum for x in points)


Pose = tuple[np.ndarray, np.ndarray]
"""R_10 and t_10 of any length."""

BACKENDS: dict[str, Callable[[Problem], Pose | None]] = {
    "ransac": opencv.ransac,
    "lmeds": opencv.lmeds,
    "mlesac": mlesac.mlesac,
    "magsac": opencv.magsac,
    "usac": opencv.usac,
    "poselib": poselib.lo_ransac,
    "gms": gms.gms,
    EIGHT_POINT: eight_point.weighted,
    REFINED_EIGHT_POINT: eight_point.refined,
}

# Default sampling limits: about a third of a second for 2000 matches, as long as the paper's
# RANSAC takes (section 4.4). PoseLib keeps its own, more generous limit.
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


def _estimate(
    name: str, matches: Correspondences, options: EstimatorOptions
) -> PoseEstimate | None:
    """Pose of the matches by the named backend; None if they do not determine one."""
    finite = np.isfinite(matches.x0).all(axis=1) & np.isfinite(matches.x1).all(axis=1)
    order = np.flatnonzero(finite)
    scores = matches.scores
    if scores is not None:
        order = order[np.argsort(-scores[order], kind="stable")]
    usable = matches.subset(order)
    # Few matches have few distinct samples; drawing them over and over would take seconds.
    distinct_samples = math.comb(len(usable), FIVE_POINT_MINIMUM)
    max_iterations = min(options.max_iterations or MAX_ITERATIONS[name], 10 * distinct_samples)
    problem = Problem(usable, scores is not None, options, max_iterations)
    if not problem.has_distinct_points(FIVE_POINT_MINIMUM):
        return None
    pose = BACKENDS[name](problem)
    if pose is None:
        return None
    R_10, t_10 = pose[0], pose[1] / np.linalg.norm(pose[1])
    E_10 = essential_from_pose(R_10, t_10)
    inliers = np.zeros(len(matches), dtype=bool)
    inliers[order] = sampson_distance(E_10, usable.x0, usable.x1) < problem.threshold**2
    return PoseEstimate(R_10, t_10, E_10, inliers)


ESTIMATORS: dict[str, Callable[[Correspondences, EstimatorOptions], PoseEstimate | None]] = {
    name: partial(_estimate, name) for name in BACKENDS
}

# Estimators that reject outliers themselves; the 8-point algorithm relies on its weights.
ROBUST_ESTIMATORS = tuple(
    name for name in ESTIMATORS if name not in (EIGHT_POINT, REFINED_EIGHT_POINT)
)

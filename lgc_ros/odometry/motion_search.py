"""Which motion explains the first views.

Two views of a plane, or of little else, fit two motions equally well, and the wrong one corrupts
everything that follows. Each motion that a pair allows is therefore tested on the views in
between, too, which may have seen more. A motion is accepted only if it explains them clearly
better than any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import poselib

from lgc_ros.geometry.epipolar import (
    essential_from_pose,
    homogeneous,
    ray_depths,
    rotation_error_deg,
    sampson_distance,
    translation_error_deg,
    triangulate_angular,
)
from lgc_ros.odometry.pose_optimization import (
    MEDIAN_OF_ONE,
    project,
    residual_scale,
    rotation_from_vector,
)

MIN_POINTS = 15
# Share of the points that must lie in front of both cameras.
MIN_IN_FRONT = 0.5
# Motions that differ by less are the same.
SAME_TURN_DEG = 1.0
SAME_DIRECTION_DEG = 15.0
# Another motion is clearly worse if this many more matches, or this share of them, contradict it.
CLEAR_MATCHES = 5.0
CLEAR_SHARE = 0.02
# Scale of the robust loss, in inlier thresholds: most keypoints are far more precise than the
# worst true match. At 1/2, translation directions had up to five times the error.
LOSS_SCALE = 1 / 8
# Number of refinements, each on the matches within so many thresholds of the last motion.
REFINEMENTS = 2
REFINEMENT_THRESHOLDS = 2.0
# Step of numerical derivatives: radians, and parts of the baseline.
DIFFERENCE = 1e-5
PIXELS = 1000.0
"""Focal length for PoseLib, whose constants assume coordinates in pixels."""
CAMERA = {"model": "SIMPLE_PINHOLE", "width": 1, "height": 1, "params": [PIXELS, 0.0, 0.0]}


@dataclass(frozen=True, eq=False)
class ReferenceMatches:
    """Matches of a keyframe with a view, one to one, that outlier rejection kept."""

    index0: np.ndarray  # keypoints of the reference
    index1: np.ndarray  # keypoints of the view
    x: np.ndarray  # (N, 2) where the view sees them, normalized


def motion_covariance(
    R_10: np.ndarray, t_10: np.ndarray, x0: np.ndarray, x1: np.ndarray, sigma: float
) -> np.ndarray:
    """Covariance (6, 6) of the step (omega, v) on the left of a motion of unit length.

    It follows from how the epipolar distances of true matches change with the step. Where parallax
    is small, rotation and sideways translation look alike, and the covariance says by how much.
    Along `t_10` it is zero: the length is the unit.
    """
    across = np.linalg.svd(t_10[None])[2][1:].T
    basis = np.zeros((6, 5))
    basis[:3, :3], basis[3:, 3:] = np.eye(3), across

    def distance(step):
        turn = rotation_from_vector(step[:3])
        E_10 = essential_from_pose(turn @ R_10, turn @ t_10 + step[3:])
        sign = np.sign(np.einsum("ij,ij->i", homogeneous(x1), homogeneous(x0) @ E_10.T))
        return sign * np.sqrt(sampson_distance(E_10, x0, x1)) / sigma

    steps = DIFFERENCE * np.ascontiguousarray(basis.T)
    J = np.array([(distance(step) - distance(-step)) / (2 * DIFFERENCE) for step in steps]).T
    excess = residual_scale(distance(np.zeros(6)) ** 2, MEDIAN_OF_ONE)
    return excess * basis @ np.linalg.inv(J.T @ J) @ basis.T


@dataclass(frozen=True, eq=False)
class Motion:
    """Motion from the reference camera to another, with `t_10` of unit length.

    `cost` counts the outliers; an inlier counts by its squared distance over that of the
    threshold.
    """

    R_10: np.ndarray
    t_10: np.ndarray
    cost: float

    def inliers(self, x0: np.ndarray, x1: np.ndarray, threshold: float) -> np.ndarray:
        """Mask of the matches within the threshold of their epipolar lines."""
        E_10 = essential_from_pose(self.R_10, self.t_10)
        return sampson_distance(E_10, x0, x1) < threshold**2

    def with_cost(self, x0: np.ndarray, x1: np.ndarray, threshold: float) -> Motion:
        """The same motion with the cost of these matches."""
        squared = sampson_distance(essential_from_pose(self.R_10, self.t_10), x0, x1)
        return replace(self, cost=_truncated_cost(squared, threshold))

    def same_as(self, other: Motion) -> bool:
        """Whether the two differ by no more than noise."""
        return (
            rotation_error_deg(self.R_10, other.R_10) < SAME_TURN_DEG
            and translation_error_deg(self.t_10, other.t_10, signed=True) < SAME_DIRECTION_DEG
        )


def find_motion(
    x_reference: np.ndarray,
    between: Sequence[ReferenceMatches],
    last: ReferenceMatches,
    R_10: np.ndarray,
    t_10: np.ndarray,
    threshold: float,
) -> tuple[Motion, bool]:
    """The motion to the last view that explains all views best, and whether it does clearly.

    Args:
        x_reference: (N, 2) keypoints of the reference, normalized.
        between: matches of the views since the reference.
        R_10, t_10: motion to the last view as estimated from two views alone.
        threshold: inlier threshold of the epipolar distance, normalized.
    """
    x0, x1 = x_reference[last.index0], last.x
    guesses = _hypotheses(R_10, t_10, x0, x1, threshold)
    motions = _distinct([_refined(R, t, x0, x1, threshold) for R, t in guesses])
    if len(motions) == 1:
        return motions[0], True
    totals = [
        m.cost + _cost_of_views_between(m, x_reference, between, last, threshold) for m in motions
    ]
    order = np.argsort(totals)
    count = len(x1) + sum(len(matches.x) for matches in between)
    clear = totals[order[1]] - totals[order[0]] > max(CLEAR_MATCHES, CLEAR_SHARE * count)
    return motions[order[0]], bool(clear)


def _distinct(motions: list[Motion]) -> list[Motion]:
    """Best first, without duplicates."""
    kept: list[Motion] = []
    for motion in sorted(motions, key=lambda m: m.cost):
        if not any(motion.same_as(other) for other in kept):
            kept.append(motion)
    return kept


def _hypotheses(R_10, t_10, x0, x1, threshold):
    """Motions that two views allow: the given one, and those of the dominant plane."""
    guesses = [(R_10, t_10)]
    options = {
        "max_reproj_error": 2 * PIXELS * threshold,
        "min_iterations": 100,
        "max_iterations": 1000,
        "seed": 0,
    }
    H, info = poselib.estimate_homography(PIXELS * x0, PIXELS * x1, options, {})
    if info["num_inliers"] >= MIN_POINTS:
        unit = np.array([1 / PIXELS, 1 / PIXELS, 1.0])
        poses, _ = poselib.motion_from_homography(unit[:, None] * H / unit)
        moves = ((pose.R, pose.t, np.linalg.norm(pose.t)) for pose in poses)
        guesses += [(R, t / length) for R, t, length in moves if length > 0]
    in_front = [_in_front(R, t, x0, x1).mean() > MIN_IN_FRONT for R, t in guesses]
    return [guess for guess, ahead in zip(guesses, in_front, strict=True) if ahead] or guesses[:1]


def _in_front(R_10, t_10, x0, x1):
    depth0, depth1 = ray_depths(R_10, t_10, x0, x1)
    return (depth0 > 0) & (depth1 > 0)


def _refined(R_10, t_10, x0, x1, threshold) -> Motion:
    """The motion near a hypothesis that fits the matches of two views best.

    Matches far from the hypothesis are left out, since outliers would pull it away.
    """
    loss = {"loss_type": "CAUCHY", "loss_scale": LOSS_SCALE * PIXELS * threshold}
    pose = poselib.CameraPose()
    pose.R, pose.t = R_10, t_10
    motions = [Motion(R_10, t_10, 0.0).with_cost(x0, x1, threshold)]
    for _ in range(REFINEMENTS):
        near = motions[-1].inliers(x0, x1, REFINEMENT_THRESHOLDS * threshold)
        if near.sum() < MIN_POINTS:
            break
        pose, _ = poselib.refine_relative_pose(
            PIXELS * x0[near], PIXELS * x1[near], pose, CAMERA, CAMERA, loss
        )
        t_10 = pose.t / np.linalg.norm(pose.t)
        motions.append(Motion(pose.R, t_10, 0.0).with_cost(x0, x1, threshold))
    return min(motions, key=lambda motion: motion.cost)


def _cost_of_views_between(motion, x_reference, between, last, threshold) -> float:
    """Cost of the views in between, located by the landmarks of a motion."""
    x0, x1 = x_reference[last.index0], last.x
    points = np.full((len(x_reference), 3), np.nan)
    points[last.index0] = triangulate_angular(motion.R_10, motion.t_10, x0, x1)
    points[last.index0[~_in_front(motion.R_10, motion.t_10, x0, x1)]] = np.nan
    cost = 0.0
    for matches in between:
        known = np.isfinite(points[matches.index0]).all(axis=1)
        if known.sum() < MIN_POINTS:
            continue
        seen, x = points[matches.index0[known]], matches.x[known]
        pose, _ = poselib.estimate_absolute_pose(
            PIXELS * x,
            seen,
            CAMERA,
            {
                "max_reproj_error": 2 * PIXELS * threshold,
                "min_iterations": 10,
                "max_iterations": 100,
                "seed": 0,
            },
            {"loss_type": "CAUCHY", "loss_scale": PIXELS * threshold / 2},
        )
        offset, _ = project(seen @ pose.R.T + pose.t)
        cost += _truncated_cost(np.square(offset - x).sum(axis=1), threshold)
        x0, x1 = x_reference[matches.index0[~known]], matches.x[~known]
        cost += _truncated_cost(
            sampson_distance(essential_from_pose(pose.R, pose.t), x0, x1), threshold
        )
    return cost


def _truncated_cost(squared: np.ndarray, threshold: float) -> float:
    """Truncated sum of squares, in units of the threshold (MSAC)."""
    return float(np.minimum(squared / threshold**2, 1.0).sum())

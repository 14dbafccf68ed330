"""The first landmarks: which motion explains the first views.

Two views of a plane, or of little else, fit two motions equally well, and the wrong one bends all
that follows. Each motion that a pair allows is therefore tried on the views between, too, which
may have seen more; only if it explains them clearly better than any other is there a start.
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
# Of the points in front of one camera, the share that must be in front of both.
MIN_IN_FRONT = 0.5
# Motions that differ by less are one.
SAME_TURN_DEG = 1.0
SAME_DIRECTION_DEG = 15.0
# Another motion is clearly worse if this many more matches, or this share of them, speak against.
CLEAR = 5.0
CLEAR_SHARE = 0.02
# Most keypoints are far more precise than the worst right match: the loss begins to give in at
# this part of the threshold. At a half, directions of translation had up to five times the error.
SHARP = 1 / 8
# A motion is refined this often, each time on the matches within so many thresholds of it.
REFINEMENTS = 2
NEAR = 2.0
# Step of numerical derivatives: radians, and parts of the baseline.
DIFFERENCE = 1e-5
PIXELS = 1000.0
"""Focal length that PoseLib is told: its constants assume coordinates in pixels."""
CAMERA = {"model": "SIMPLE_PINHOLE", "width": 1, "height": 1, "params": [PIXELS, 0.0, 0.0]}


@dataclass(frozen=True, eq=False)
class ReferenceMatches:
    """Matches of the reference with a view, one to one, wrong ones among them."""

    index0: np.ndarray  # keypoints of the reference
    index1: np.ndarray  # keypoints of the view
    x: np.ndarray  # (N, 2) where the view sees them, normalized


def motion_covariance(
    R_10: np.ndarray, t_10: np.ndarray, x0: np.ndarray, x1: np.ndarray, sigma: float
) -> np.ndarray:
    """Covariance (6, 6) of the step (omega, v) on the left of a motion of unit length.

    From how the distances of right matches to their epipolar lines change with it; a turn and a
    shift aside look much alike where parallax is small, and this tells how much. Along `t_10`,
    where nothing is known, it is zero: the length is the unit.
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
    """From the reference's camera to another, `t_10` of unit length, and what speaks against it.

    `cost` counts the matches that disagree; those that agree count for a part, as they are off.
    """

    R_10: np.ndarray
    t_10: np.ndarray
    cost: float

    def agrees(self, x0: np.ndarray, x1: np.ndarray, threshold: float) -> np.ndarray:
        """Mask of the matches no farther than that from their epipolar lines."""
        E_10 = essential_from_pose(self.R_10, self.t_10)
        return sampson_distance(E_10, x0, x1) < threshold**2

    def counted(self, x0: np.ndarray, x1: np.ndarray, threshold: float) -> Motion:
        """The same with what these matches say against it."""
        squared = sampson_distance(essential_from_pose(self.R_10, self.t_10), x0, x1)
        return replace(self, cost=_count(squared, threshold))

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
    """The motion to the last view that explains all views best, and whether it does so clearly.

    Args:
        x_reference: (N, 2) keypoints of the reference, normalized.
        between: views since the reference, which help to decide.
        R_10, t_10: motion to the last view as two views alone give it.
        threshold: largest distance of a right match from its epipolar line, normalized.
    """
    x0, x1 = x_reference[last.index0], last.x
    guesses = _guesses(R_10, t_10, x0, x1, threshold)
    motions = _different([_refined(R, t, x0, x1, threshold) for R, t in guesses])
    if len(motions) == 1:
        return motions[0], True
    totals = [m.cost + _cost_between(m, x_reference, between, last, threshold) for m in motions]
    order = np.argsort(totals)
    count = len(x1) + sum(len(sight.x) for sight in between)
    clear = totals[order[1]] - totals[order[0]] > max(CLEAR, CLEAR_SHARE * count)
    return motions[order[0]], bool(clear)


def _different(motions: list[Motion]) -> list[Motion]:
    """Best first, and none that is the same as a better one."""
    kept: list[Motion] = []
    for motion in sorted(motions, key=lambda m: m.cost):
        if not any(motion.same_as(other) for other in kept):
            kept.append(motion)
    return kept


def _guesses(R_10, t_10, x0, x1, threshold):
    """Motions that two views allow: the given one, and those of the plane most points fit."""
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
    """The motion near a guess that the matches of two views fit best.

    Matches far from what the guess says are left out: many of them, all wrong, would have a say.
    """
    loss = {"loss_type": "CAUCHY", "loss_scale": SHARP * PIXELS * threshold}
    pose = poselib.CameraPose()
    pose.R, pose.t = R_10, t_10
    motions = [Motion(R_10, t_10, 0.0).counted(x0, x1, threshold)]
    for _ in range(REFINEMENTS):
        near = motions[-1].agrees(x0, x1, NEAR * threshold)
        if near.sum() < MIN_POINTS:
            break
        pose, _ = poselib.refine_relative_pose(
            PIXELS * x0[near], PIXELS * x1[near], pose, CAMERA, CAMERA, loss
        )
        t_10 = pose.t / np.linalg.norm(pose.t)
        motions.append(Motion(pose.R, t_10, 0.0).counted(x0, x1, threshold))
    return min(motions, key=lambda motion: motion.cost)


def _cost_between(motion, x_reference, between, last, threshold) -> float:
    """What the views between say against a motion, once its landmarks have located them."""
    x0, x1 = x_reference[last.index0], last.x
    points = np.full((len(x_reference), 3), np.nan)
    points[last.index0] = triangulate_angular(motion.R_10, motion.t_10, x0, x1)
    points[last.index0[~_in_front(motion.R_10, motion.t_10, x0, x1)]] = np.nan
    cost = 0.0
    for sight in between:
        known = np.isfinite(points[sight.index0]).all(axis=1)
        if known.sum() < MIN_POINTS:
            continue
        seen, x = points[sight.index0[known]], sight.x[known]
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
        cost += _count(np.square(offset - x).sum(axis=1), threshold)
        x0, x1 = x_reference[sight.index0[~known]], sight.x[~known]
        cost += _count(sampson_distance(essential_from_pose(pose.R, pose.t), x0, x1), threshold)
    return cost


def _count(squared: np.ndarray, threshold: float) -> float:
    """Matches that disagree, and those that agree by as much as they are off."""
    return float(np.minimum(squared / threshold**2, 1.0).sum())

"""The weighted 8-point algorithm, as in the paper and with non-linear refinement."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lgc_ros.estimation.poselib import LOSS_PX, refine
from lgc_ros.geometry.epipolar import (
    EIGHT_POINT_MINIMUM,
    essential_from_pose,
    project_to_essential,
    recover_pose,
    sampson_distance,
    weighted_eight_point,
)

if TYPE_CHECKING:
    from lgc_ros.estimation.estimators import Pose, Problem

# A wide loss tolerates a poor start; narrowed step by step, it ends with PoseLib's own.
REFINEMENT_LOSSES_PX = (16 * LOSS_PX, 4 * LOSS_PX, LOSS_PX)
# Starts from a half, a quarter and an eighth of the matches, as long as these are enough.
BEST_PARTS, MIN_START = (2, 4, 8), 16


def weighted(problem: Problem) -> Pose | None:
    """Closed-form solution with the scores as weights."""
    c = problem.matches
    weights = np.ones(len(c)) if c.scores is None else np.asarray(c.scores, dtype=np.float64)
    positive = replace(problem, matches=c.subset(weights > 0))
    if not positive.has_distinct_points(EIGHT_POINT_MINIMUM):
        return None
    E = project_to_essential(weighted_eight_point(c.x0, c.x1, weights, conditioned=True))
    R_10, t_10, _ = recover_pose(E, c.x0, c.x1, weights)
    return R_10, t_10


def refined(problem: Problem) -> Pose | None:
    """Weighted 8-point solutions, refined by robust least squares; no sampling.

    One outlier in ten is enough to spoil the linear solution, and points near a plane hardly
    constrain it: it has eight unknowns, a pose five. It may still serve as a start. Ranked matches
    give several starts: from all of them, and from fewer and fewer of the best, which contain
    fewer outliers. All matches of positive weight count equally in the refinement; the pose that
    fits them best is returned.
    """
    c = problem.matches
    if c.scores is not None:
        c = c.subset(c.scores > 0)
        problem = replace(problem, matches=c)
    counts = [len(c)]
    if problem.ranked:
        counts += [len(c) // part for part in BEST_PARTS if len(c) // part >= MIN_START]
    poses = []
    for count in counts:
        start = weighted(replace(problem, matches=c.subset(np.arange(len(c)) < count)))
        if start is not None:
            poses.append(refine(c, start, REFINEMENT_LOSSES_PX))
    return min(poses, key=lambda pose: _truncated_cost(problem, pose), default=None)


def _truncated_cost(problem: Problem, pose: Pose) -> float:
    """Sum of the squared Sampson distances, each at most the squared inlier threshold."""
    c = problem.matches
    distance = sampson_distance(essential_from_pose(*pose), c.x0, c.x1)
    return float(np.minimum(distance, problem.threshold**2).sum())

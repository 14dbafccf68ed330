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
from lgc_ros.geometry.five_point import five_point_solutions
from lgc_ros.matching.correspondences import Correspondences

if TYPE_CHECKING:
    from lgc_ros.estimation.estimators import Pose, Problem

# Losses of the refinement of a start: the first, wide one tolerates a poor start.
START_LOSSES_PX = (16 * LOSS_PX, 4 * LOSS_PX)
STARTS = 2  # of each part
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
    """Closed-form solutions, refined by robust least squares; no sampling.

    The 8-point system leaves planes undetermined, so the essential matrices in the space of its
    best solutions are the starts. One outlier in ten is enough to spoil them; ranked matches
    therefore give several: from all of them, and from fewer and fewer of the best, which contain
    fewer outliers. Each is refined on the matches that it came from. The pose that fits all
    matches best is then refined on all of them, which count equally.
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
        best = c.subset(np.arange(len(c)) < count)
        poses += [refine(best, start, START_LOSSES_PX) for start in _starts(problem, best)]
    if not poses:
        return None
    costs = [_truncated_cost(problem, essential_from_pose(*pose)) for pose in poses]
    pose = refine(c, poses[int(np.argmin(costs))], (LOSS_PX,))
    # A poor start may see the points behind the cameras, and refinement does not change that.
    E_10 = essential_from_pose(*pose)
    agreeing = sampson_distance(E_10, c.x0, c.x1) < problem.threshold**2
    R_10, t_10, _ = recover_pose(E_10, c.x0, c.x1, agreeing)
    return R_10, t_10


def _starts(problem: Problem, best: Correspondences) -> list[Pose]:
    """Poses that solve the 8-point system of the best matches and fit all matches well."""
    if not replace(problem, matches=best).has_distinct_points(EIGHT_POINT_MINIMUM):
        return []
    weights = np.ones(len(best)) if best.scores is None else best.scores
    solutions = five_point_solutions(best.x0, best.x1, weights)
    costs = [_truncated_cost(problem, E) for E in solutions]
    chosen = solutions[np.argsort(costs, kind="stable")[:STARTS]]
    return [recover_pose(project_to_essential(E), best.x0, best.x1, weights)[:2] for E in chosen]


def _truncated_cost(problem: Problem, E_10: np.ndarray) -> float:
    """Sum of the squared Sampson distances, each at most the squared inlier threshold."""
    c = problem.matches
    distance = sampson_distance(E_10, c.x0, c.x1)
    return float(np.minimum(distance, problem.threshold**2).sum())

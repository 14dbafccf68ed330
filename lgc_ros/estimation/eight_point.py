"""The weighted 8-point algorithm, as in the paper and with non-linear refinement."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lgc_ros.estimation.poselib import LOSS_PX, refine
from lgc_ros.geometry.epipolar import (
    EIGHT_POINT_MINIMUM,
    project_to_essential,
    recover_pose,
    weighted_eight_point,
)

if TYPE_CHECKING:
    from lgc_ros.estimation.estimators import Pose, Problem

# A wide loss tolerates a poor start; narrowed step by step, it ends with PoseLib's own.
REFINEMENT_LOSSES_PX = (16 * LOSS_PX, 4 * LOSS_PX, LOSS_PX)


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
    """The weighted 8-point solution, refined by robust least squares; no sampling.

    One outlier in ten is enough to spoil the linear solution, and points near a plane hardly
    constrain it: it has eight unknowns, a pose five. It may still serve as a start. All matches
    of positive weight count equally in the refinement.
    """
    start = weighted(problem)
    if start is None:
        return None
    c = problem.matches
    if c.scores is not None:
        c = c.subset(c.scores > 0)
    return refine(c, start, REFINEMENT_LOSSES_PX)

"""Estimators of OpenCV: RANSAC, LMedS, and its USAC framework with and without MAGSAC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cv2
import numpy as np

from lgc_ros.geometry.epipolar import FIVE_POINT_MINIMUM, recover_pose
from lgc_ros.matching.correspondences import Correspondences

if TYPE_CHECKING:
    from lgc_ros.estimation.estimators import Pose, Problem


def ransac(problem: Problem) -> Pose | None:
    return _classical(cv2.RANSAC, problem)


def lmeds(problem: Problem) -> Pose | None:
    """Least median of squares."""
    return _classical(cv2.LMEDS, problem)


def magsac(problem: Problem) -> Pose | None:
    """MAGSAC++ (Barath et al. 2020)."""
    return _usac(cv2.SCORE_METHOD_MAGSAC, cv2.LOCAL_OPTIM_SIGMA, "COV_POLISHER", problem)


def usac(problem: Problem) -> Pose | None:
    """MSAC score, local optimization, and a final least-squares fit."""
    return _usac(cv2.SCORE_METHOD_MSAC, cv2.LOCAL_OPTIM_INNER_LO, "LSQ_POLISHER", problem)


def _classical(method: int, problem: Problem) -> Pose | None:
    """OpenCV's classical sampling loop around the five-point solver."""
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
    return _best_pose(E, mask, c)


def _usac(score: int, local_optimization: int, polisher: str, problem: Problem) -> Pose | None:
    """OpenCV's USAC framework (Raguram et al. 2013) with the given parts.

    On ranked matches it may stop too early: if the best matches lie on one plane, samples from it
    explain most of the others and end the search with a wrong pose. PoseLib continues.
    """
    c = problem.matches
    params = cv2.UsacParams()
    params.score = score
    params.loMethod = local_optimization
    if hasattr(cv2, polisher):  # OpenCV 4.6 has fewer polishers
        params.final_polisher = getattr(cv2, polisher)
    params.sampler = cv2.SAMPLING_PROSAC if problem.ranked else cv2.SAMPLING_UNIFORM
    params.threshold = problem.options.threshold_px
    params.confidence = problem.options.confidence
    params.maxIterations = problem.max_iterations
    params.randomGeneratorState = problem.options.seed
    params.isParallel = False
    # USAC's internal constants assume pixels.
    K = np.diag([c.focal, c.focal, 1.0])
    no_distortion = np.zeros(4)
    E, mask = cv2.findEssentialMat(
        c.x0 * c.focal, c.x1 * c.focal, K, K, no_distortion, no_distortion, params
    )
    return _best_pose(E, mask, c)


def _best_pose(E: np.ndarray | None, mask: np.ndarray | None, c: Correspondences) -> Pose | None:
    """The pose with most inliers in front of both cameras, over all matrices OpenCV returned.

    The five-point solver has up to ten solutions; from exactly five matches, OpenCV returns all of
    them stacked.
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

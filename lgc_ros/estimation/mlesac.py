"""MLESAC for the essential matrix, after Torr and Zisserman (CVIU 2000).

RANSAC counts inliers; MLESAC maximizes the likelihood of all residuals. A residual e is either
Gaussian (an inlier) or uniform over a window of width v (an outlier)::

    p(e) = γ N(e; 0, σ²) + (1 − γ) / v

The mixing parameter γ, the fraction of inliers, is estimated for every hypothesis by expectation
maximization. The residual is the Sampson distance, the first-order approximation of the maximum
likelihood error that Torr and Zisserman use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import poselib

from lgc_ros.geometry.epipolar import essential_from_pose, homogeneous

if TYPE_CHECKING:
    from lgc_ros.estimation.estimators import Pose, Problem

SAMPLE_SIZE = 5
BATCH_SAMPLES = 50
EM_STEPS = 5
REFINEMENTS = 5
# Beyond this many σ a residual counts as uniform: N(e) is below 1e-7 of its peak.
FAR_SIGMA = 6.0
# 95 % of Gaussian residuals lie within 1.96 standard deviations.
SIGMA_PER_THRESHOLD = 1 / 1.96


def mlesac(problem: Problem) -> Pose | None:
    """The most likely pose; None if no sample has a solution.

    Residuals of outliers spread over the diagonal of image 1.
    """
    c, options = problem.matches, problem.options
    rng = np.random.default_rng(options.seed)
    sigma = SIGMA_PER_THRESHOLD * problem.threshold
    window = np.hypot(*c.size1) / c.focal
    likelihood = MixtureLikelihood(c.x0, c.x1, sigma, window)
    rays0, rays1 = _rays(c.x0), _rays(c.x1)
    best = None
    drawn = 0
    needed: float = problem.max_iterations
    while drawn < needed:
        batch = min(BATCH_SAMPLES, problem.max_iterations - drawn)
        samples = _draw_samples(rng, len(c), batch)
        drawn += len(samples)
        poses = [pose for s in samples for pose in poselib.relpose_5pt(rays0[s], rays1[s])]
        if not poses:
            continue
        cost, gamma = likelihood.evaluate(poses)
        winner = int(np.argmin(cost))
        if best is None or cost[winner] < best[0]:
            best = cost[winner], poses[winner]
            samples_needed = _samples_needed(gamma[winner], options.confidence)
            needed = min(problem.max_iterations, samples_needed)
    if best is None:
        return None
    pose = _refine(likelihood, *best)
    return pose.R, pose.t


class MixtureLikelihood:
    """Likelihood of poses given one set of matches.

    Args:
        x0: (N, 2) normalized points of camera 0.
        x1: (N, 2) their matches in camera 1.
        sigma: standard deviation σ of an inlier's residual, normalized.
        window: width v of the interval over which outlier residuals spread, normalized.
    """

    def __init__(self, x0: np.ndarray, x1: np.ndarray, sigma: float, window: float):
        self.x0, self.x1, self.sigma = x0, x1, sigma
        # float32 halves the cost of scoring and is precise enough to compare hypotheses.
        self.h0 = homogeneous(x0).T.astype(np.float32)
        self.h1 = homogeneous(x1).T.astype(np.float32)
        self.peak = 1.0 / (np.sqrt(2.0 * np.pi) * sigma)
        self.uniform = 1.0 / window

    def evaluate(self, poses) -> tuple[np.ndarray, np.ndarray]:
        """Negative log-likelihood and γ of each pose."""
        pose_index, gaussian = self._near(poses)
        count, total = len(poses), len(self.x0)
        gamma = np.full(count, 0.5)
        for _ in range(EM_STEPS):
            inlier = gamma[pose_index] * gaussian
            posterior = inlier / (inlier + (1.0 - gamma[pose_index]) * self.uniform)
            gamma = np.bincount(pose_index, posterior, minlength=count) / total
        # With γ = 1 a far residual would have probability zero.
        gamma = np.clip(gamma, 0.0, 1.0 - 1e-6)
        outlier = (1.0 - gamma) * self.uniform
        density = gamma[pose_index] * gaussian + outlier[pose_index]
        near = np.bincount(pose_index, minlength=count)
        log_near = np.bincount(pose_index, np.log(density), minlength=count)
        return -(log_near + (total - near) * np.log(outlier)), gamma

    def posterior(self, pose) -> np.ndarray:
        """Probability of each match being an inlier of the pose."""
        _, (gamma,) = self.evaluate([pose])
        inlier = gamma * self._gaussian(self._squared_residuals([pose])[0])
        return inlier / (inlier + (1.0 - gamma) * self.uniform)

    def _near(self, poses):
        """Pose index and Gaussian density of every residual within FAR_SIGMA, as flat arrays."""
        squared = self._squared_residuals(poses)
        pose_index, match_index = np.nonzero(squared < (FAR_SIGMA * self.sigma) ** 2)
        return pose_index, self._gaussian(squared[pose_index, match_index].astype(np.float64))

    def _gaussian(self, squared):
        return self.peak * np.exp(-squared / (2.0 * self.sigma**2))

    def _squared_residuals(self, poses):
        """Squared Sampson distances, (poses, matches)."""
        E = np.stack([essential_from_pose(pose.R, pose.t) for pose in poses]).astype(np.float32)
        line1 = E @ self.h0
        line0 = E[:, :, :2].transpose(0, 2, 1) @ self.h1
        residual = np.einsum("pcn,cn->pn", line1, self.h1)
        normal = np.einsum("pcn,pcn->pn", line1[:, :2], line1[:, :2])
        normal += np.einsum("pcn,pcn->pn", line0, line0)
        return residual**2 / np.maximum(normal, np.finfo(np.float32).tiny)


def _refine(likelihood: MixtureLikelihood, cost: float, pose):
    """Least squares over the probable inliers, repeated while the likelihood increases."""
    camera = {"model": "SIMPLE_PINHOLE", "width": 1, "height": 1, "params": [1.0, 0.0, 0.0]}
    for _ in range(REFINEMENTS):
        inliers = likelihood.posterior(pose) > 0.5
        if inliers.sum() <= SAMPLE_SIZE:
            break
        x0, x1 = likelihood.x0[inliers], likelihood.x1[inliers]
        refined, _ = poselib.refine_relative_pose(
            x0, x1, pose, camera, camera, {"loss_type": "TRIVIAL"}
        )
        (refined_cost,), _ = likelihood.evaluate([refined])
        if not refined_cost < cost:
            break
        cost, pose = refined_cost, refined
    return pose


def _draw_samples(rng: np.random.Generator, population: int, count: int) -> np.ndarray:
    """(count, 5) indices, distinct within each row."""
    samples = np.empty((count, SAMPLE_SIZE), np.int64)
    for column in range(SAMPLE_SIZE):
        draw = rng.integers(0, population - column, count)
        for taken in np.sort(samples[:, :column], axis=1).T:
            draw += draw >= taken
        samples[:, column] = draw
    return samples


def _samples_needed(inlier_fraction: float, confidence: float) -> float:
    """Number of samples after which the confidence of an outlier-free one is reached."""
    clean = inlier_fraction**SAMPLE_SIZE
    if clean <= 0.0:
        return np.inf
    return np.ceil(np.log1p(-confidence) / np.log1p(-clean)) if clean < 1.0 else 1.0


def _rays(points: np.ndarray) -> np.ndarray:
    """Unit viewing rays, the input of the minimal solver."""
    rays = homogeneous(points)
    return rays / np.linalg.norm(rays, axis=1, keepdims=True)

"""Uncertainty of poses that build on one another.

Inside, the error of a pose is a step `(omega, v)` on the left of `T_wc`: a rotation about, and a
motion of, the world's origin. Such errors add along a chain of keyframes, wherever they are.
"""

from __future__ import annotations

import numpy as np

from lgc_ros.geometry.epipolar import skew

# Standard deviations below which no pose is published: what keypoints leave of a rotation at best
# (0.05 px at a focal length of 500 px), and of a position ten metres from what is seen. Zero, as
# for a first pose that is the origin by definition, is certainty to a filter, or an error.
FLOOR_M, FLOOR_RAD = 1e-3, 1e-4
# Least eigenvalue of a matrix of correlations, and least variance: far more than rounding leaves,
# far less than anyone can tell.
MIN_EIGENVALUE, MIN_VARIANCE = 1e-9, 1e-12


def in_world(covariance_cam: np.ndarray, T_wc: np.ndarray) -> np.ndarray:
    """Covariance of the step on the left of T_wc, from that of the step on the left of T_cw."""
    R, p = T_wc[:3, :3], T_wc[:3, 3]
    adjoint = np.zeros((6, 6))
    adjoint[:3, :3] = adjoint[3:, 3:] = R
    adjoint[3:, :3] = skew(p) @ R
    return adjoint @ covariance_cam @ adjoint.T


def rescaled(covariance_world: np.ndarray, factor: float, centre: np.ndarray) -> np.ndarray:
    """Covariance of the step after the world was scaled about a point."""
    J = np.eye(6)
    J[3:, 3:] *= factor
    J[3:, :3] = (1 - factor) * skew(centre)
    return J @ covariance_world @ J.T


def of_pose(covariance_world: np.ndarray, position: np.ndarray) -> np.ndarray:
    """Covariance of position and orientation as ROS has it: x, y, z, then about the fixed axes."""
    J = np.zeros((6, 6))
    J[:3, :3], J[:3, 3:], J[3:, :3] = -skew(position), np.eye(3), np.eye(3)
    return J @ covariance_world @ J.T


def of_scale(position: np.ndarray, sigma: float) -> np.ndarray:
    """What a relative error of the scale adds to a position, or to a velocity: along itself."""
    covariance = np.zeros((6, 6))
    covariance[:3, :3] = sigma**2 * np.outer(position, position)
    return covariance


def floor() -> np.ndarray:
    """The least covariance of position and orientation."""
    return np.diag(np.repeat([FLOOR_M, FLOOR_RAD], 3) ** 2)


def positive_definite(covariance: np.ndarray) -> np.ndarray:
    """The same without what rounding did: symmetric and positive definite.

    Judged by correlations, so that large variances of a position do not hide small ones of an
    orientation.
    """
    covariance = (covariance + covariance.T) / 2
    sigmas = np.sqrt(np.maximum(np.diag(covariance), MIN_VARIANCE))
    units = np.outer(sigmas, sigmas)
    values, vectors = np.linalg.eigh(covariance / units)
    if values[0] >= MIN_EIGENVALUE:
        return covariance
    covariance = units * ((vectors * np.maximum(values, MIN_EIGENVALUE)) @ vectors.T)
    return (covariance + covariance.T) / 2

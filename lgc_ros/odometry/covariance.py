"""Uncertainty of poses that build on one another.

Inside, the error of a pose is a step `(omega, v)` on the left of `T_wc`: a rotation about, and a
motion of, the world's origin. Such errors add along a chain of keyframes, wherever they are.
"""

from __future__ import annotations

import numpy as np

from lgc_ros.geometry.epipolar import skew


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
    """What a relative error of the scale adds: uncertainty along the way from the origin."""
    covariance = np.zeros((6, 6))
    covariance[:3, :3] = sigma**2 * np.outer(position, position)
    return covariance

"""Uncertainty of poses that build on one another.

Internally the error of a pose is a step `(omega, v)` on the left of `T_wc`: a rotation about the
world origin and a translation of it. Such errors add along a chain of keyframes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lgc_ros.geometry.epipolar import skew

if TYPE_CHECKING:
    from lgc_ros.odometry.map import HasPose
    from lgc_ros.odometry.tracking import Pose

# Smallest standard deviations that are published: the best that keypoints allow (0.05 px at a
# focal length of 500 px), and that at a distance of ten meters. A filter takes zero for
# certainty, or rejects it; the first pose, which is the origin by definition, would have it.
FLOOR_M, FLOOR_RAD = 1e-3, 1e-4
# Texture alone has noise ratios up to this one. Beyond, the variance of a pose grows with this
# power; both were measured in rendered rooms.
SHARP_NOISE_RATIO = 2.0
BLUR_EXPONENT = 3
# Smallest eigenvalue of a correlation matrix, and smallest variance: far above rounding errors,
# far below anything measurable.
MIN_EIGENVALUE, MIN_VARIANCE = 1e-9, 1e-12


def in_world(covariance_cam: np.ndarray, T_wc: np.ndarray) -> np.ndarray:
    """Covariance of the step on the left of T_wc, from that of the step on the left of T_cw."""
    R, p = T_wc[:3, :3], T_wc[:3, 3]
    adjoint = np.zeros((6, 6))
    adjoint[:3, :3] = adjoint[3:, 3:] = R
    adjoint[3:, :3] = skew(p) @ R
    return adjoint @ covariance_cam @ adjoint.T


def T_wc(pose: HasPose) -> np.ndarray:
    """(4, 4) camera to world."""
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = pose.R_cw.T, -pose.R_cw.T @ pose.t_cw
    return T


def chained(reference: np.ndarray, pose: Pose) -> np.ndarray:
    """World covariance of a pose that was estimated relative to a keyframe.

    Args:
        reference: (6, 6) world covariance of the keyframe.
    """
    return reference + in_world(pose.covariance, T_wc(pose))


def with_blur(covariance: np.ndarray, noise_ratio: float) -> np.ndarray:
    """Covariance of a pose from keypoints that are blurred.

    Errors along the blur are alike for all keypoints, and from one keyframe to the next: depths
    absorb them, and no average removes them. So the variance of the pose grows faster than that
    of a keypoint.

    Args:
        noise_ratio: variance of keypoints along the blur, relative to the mean of all directions.
    """
    return max(1.0, noise_ratio / SHARP_NOISE_RATIO) ** BLUR_EXPONENT * covariance


def rescaled(covariance_world: np.ndarray, factor: float, center: np.ndarray) -> np.ndarray:
    """Covariance of the step after the world was scaled about a point."""
    J = np.eye(6)
    J[3:, 3:] *= factor
    J[3:, :3] = (1 - factor) * skew(center)
    return J @ covariance_world @ J.T


def of_pose(covariance_world: np.ndarray, position: np.ndarray) -> np.ndarray:
    """Covariance of position and orientation in ROS order: x, y, z, then about the fixed axes."""
    J = np.zeros((6, 6))
    J[:3, :3], J[:3, 3:], J[3:, :3] = -skew(position), np.eye(3), np.eye(3)
    return J @ covariance_world @ J.T


def of_scale(position: np.ndarray, sigma: float) -> np.ndarray:
    """What a relative scale error adds to a position or a velocity: variance along it."""
    covariance = np.zeros((6, 6))
    covariance[:3, :3] = sigma**2 * np.outer(position, position)
    return covariance


def floor() -> np.ndarray:
    """Smallest covariance of position and orientation."""
    return np.diag(np.repeat([FLOOR_M, FLOOR_RAD], 3) ** 2)


def positive_definite(covariance: np.ndarray) -> np.ndarray:
    """The nearest matrix that is symmetric and positive definite in spite of rounding.

    Eigenvalues are those of the correlations, so that large variances of the position do not mask
    small ones of the orientation.
    """
    covariance = (covariance + covariance.T) / 2
    sigmas = np.sqrt(np.maximum(np.diag(covariance), MIN_VARIANCE))
    units = np.outer(sigmas, sigmas)
    values, vectors = np.linalg.eigh(covariance / units)
    if values[0] >= MIN_EIGENVALUE:
        return covariance
    covariance = units * ((vectors * np.maximum(values, MIN_EIGENVALUE)) @ vectors.T)
    return (covariance + covariance.T) / 2


def published(
    covariance_world: np.ndarray,
    position: np.ndarray,
    scale_sigma: float,
    displacement: np.ndarray,
    held_sigma_m: float,
) -> np.ndarray:
    """(6, 6) covariance of a pose as ROS takes it, with all that is uncertain about its scale.

    Args:
        covariance_world: of the step on the left of T_wc.
        position: (3,) of the camera in the world.
        scale_sigma: relative standard deviation of the scale.
        displacement: (3,) error that earlier corrections of the scale left behind.
        held_sigma_m: standard deviation of a position that is held.
    """
    covariance = (
        of_pose(covariance_world, position)
        + of_scale(position, scale_sigma)
        + of_scale(displacement, 1.0)
        + floor()
    )
    if held_sigma_m:
        covariance[:3, :3] += held_sigma_m**2 * np.eye(3)
    return positive_definite(covariance)

"""Motion gate: apparent motion within the noise is no motion.

Without it the pose of a camera at rest would follow the noise of its keypoints, and a camera that
turns on the spot would seem to move.
"""

from __future__ import annotations

import numpy as np

from lgc_ros.geometry.epipolar import rotation_error_deg
from lgc_ros.odometry.map import HasPose, LandmarkMap, View
from lgc_ros.odometry.pose_optimization import fit_rotation, refine_pose
from lgc_ros.odometry.state import NO_MOTION, OK, ROTATION_ONLY
from lgc_ros.odometry.tracking import Pose, Track

# Motion must exceed this many standard deviations; until then the pose is held.
MIN_MOTION_SIGMAS = 2.0
# Below this median distance from a pure rotation, parallax cannot be distinguished from noise.
ROTATION_ONLY_PX = 1.0


class MotionGate:
    """Holds the position, or the whole pose, until motion is significant.

    Args:
        still_px: image motion that counts as none, however precise the pose is.
    """

    def __init__(self, still_px: float) -> None:
        self._still_px = still_px
        self._R_cw, self._t_cw = np.eye(3), np.zeros(3)

    def anchor_at(self, pose: HasPose) -> None:
        """Measure motion from this pose from now on."""
        self._R_cw, self._t_cw = pose.R_cw, pose.t_cw

    def rescale(self, factor: float, about: np.ndarray) -> None:
        """Follow the map when it is scaled about a point."""
        center = about - factor * (self._R_cw.T @ self._t_cw + about)
        self._t_cw = -self._R_cw @ center

    def move(self, T_nw: np.ndarray) -> None:
        """Follow the map when it is moved rigidly, from the old world to the new one."""
        R_wn = T_nw[:3, :3].T
        self._R_cw = self._R_cw @ R_wn
        self._t_cw = self._t_cw - self._R_cw @ T_nw[:3, 3]

    def __call__(self, view: View, track: Track, landmarks: LandmarkMap) -> tuple[Pose, str]:
        """The tracked pose with what did not move held, and the status that says so."""
        pose, focal = track.pose, view.camera.focal
        assert pose is not None  # only tracked views are gated
        center = -self._R_cw.T @ self._t_cw
        ids = track.reference.landmark_ids[track.index0[pose.used]]
        points, x = landmarks.points[ids], view.x[track.index1[pose.used]]
        depth = np.median((points @ pose.R_cw.T + pose.t_cw)[:, 2])
        variances = np.diag(pose.covariance)
        moved_px = focal * np.linalg.norm(pose.center - center) / depth
        noise_px = MIN_MOTION_SIGMAS * focal * np.sqrt(variances[3:].sum()) / depth
        if moved_px >= max(self._still_px, noise_px):
            return pose, OK
        turned_px = focal * np.radians(rotation_error_deg(pose.R_cw, self._R_cw))
        noise_px = MIN_MOTION_SIGMAS * focal * np.sqrt(variances[:3].sum())
        if turned_px < max(self._still_px, noise_px):
            return Pose(self._R_cw, self._t_cw, pose.covariance, pose.used), NO_MOTION
        whitening, covariances = landmarks.whitening(view), landmarks.covariances[ids]
        held = refine_pose(
            pose.R_cw, -pose.R_cw @ center, points, x, whitening, covariances, hold_center=True
        )
        return Pose(held.R_cw, held.t_cw, pose.covariance, pose.used), ROTATION_ONLY


def pure_rotation(
    view: View, track: Track, sigma: float, still_px: float
) -> tuple[np.ndarray, str] | None:
    """R_10 and status if a rotation alone explains the matches of two views; None otherwise.

    Args:
        sigma: standard deviation of a normalized keypoint coordinate.
        still_px: image motion that counts as none.
    """
    x0, x1 = track.reference.view.x[track.index0], view.x[track.index1]
    focal = view.camera.focal
    R_10, residual_rad = fit_rotation(x0, x1, sigma)
    if focal * np.median(residual_rad) >= ROTATION_ONLY_PX:
        return None
    turned_px = focal * np.radians(rotation_error_deg(R_10, np.eye(3)))
    return (np.eye(3), NO_MOTION) if turned_px < still_px else (R_10, ROTATION_ONLY)


def rotated_pose(
    track: Track, R_10: np.ndarray, center: np.ndarray, sigma_rad: float, sigma_position: float
) -> Pose:
    """The pose after a rotation against the keyframe, at a given position."""
    R_cw = R_10 @ track.reference.R_cw
    spread = np.diag(np.repeat([sigma_rad, sigma_position], 3) ** 2)
    return Pose(R_cw, -R_cw @ center, spread, np.zeros(len(track.index0), bool))

"""The map: keyframes and the landmarks they share, which carry the scale from view to view.

The world frame is the camera frame of the first image. Poses are world to camera.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from lgc_ros.features.base import Features
from lgc_ros.features.keypoints import no_features
from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.epipolar import relative_pose
from lgc_ros.odometry.covariance import rescaled
from lgc_ros.odometry.pose_optimization import MIN_DEPTH, project
from lgc_ros.odometry.triangulation import (
    MIN_PRECISE_SHARE,
    TwoViews,
    place_points,
    triangulate_precise,
)

WheelPose = np.ndarray | Callable[[], np.ndarray | None] | None
NONE = -1
# Bounds of the measured standard deviation of keypoints.
MIN_SIGMA_PX, MAX_SIGMA_PX = 0.05, 2.0


class HasPose(Protocol):
    """Anything with the pose of a camera in the world."""

    @property
    def R_cw(self) -> np.ndarray: ...

    @property
    def t_cw(self) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class View:
    """One image: its keypoints, as far as they can be undistorted, and their rays."""

    stamp_ns: int
    camera: Camera
    features: Features
    x: np.ndarray  # (N, 2) normalized
    # (4, 4) pose of the camera in the wheel odometry; None until its samples have arrived.
    wheels: Callable[[], np.ndarray | None] = lambda: None
    gray: np.ndarray | None = None  # (H, W) uint8 image, for optical flow


def make_view(
    stamp_ns: int, camera: Camera, T_oc: WheelPose = None, gray: np.ndarray | None = None
) -> View:
    """An image without keypoints."""
    wheels = T_oc if callable(T_oc) else lambda: T_oc
    return View(stamp_ns, camera, no_features(), np.empty((0, 2)), wheels, gray)


def with_keypoints(view: View, features: Features) -> View:
    """The view with keypoints and their rays, without those that cannot be undistorted."""
    x = view.camera.normalize(features.points)
    valid = np.isfinite(x).all(axis=1)
    if not valid.all():
        features, x = features.subset(valid), x[valid]
    return replace(view, features=features, x=x)


@dataclass(eq=False)
class Keyframe:
    """A view kept in the map, with its pose and the landmark that each keypoint shows."""

    view: View
    R_cw: np.ndarray
    t_cw: np.ndarray
    landmark_ids: np.ndarray = field(init=False)  # (N,), NONE where there is none
    covariance: np.ndarray = field(default_factory=lambda: np.zeros((6, 6)))  # see covariance.py
    _wheel_position: np.ndarray | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.landmark_ids = np.full(len(self.view.x), NONE)

    @property
    def center(self) -> np.ndarray:
        """Position of the camera in the world."""
        return -self.R_cw.T @ self.t_cw

    def wheel_position(self) -> np.ndarray | None:
        """Position (3,) in the wheel odometry, m; looked up until it arrives, then remembered."""
        if self._wheel_position is None:
            T_oc = self.view.wheels()
            self._wheel_position = None if T_oc is None else T_oc[:3, 3]
        return self._wheel_position


class LandmarkMap:
    """Keyframes in order of insertion and their landmarks.

    Args:
        sigma_px: standard deviation of a keypoint coordinate, until bundle adjustment measures
            it: a sharp camera has a third of the noise of a blurred one, and outliers can only be
            separated from true matches by the actual noise.
        max_keyframes: the oldest keyframes beyond this number are dropped to bound memory.

    Attributes:
        keyframes: in order of insertion.
        points: (L, 3) landmarks in the world.
        covariances: (L, 3, 3) of the landmarks, given the keyframes.
        initialized: whether there have been landmarks since the last reset.
    """

    def __init__(self, sigma_px: float, max_keyframes: int) -> None:
        self.keyframes: list[Keyframe] = []
        self.points = np.empty((0, 3))
        self.covariances = np.empty((0, 3, 3))
        self.sigma_px = sigma_px
        self.initialized = False
        self._max_keyframes = max_keyframes

    def sigma(self, camera: Camera) -> float:
        """Standard deviation of a normalized coordinate."""
        return self.sigma_px / camera.focal

    def whitening(self, view: View) -> np.ndarray:
        """(2, 2) maps normalized offsets in a view to multiples of their standard deviations."""
        return view.features.sharpness / self.sigma(view.camera)

    def add_keyframe(self, keyframe: Keyframe, keep: Keyframe | None = None) -> None:
        """Append a keyframe; drops the oldest but `keep` when there are too many."""
        self.keyframes.append(keyframe)
        if len(self.keyframes) > self._max_keyframes:
            del self.keyframes[1 if self.keyframes[0] is keep else 0]
            self._drop_unseen_landmarks()

    def _drop_unseen_landmarks(self) -> None:
        used = np.zeros(len(self.points), bool)
        for keyframe in self.keyframes:
            used[keyframe.landmark_ids[keyframe.landmark_ids >= 0]] = True
        renumbered = np.append(np.where(used, np.cumsum(used) - 1, NONE), NONE)
        for keyframe in self.keyframes:
            keyframe.landmark_ids = renumbered[keyframe.landmark_ids]
        self.points, self.covariances = self.points[used], self.covariances[used]

    def forget_landmarks(self) -> None:
        """Keep the keyframes only, because the map turned out to be wrong."""
        for keyframe in self.keyframes:
            keyframe.landmark_ids[:] = NONE
        self._drop_unseen_landmarks()

    def triangulate(
        self, first: Keyframe, second: Keyframe, index0: np.ndarray, index1: np.ndarray
    ) -> None:
        """Add landmarks for matched keypoints that show none yet.

        Between views of little parallax points are placed that cannot be triangulated, as
        uncertain as they are, provided that landmarks tell how far away the scene is.
        """
        new = (first.landmark_ids[index0] < 0) & (second.landmark_ids[index1] < 0)
        index0, index1 = index0[new], index1[new]
        good, points0, covariances0 = self.triangulate_rays(first, second, index0, index1)
        depths = self.depths(first, first.landmark_ids)
        if len(depths) and np.count_nonzero(good) < MIN_PRECISE_SHARE * len(good):
            weak = np.flatnonzero(~good)
            views = self._two_views(first, second, index0[weak], index1[weak])
            placed, points0[weak], covariances0[weak] = place_points(views, np.median(depths))
            good[weak] = placed
        ids = len(self.points) + np.arange(np.count_nonzero(good))
        first.landmark_ids[index0[good]] = ids
        second.landmark_ids[index1[good]] = ids
        R_wc = first.R_cw.T
        self.points = np.vstack([self.points, (points0[good] - first.t_cw) @ R_wc.T])
        self.covariances = np.concatenate([self.covariances, R_wc @ covariances0[good] @ R_wc.T])

    def triangulate_rays(
        self, first: Keyframe, second: Keyframe, index0: np.ndarray, index1: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Triangulate matched keypoints of two keyframes.

        Returns:
            Mask (N,) of the good points (in front of both cameras, close to both rays, of known
            depth), points (N, 3) in the first camera, and their covariances (N, 3, 3).
        """
        return triangulate_precise(self._two_views(first, second, index0, index1))

    def _two_views(
        self, first: Keyframe, second: Keyframe, index0: np.ndarray, index1: np.ndarray
    ) -> TwoViews:
        return TwoViews(
            *motion_between(first, second),
            first.view.x[index0],
            second.view.x[index1],
            self.whitening(first.view),
            self.whitening(second.view),
        )

    def depths(self, camera: HasPose, ids: np.ndarray) -> np.ndarray:
        """Depths in a camera of those of these landmarks that exist."""
        points = self.points[ids[ids >= 0]]
        return points @ camera.R_cw[2] + camera.t_cw[2]

    def covisible(self, landmarks: np.ndarray) -> list[tuple[int, Keyframe]]:
        """Keyframes by how many of these landmarks they see: most first, then newest first."""
        mask = np.zeros(len(self.points) + 1, bool)
        mask[landmarks] = True
        mask[NONE] = False
        newest_first = self.keyframes[::-1]
        shared = [(int(mask[keyframe.landmark_ids].sum()), keyframe) for keyframe in newest_first]
        return sorted(shared, key=lambda item: -item[0])

    def covariance_of_observers(self, ids: np.ndarray, reference: Keyframe) -> np.ndarray:
        """(6, 6) mean world covariance of the keyframes that see these landmarks.

        A pose inherits the error of its landmarks, and these have that of all keyframes that see
        them, not of the newest alone.

        Args:
            reference: keyframe whose covariance counts if there are no landmarks.
        """
        wanted = np.zeros(len(self.points) + 1, bool)
        wanted[ids] = True
        wanted[NONE] = False
        counts = np.array([wanted[keyframe.landmark_ids].sum() for keyframe in self.keyframes])
        if not counts.any():
            return reference.covariance
        return np.average([k.covariance for k in self.keyframes], axis=0, weights=counts)

    def latest_with_landmarks(
        self, count: int, other_than: Keyframe | None = None
    ) -> list[Keyframe]:
        """Other keyframes that show at least so many landmarks, newest first."""
        return [
            keyframe
            for keyframe in self.keyframes[::-1]
            if keyframe is not other_than and np.count_nonzero(keyframe.landmark_ids >= 0) >= count
        ]

    def predicted_observations(
        self, keyframe: Keyframe, others: list[Keyframe]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Landmarks of other keyframes that this one should see but has not been matched to.

        Returns:
            Their ids (L,), normalized projections (L, 2), and descriptors (L, D) in the first of
            the other keyframes that sees them.
        """
        known = np.zeros(len(self.points) + 1, bool)
        known[keyframe.landmark_ids] = known[NONE] = True
        found, descriptors = [], []
        for other in others:
            new = ~known[other.landmark_ids]
            found.append(other.landmark_ids[new])
            descriptors.append(other.view.features.descriptors[new])
            known[found[-1]] = True
        ids = np.concatenate(found)
        points_cam = self.points[ids] @ keyframe.R_cw.T + keyframe.t_cw
        ahead = points_cam[:, 2] > MIN_DEPTH
        x, _ = project(points_cam[ahead])
        return ids[ahead], x, np.concatenate(descriptors)[ahead]

    def set_keypoint_sigma(self, sigma_px: float) -> None:
        """Change the standard deviation of keypoints, and the landmarks' uncertainty with it."""
        sigma_px = float(np.clip(sigma_px, MIN_SIGMA_PX, MAX_SIGMA_PX))
        self.covariances *= (sigma_px / self.sigma_px) ** 2
        self.sigma_px = sigma_px

    def rescale(self, factor: float, center: np.ndarray) -> None:
        """Scale the map about a point; a camera there keeps its pose."""
        self.points = center + factor * (self.points - center)
        self.covariances = factor**2 * self.covariances
        for keyframe in self.keyframes:
            moved = center + factor * (keyframe.center - center)
            keyframe.t_cw = -keyframe.R_cw @ moved
            keyframe.covariance = rescaled(keyframe.covariance, factor, center)


def motion_between(first: HasPose, second: HasPose) -> tuple[np.ndarray, np.ndarray]:
    """R_10 and t_10 from the first camera to the second, in map units."""
    return relative_pose(first.R_cw, first.t_cw, second.R_cw, second.t_cw)

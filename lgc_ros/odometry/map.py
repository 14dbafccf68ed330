"""The map: keyframes, and the points they see in common, which carry the scale from view to view.

All poses and points are in the world of the first frame; poses are world to camera.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from lgc_ros.features.base import Features
from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.epipolar import relative_pose, triangulate_angular
from lgc_ros.odometry.bundle_adjustment import (
    Bundle,
    adjust_bundle,
    bundle_distances,
    observed_noise,
)
from lgc_ros.odometry.covariance import rescaled
from lgc_ros.odometry.pose_optimization import MIN_DEPTH, project

NONE = -1
# A landmark's depth must be known to this part of itself; below, it is taken for a direction.
MAX_DEPTH_SIGMA = 0.3
# Reprojection errors beyond this many standard deviations are wrong matches. It is many because a
# rolling shutter or an imperfect calibration moves right ones, too, all of a region together.
OUTLIER_SIGMAS = 8.0
# Standard deviations of keypoints, in pixels, that a measurement is believed up to and down to.
MIN_SIGMA_PX, MAX_SIGMA_PX = 0.05, 2.0


class Posed(Protocol):
    """What has the pose of a camera in the world."""

    R_cw: np.ndarray
    t_cw: np.ndarray


@dataclass(frozen=True, eq=False)
class View:
    """What one image gives: keypoints that can be undistorted, and where their rays go."""

    stamp_ns: int
    camera: Camera
    features: Features
    x: np.ndarray  # (N, 2) normalized
    # (4, 4) pose of the camera in the wheel odometry then, None as long as it has not arrived.
    wheels: Callable[[], np.ndarray | None] = lambda: None


@dataclass(eq=False)
class Keyframe:
    """A view that stays in the map, with its pose and the landmark each keypoint shows."""

    view: View
    R_cw: np.ndarray
    t_cw: np.ndarray
    landmark: np.ndarray = field(default=None)  # (N,) ids, NONE where there is none
    covariance: np.ndarray = field(default_factory=lambda: np.zeros((6, 6)))  # see covariance.py
    _wheel_position: np.ndarray | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.landmark is None:
            self.landmark = np.full(len(self.view.x), NONE)

    @property
    def centre(self) -> np.ndarray:
        """Position of the camera in the world."""
        return -self.R_cw.T @ self.t_cw

    def wheel_position(self) -> np.ndarray | None:
        """Position (3,) in the wheel odometry, m; asked for until it arrives, then remembered."""
        if self._wheel_position is None:
            T_oc = self.view.wheels()
            self._wheel_position = None if T_oc is None else T_oc[:3, 3]
        return self._wheel_position


class LandmarkMap:
    """Keyframes in order of insertion and their landmarks.

    Args:
        sigma_px: standard deviation of a keypoint's coordinate, until the first adjustment
            measures it: a sharp camera has a third of what a blurred one has, and only against
            their own noise are wrong matches told from right ones.
        max_keyframes: the oldest ones beyond are forgotten, so that memory stays bounded.
    """

    def __init__(self, sigma_px: float, max_keyframes: int) -> None:
        self.keyframes: list[Keyframe] = []
        self.points = np.empty((0, 3))
        self.covariances = np.empty((0, 3, 3))
        self._sigma_px = sigma_px
        self._max_keyframes = max_keyframes

    def sigma(self, camera: Camera) -> float:
        """Standard deviation of a normalized coordinate."""
        return self._sigma_px / camera.focal

    def whitening(self, view: View) -> np.ndarray:
        """What makes normalized offsets in a view multiples of their standard deviations."""
        return view.features.sharpness / self.sigma(view.camera)

    def add_keyframe(self, keyframe: Keyframe, keep: Keyframe | None = None) -> None:
        """Append a keyframe; the oldest but `keep` may be forgotten, with what only it saw."""
        self.keyframes.append(keyframe)
        if len(self.keyframes) > self._max_keyframes:
            del self.keyframes[1 if self.keyframes[0] is keep else 0]
            self._forget_unseen()

    def _forget_unseen(self) -> None:
        used = np.zeros(len(self.points), bool)
        for keyframe in self.keyframes:
            used[keyframe.landmark[keyframe.landmark >= 0]] = True
        renumbered = np.append(np.where(used, np.cumsum(used) - 1, NONE), NONE)
        for keyframe in self.keyframes:
            keyframe.landmark = renumbered[keyframe.landmark]
        self.points, self.covariances = self.points[used], self.covariances[used]

    def forget_landmarks(self) -> None:
        """Keep the keyframes only: the map turned out to be wrong."""
        for keyframe in self.keyframes:
            keyframe.landmark[:] = NONE
        self._forget_unseen()

    def triangulate(
        self, first: Keyframe, second: Keyframe, index0: np.ndarray, index1: np.ndarray
    ) -> None:
        """Make landmarks of matched keypoints that show none yet."""
        new = (first.landmark[index0] < 0) & (second.landmark[index1] < 0)
        index0, index1 = index0[new], index1[new]
        good, points0, covariances0 = self.intersect(first, second, index0, index1)
        ids = len(self.points) + np.arange(np.count_nonzero(good))
        first.landmark[index0[good]] = ids
        second.landmark[index1[good]] = ids
        R_wc = first.R_cw.T
        self.points = np.vstack([self.points, (points0[good] - first.t_cw) @ R_wc.T])
        self.covariances = np.concatenate([self.covariances, R_wc @ covariances0[good] @ R_wc.T])

    def intersect(
        self, first: Keyframe, second: Keyframe, index0: np.ndarray, index1: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Points (N, 3) where matched rays meet and their covariances, in the first camera.

        And the mask of good ones: in front of both cameras, close to both rays, of known depth.
        """
        x0, x1 = first.view.x[index0], second.view.x[index1]
        R_10, t_10 = motion_between(first, second)
        baseline = np.linalg.norm(t_10)
        if baseline == 0 or len(x0) == 0:
            n = len(x0)
            return np.zeros(n, bool), np.zeros((n, 3)), np.zeros((n, 3, 3))
        points0 = baseline * triangulate_angular(R_10, t_10 / baseline, x0, x1)
        good = np.isfinite(points0).all(axis=1)
        points0[~good] = 1.0
        points1 = points0 @ R_10.T + t_10
        whitening0, whitening1 = self.whitening(first.view), self.whitening(second.view)
        seen0, J0 = project(points0)
        seen1, J1 = project(points1)
        good &= (points0[:, 2] > 0) & (points1[:, 2] > 0)
        good &= np.linalg.norm((seen0 - x0) @ whitening0.T, axis=1) < OUTLIER_SIGMAS
        good &= np.linalg.norm((seen1 - x1) @ whitening1.T, axis=1) < OUTLIER_SIGMAS
        information = _square(whitening0 @ J0) + _square(whitening1 @ J1 @ R_10)
        information += 1e-12 * np.eye(3) * np.trace(information, axis1=1, axis2=2)[:, None, None]
        covariances0 = np.linalg.inv(information)
        good &= np.sqrt(covariances0[:, 2, 2]) < MAX_DEPTH_SIGMA * points0[:, 2]
        return good, points0, covariances0

    def covisible(self, landmarks: np.ndarray) -> list[tuple[int, Keyframe]]:
        """Keyframes by how many of these landmarks they see, most first, newest of equals."""
        mask = np.zeros(len(self.points) + 1, bool)
        mask[landmarks] = True
        mask[NONE] = False
        newest_first = self.keyframes[::-1]
        shared = [(int(mask[keyframe.landmark].sum()), keyframe) for keyframe in newest_first]
        return sorted(shared, key=lambda item: -item[0])

    def expected(
        self, keyframe: Keyframe, others: list[Keyframe]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Landmarks of other keyframes that this one should see, too, and has not been found to.

        Returns:
            Their ids (L,), where they project (L, 2), normalized, and their descriptors (L, D) in
            the first of the others that sees them.
        """
        known = np.zeros(len(self.points) + 1, bool)
        known[keyframe.landmark] = known[NONE] = True
        ids, descriptors = [], []
        for other in others:
            new = ~known[other.landmark]
            ids.append(other.landmark[new])
            descriptors.append(other.view.features.descriptors[new])
            known[ids[-1]] = True
        ids = np.concatenate(ids)
        points_cam = self.points[ids] @ keyframe.R_cw.T + keyframe.t_cw
        ahead = points_cam[:, 2] > MIN_DEPTH
        x, _ = project(points_cam[ahead])
        return ids[ahead], x, np.concatenate(descriptors)[ahead]

    def adjust(self, window: int, max_fixed: int, iterations: int) -> None:
        """Refine the newest keyframe, those most covisible with it, and all they see.

        Other keyframes that see the same landmarks hold the window in place. Where there are not
        two of them, the oldest of the window stays, and so does its distance to the farthest: the
        way so far keeps its length, though its first step was known worst.
        """
        newest = self.keyframes[-1]
        ranked = self.covisible(newest.landmark)
        nearest = [k for n, k in ranked if k is not newest and n > 0]
        free = [newest, *nearest[: window - 1]]
        seen = self._seen_by(free)
        others = [k for n, k in self.covisible(seen) if n > 0 and not any(k is f for f in free)]
        fixed = others[:max_fixed]
        by_age = [k for k in self.keyframes if any(k is f for f in free)]
        floating = len(fixed) < 2
        if floating:
            fixed.append(by_age.pop(0))
        free = by_age
        views = free + fixed
        seen = self._seen_by(free, views)
        slot = np.full(len(self.points) + 1, NONE)
        slot[seen] = np.arange(len(seen))
        keypoint = [np.flatnonzero(slot[k.landmark] >= 0) for k in views]
        counts = [len(index) for index in keypoint]
        shown = list(zip(views, keypoint, strict=True))
        bundle = Bundle(
            R_cw=np.array([k.R_cw for k in views]),
            t_cw=np.array([k.t_cw for k in views]),
            fixed=np.arange(len(views)) >= len(free),
            points=self.points[seen],
            view=np.repeat(np.arange(len(views)), counts),
            point=np.concatenate([slot[k.landmark[index]] for k, index in shown]),
            observed=np.concatenate([k.view.x[index] for k, index in shown]),
            whitening=np.array([self.whitening(k.view) for k in views]),
        )
        R_cw, t_cw, points, covariances = adjust_bundle(bundle, iterations)
        moved = replace(bundle, R_cw=R_cw, t_cw=t_cw, points=points)
        origin = fixed[-1].centre
        reach, farthest = max((np.linalg.norm(k.centre - origin), i) for i, k in enumerate(free))
        for k, keyframe in enumerate(free):
            keyframe.R_cw, keyframe.t_cw = R_cw[k], t_cw[k]
        self.points[seen], self.covariances[seen] = points, covariances
        if floating:
            self.rescale(reach / np.linalg.norm(free[farthest].centre - origin), origin)
        distances, ends = bundle_distances(moved), np.cumsum(counts)[:-1]
        wrong = np.split(distances > OUTLIER_SIGMAS, ends)
        for (keyframe, index), off in zip(shown, wrong, strict=True):
            keyframe.landmark[index[off]] = NONE
        self._believe(self._sigma_px * observed_noise(distances, bundle.point))

    def _believe(self, sigma_px: float) -> None:
        """Let keypoints have this standard deviation, and landmarks the uncertainty it means."""
        sigma_px = float(np.clip(sigma_px, MIN_SIGMA_PX, MAX_SIGMA_PX))
        self.covariances *= (sigma_px / self._sigma_px) ** 2
        self._sigma_px = sigma_px

    def _seen_by(self, some: list[Keyframe], twice: list[Keyframe] | None = None) -> np.ndarray:
        """Ids of landmarks that one of some keyframes sees, and, if asked, two of others."""
        seen = self._views_of(some) >= 1
        if twice is not None:
            seen &= self._views_of(twice) >= 2
        return np.flatnonzero(seen)

    def _views_of(self, keyframes: list[Keyframe]) -> np.ndarray:
        """How many of these keyframes see each landmark."""
        ids = np.concatenate([k.landmark for k in keyframes])
        return np.bincount(ids[ids >= 0], minlength=len(self.points))

    def move(self, R_cw: np.ndarray, t_cw: np.ndarray, camera: Keyframe) -> None:
        """Move the world as a whole so that a camera of it gets this pose."""
        R_nw = R_cw.T @ camera.R_cw  # from the world as it was to the new one
        t_nw = R_cw.T @ (camera.t_cw - t_cw)
        self.points = self.points @ R_nw.T + t_nw
        self.covariances = R_nw @ self.covariances @ R_nw.T
        for keyframe in self.keyframes:
            keyframe.R_cw = keyframe.R_cw @ R_nw.T
            keyframe.t_cw = keyframe.t_cw - keyframe.R_cw @ t_nw

    def rescale(self, factor: float, centre: np.ndarray) -> None:
        """Scale the world about a point that stays: a camera there keeps its pose."""
        self.points = centre + factor * (self.points - centre)
        self.covariances = factor**2 * self.covariances
        for keyframe in self.keyframes:
            moved = centre + factor * (keyframe.centre - centre)
            keyframe.t_cw = -keyframe.R_cw @ moved
            keyframe.covariance = rescaled(keyframe.covariance, factor, centre)


def _square(J: np.ndarray) -> np.ndarray:
    return J.transpose(0, 2, 1) @ J


def motion_between(first: Posed, second: Posed) -> tuple[np.ndarray, np.ndarray]:
    """R_10 and t_10 from the first camera to the second, in the map's unit."""
    return relative_pose(first.R_cw, first.t_cw, second.R_cw, second.t_cw)

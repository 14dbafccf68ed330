"""Local bundle adjustment: the newest keyframe, its neighbors, and the landmarks they share."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lgc_ros.odometry.bundle_adjustment import (
    Bundle,
    adjust_bundle,
    bundle_distances,
    observed_noise,
)
from lgc_ros.odometry.map import NONE, Keyframe, LandmarkMap
from lgc_ros.odometry.triangulation import OUTLIER_SIGMAS


def adjust_window(landmarks: LandmarkMap, window: int, max_fixed: int, iterations: int) -> None:
    """Refine the newest keyframe, those most covisible with it, and the landmarks they see.

    Up to `max_fixed` other keyframes that see the same landmarks hold the window in place. If
    there are fewer than two, the oldest keyframe of the window is held, too. If it is the only
    one, its distance to the farthest one is kept: the trajectory keeps its length, although its
    first step was the least certain.
    """
    free, fixed, floating = _choose_window(landmarks, window, max_fixed)
    part = part_of_map(landmarks, free, fixed)
    adjusted = adjust_bundle(part.bundle, iterations)
    origin = fixed[-1].center
    reach, farthest = max((np.linalg.norm(k.center - origin), i) for i, k in enumerate(free))
    part.take_over(landmarks, *adjusted)
    if floating:
        factor = reach / np.linalg.norm(free[farthest].center - origin)
        landmarks.rescale(float(factor), origin)
    R_cw, t_cw, points, _ = adjusted
    distances = bundle_distances(replace(part.bundle, R_cw=R_cw, t_cw=t_cw, points=points))
    outliers = np.split(distances > OUTLIER_SIGMAS, np.cumsum(part.counts)[:-1])
    for keyframe, index, outlier in zip(part.views, part.keypoints, outliers, strict=True):
        keyframe.landmark_ids[index[outlier]] = NONE
    noise = observed_noise(distances, part.bundle.point)
    landmarks.set_keypoint_sigma(landmarks.sigma_px * noise)


@dataclass(frozen=True, eq=False)
class PartOfMap:
    """Some keyframes and the landmarks they share, as a bundle.

    Attributes:
        views: the keyframes, those that may move first.
        keypoints: of each keyframe, those that show the landmarks.
        ids: of the landmarks.
    """

    bundle: Bundle
    views: list[Keyframe]
    keypoints: list[np.ndarray]
    ids: np.ndarray

    @property
    def counts(self) -> list[int]:
        """Number of observations of each keyframe."""
        return [len(index) for index in self.keypoints]

    def take_over(
        self,
        landmarks: LandmarkMap,
        R_cw: np.ndarray,
        t_cw: np.ndarray,
        points: np.ndarray,
        covariances: np.ndarray,
    ) -> None:
        """Let the map follow the adjusted bundle."""
        for k, keyframe in enumerate(self.views):
            if not self.bundle.fixed[k]:
                keyframe.R_cw, keyframe.t_cw = R_cw[k], t_cw[k]
        landmarks.points[self.ids], landmarks.covariances[self.ids] = points, covariances

    def rescale(self, landmarks: LandmarkMap, factor: float, center: np.ndarray) -> None:
        """Scale the keyframes that may move and the landmarks about a point."""
        points = landmarks.points[self.ids]
        landmarks.points[self.ids] = center + factor * (points - center)
        landmarks.covariances[self.ids] *= factor**2
        for keyframe, fixed in zip(self.views, self.bundle.fixed, strict=True):
            if not fixed:
                moved = center + factor * (keyframe.center - center)
                keyframe.t_cw = -keyframe.R_cw @ moved


def part_of_map(landmarks: LandmarkMap, free: list[Keyframe], fixed: list[Keyframe]) -> PartOfMap:
    """Keyframes to refine and keyframes to hold, with the landmarks that the former see."""
    views = free + fixed
    ids = _seen_by(landmarks, free, views)
    slot = np.full(len(landmarks.points) + 1, NONE)
    slot[ids] = np.arange(len(ids))
    keypoints = [np.flatnonzero(slot[k.landmark_ids] >= 0) for k in views]
    observations = list(zip(views, keypoints, strict=True))
    bundle = Bundle(
        R_cw=np.array([k.R_cw for k in views]),
        t_cw=np.array([k.t_cw for k in views]),
        fixed=np.arange(len(views)) >= len(free),
        points=landmarks.points[ids],
        view=np.repeat(np.arange(len(views)), [len(index) for index in keypoints]),
        point=np.concatenate([slot[k.landmark_ids[index]] for k, index in observations]),
        observed=np.concatenate([k.view.x[index] for k, index in observations]),
        whitening=np.array([landmarks.whitening(k.view) for k in views]),
    )
    return PartOfMap(bundle, views, keypoints, ids)


def _choose_window(
    landmarks: LandmarkMap, window: int, max_fixed: int
) -> tuple[list[Keyframe], list[Keyframe], bool]:
    """Keyframes to refine and keyframes to hold; and whether nothing else determines the scale."""
    newest = landmarks.keyframes[-1]
    ranked = landmarks.covisible(newest.landmark_ids)
    nearest = [k for n, k in ranked if k is not newest and n > 0]
    free = [newest, *nearest[: window - 1]]
    seen = _seen_by(landmarks, free)
    others = [k for n, k in landmarks.covisible(seen) if n > 0 and not any(k is f for f in free)]
    fixed = others[:max_fixed]
    by_age = [k for k in landmarks.keyframes if any(k is f for f in free)]
    if len(fixed) < 2:
        fixed.append(by_age.pop(0))
    return by_age, fixed, len(fixed) == 1


def _seen_by(
    landmarks: LandmarkMap, some: list[Keyframe], twice: list[Keyframe] | None = None
) -> np.ndarray:
    """Ids of landmarks seen by at least one of `some` and, if given, by two of `twice`."""
    seen = _observation_counts(landmarks, some) >= 1
    if twice is not None:
        seen &= _observation_counts(landmarks, twice) >= 2
    return np.flatnonzero(seen)


def _observation_counts(landmarks: LandmarkMap, keyframes: list[Keyframe]) -> np.ndarray:
    """(L,) number of these keyframes that see each landmark."""
    ids = np.concatenate([k.landmark_ids for k in keyframes])
    return np.bincount(ids[ids >= 0], minlength=len(landmarks.points))

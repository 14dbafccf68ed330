"""Local bundle adjustment: the newest keyframe, its neighbors, and the landmarks they share."""

from __future__ import annotations

from dataclasses import replace

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
    views = free + fixed
    seen = _seen_by(landmarks, free, views)
    slot = np.full(len(landmarks.points) + 1, NONE)
    slot[seen] = np.arange(len(seen))
    keypoints = [np.flatnonzero(slot[k.landmark_ids] >= 0) for k in views]
    observations = list(zip(views, keypoints, strict=True))
    counts = [len(index) for index in keypoints]
    bundle = Bundle(
        R_cw=np.array([k.R_cw for k in views]),
        t_cw=np.array([k.t_cw for k in views]),
        fixed=np.arange(len(views)) >= len(free),
        points=landmarks.points[seen],
        view=np.repeat(np.arange(len(views)), counts),
        point=np.concatenate([slot[k.landmark_ids[index]] for k, index in observations]),
        observed=np.concatenate([k.view.x[index] for k, index in observations]),
        whitening=np.array([landmarks.whitening(k.view) for k in views]),
    )
    R_cw, t_cw, points, covariances = adjust_bundle(bundle, iterations)
    origin = fixed[-1].center
    reach, farthest = max((np.linalg.norm(k.center - origin), i) for i, k in enumerate(free))
    for k, keyframe in enumerate(free):
        keyframe.R_cw, keyframe.t_cw = R_cw[k], t_cw[k]
    landmarks.points[seen], landmarks.covariances[seen] = points, covariances
    if floating:
        factor = reach / np.linalg.norm(free[farthest].center - origin)
        landmarks.rescale(float(factor), origin)
    distances = bundle_distances(replace(bundle, R_cw=R_cw, t_cw=t_cw, points=points))
    outliers = np.split(distances > OUTLIER_SIGMAS, np.cumsum(counts)[:-1])
    for (keyframe, index), outlier in zip(observations, outliers, strict=True):
        keyframe.landmark_ids[index[outlier]] = NONE
    landmarks.set_keypoint_sigma(landmarks.sigma_px * observed_noise(distances, bundle.point))


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

"""Refines the camera while the map grows: what its calibration leaves of radial distortion.

A calibration that is off by a few pixels at the border of the image hardly changes single poses,
but it bends the map where the camera turns: the scale drifts by a tenth in each right-angle turn
on KITTI. The landmarks themselves show it. Keyframes are adjusted together with the distortion
from time to time, and the correction is used as far as these estimates agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lgc_ros.geometry.camera import Camera
from lgc_ros.odometry.bundle_adjustment import adjust_bundle, shared_shift
from lgc_ros.odometry.local_adjustment import part_of_map
from lgc_ros.odometry.map import Keyframe, LandmarkMap
from lgc_ros.odometry.tracking import MIN_LANDMARKS

# Keyframes that are adjusted together, the fewest that are enough, and how many are new each time;
# intervals grow as estimates become more.
WINDOW, MIN_KEYFRAMES = 16, 8
INTERVAL, LONGER_AFTER = 8, 4
# Rounds of an estimate, which is not quite linear, and iterations of bundle adjustment in each.
ROUNDS, ITERATIONS = 2, 10
# Estimates are off by more than noise explains: moving objects, a rolling shutter and other errors
# of the calibration matter most where noise leaves much open. Their standard deviations are taken
# times NOISE_FACTOR, and at least SCATTER.
NOISE_FACTOR, SCATTER = 3.0, 0.003
# If they scatter even more, all are less certain. The excess is averaged with that of so many
# estimates without any, since few tell little about it.
SCATTER_WEIGHT = 2
# Corrections below so many times their error are not used, and those above in part.
SIGNIFICANT = 2.0
# Windows of successive estimates overlap by half.
OVERLAP = 2
# Estimates that are less certain are not used.
MAX_SIGMA = 0.01
# Largest correction at the corner of the image, relative to the distance from the center. A
# larger one asks for a calibration.
MAX_CORRECTION = 0.1


@dataclass(frozen=True)
class Estimate:
    """Radial correction by one set of keyframes, and its standard deviation by noise alone."""

    radial: float
    sigma: float


def combined(estimates: Sequence[Estimate]) -> float:
    """The radial correction by several estimates, shrunk toward 0 where they do not agree on it.

    The factor is the positive part of 1 - (SIGNIFICANT error / mean)², as by James and Stein.
    """
    if not estimates:
        return 0.0
    values = np.array([estimate.radial for estimate in estimates])
    sigmas = np.array([estimate.sigma for estimate in estimates])
    weights = 1 / ((NOISE_FACTOR * sigmas) ** 2 + SCATTER**2)
    mean = float(np.average(values, weights=weights))
    squared = float(np.sum(weights * (values - mean) ** 2))
    excess = (squared + SCATTER_WEIGHT) / (len(values) - 1 + SCATTER_WEIGHT)
    variance = OVERLAP * max(1.0, excess) / float(np.sum(weights))
    return mean * max(0.0, 1 - SIGNIFICANT**2 * variance / mean**2) if mean else 0.0


class CameraRefinement:
    """Estimates the radial correction of one camera; the keyframes of the map have it."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._estimates: list[Estimate] = []
        self._waited = 0

    def update(self, landmarks: LandmarkMap) -> None:
        """Estimate the correction by the latest keyframes, if it is time; the map follows.

        Call it once for each keyframe that was inserted.
        """
        if not self._enabled:
            return
        self._waited += 1
        if self._waited < INTERVAL * (1 + len(self._estimates) // LONGER_AFTER):
            return
        keyframes = landmarks.latest_with_landmarks(MIN_LANDMARKS)[:WINDOW][::-1]
        limit = _largest_correction(keyframes[-1].view.camera) if keyframes else 0.0
        if len(keyframes) < MIN_KEYFRAMES or not limit:
            return
        self._waited = 0
        estimate = estimate_correction(landmarks, keyframes)
        if not (estimate.sigma <= MAX_SIGMA and abs(estimate.radial) <= limit):
            return
        self._estimates.append(estimate)
        radial = combined(self._estimates)
        if radial != keyframes[-1].view.camera.radial:
            apply_correction(landmarks, keyframes, radial)


def estimate_correction(landmarks: LandmarkMap, keyframes: Sequence[Keyframe]) -> Estimate:
    """The radial correction with which keyframes and their landmarks fit best; changes nothing."""
    bundle = part_of_map(landmarks, [*keyframes[1:]], [keyframes[0]]).bundle
    radial, sigma = keyframes[-1].view.camera.radial, np.inf
    if len(bundle.view) == 0:
        return Estimate(radial, sigma)
    for _ in range(ROUNDS):
        R_cw, t_cw, points, _ = adjust_bundle(bundle, ITERATIONS)
        bundle = replace(bundle, R_cw=R_cw, t_cw=t_cw, points=points)
        x = bundle.observed
        direction = x * (x * x).sum(axis=1, keepdims=True)
        step, sigma = shared_shift(bundle, direction)
        bundle = replace(bundle, observed=x + step * direction)
        radial += step
    return Estimate(float(radial), float(sigma))


def apply_correction(landmarks: LandmarkMap, keyframes: Sequence[Keyframe], radial: float) -> None:
    """Give all keyframes a camera with this correction, and adjust these and their landmarks."""
    for keyframe in landmarks.keyframes:
        view = keyframe.view
        camera = replace(view.camera, radial=radial)
        keyframe.view = replace(view, camera=camera, x=camera.normalize(view.features.points))
    first, others = keyframes[0], [*keyframes[1:]]
    part, length = part_of_map(landmarks, others, [first]), path_length(keyframes)
    part.take_over(landmarks, *adjust_bundle(part.bundle, ITERATIONS))
    if length > 0:  # nothing else determines the scale
        part.rescale(landmarks, length / path_length(keyframes), first.center)


def path_length(keyframes: Sequence[Keyframe]) -> float:
    """Length of the path through keyframes."""
    steps = np.diff([keyframe.center for keyframe in keyframes], axis=0)
    return float(np.linalg.norm(steps, axis=1).sum())


def correction_px(camera: Camera) -> float:
    """How far the correction of a camera moves the corners of its image."""
    if camera.radial == 0:
        return 0.0
    return abs(camera.radial) * _corner_radius(camera) ** 3 * camera.focal


def _largest_correction(camera: Camera) -> float:
    """0 for a lens whose image has no border at a finite distance."""
    radius = 0.0 if camera.model == "equidistant" else _corner_radius(camera)
    return MAX_CORRECTION / radius**2 if radius else 0.0


def _corner_radius(camera: Camera) -> float:
    """Largest distance of a corner from the axis, normalized; 0 if there are no rays for it."""
    right, low = camera.width - 1.0, camera.height - 1.0
    corners = camera.normalize(np.array([[0.0, 0.0], [right, 0.0], [0.0, low], [right, low]]))
    radius = float(np.linalg.norm(corners, axis=1).max())
    return radius if np.isfinite(radius) else 0.0

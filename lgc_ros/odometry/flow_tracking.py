"""Tracking by optical flow: points of a keyframe are followed into the frames after it.

Patches are always taken from the keyframe, never from the frame before, so that no drift
accumulates while a keyframe lasts. A frame costs a small part of what extracting and matching
keypoints would. The result has the form of a view matched to a keyframe, so that everything after
it is the same for both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lgc_ros.estimation.estimators import ESTIMATORS, EstimatorOptions, PoseEstimate
from lgc_ros.estimation.methods import FILTER_ESTIMATOR
from lgc_ros.estimation.two_view import TwoViewResult
from lgc_ros.features.keypoints import features_from_rows, strongest_spread
from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.epipolar import essential_from_pose, homogeneous
from lgc_ros.matching.correspondences import Correspondences
from lgc_ros.odometry.map import (
    OUTLIER_SIGMAS,
    HasPose,
    Keyframe,
    LandmarkMap,
    View,
    motion_between,
)
from lgc_ros.odometry.motion_search import ReferenceMatches
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.patch_alignment import LEVELS, align_patches, image_pyramid
from lgc_ros.odometry.pose_optimization import MEDIAN_OF_TWO, refine_pose, residual_scale
from lgc_ros.odometry.tracking import Pose, Track

# Points that are followed, spread over the image, and the fewest that locate a frame.
MAX_POINTS, MIN_POINTS = 250, 30
# Share of the points found that must agree with the pose.
MIN_AGREEING = 0.5
# Share of the keypoints in view that must be found where no pose can confirm them.
MIN_FOUND = 0.5
# Standard deviation of the position of an aligned patch: at least, and at most. It is measured in
# every frame; blur and rolling shutter increase it.
SIGMA_PX, MAX_SIGMA_PX = 0.15, 1.0
# Outliers are rejected more strictly where the noise was measured.
MEASURED_OUTLIER_SIGMAS = OUTLIER_SIGMAS / 2
# Coarsest pyramid level for landmarks, which are near their projections.
NEAR_LEVEL = 3
# The same where the pose is known, and how far from its projection a landmark may be found.
KNOWN_LEVEL = 1
MAX_MISS_PX = 3.0
# Largest predicted change of the area of a patch.
MAX_ZOOM = 3.0
# A landmark projected further from its keypoint may be in front of other texture.
MAX_OFFSET_PX = 1.5
# Samples of the two-view estimator.
SAMPLES = 50


@dataclass(frozen=True, eq=False)
class Anchor:
    """A keyframe and the points that are followed from it: a copy of what tracking needs.

    Tracking can go on with it while the map changes.

    Attributes:
        keyframe: the keyframe; its landmark ids refer to `landmarks`.
        landmarks: those of the points. None before there are enough.
        rows: (M,) the points among the keypoints of the keyframe.
        pixels: (M, 2) where their patches are.
        pyramid: of the keyframe's image.
    """

    keyframe: Keyframe
    landmarks: LandmarkMap | None
    rows: np.ndarray
    pixels: np.ndarray
    pyramid: list[np.ndarray]


@dataclass(frozen=True, eq=False)
class Followed:
    """A frame into which points of a keyframe were followed.

    Attributes:
        view: the frame; its keypoints are the points found.
        track: the points found, as matches with the keyframe; with a pose if they are landmarks.
        overlap: share of the anchor's points that are in view, found or not.
    """

    view: View
    track: Track
    overlap: float


def landmark_anchor(
    keyframe: Keyframe,
    landmarks: LandmarkMap,
    known: np.ndarray | None = None,
    min_points: int = MIN_POINTS,
) -> Anchor | None:
    """Follow the landmarks that a keyframe shows; None if there are too few.

    Patches are taken where the landmarks are projected to, not where keypoints were detected: the
    noise of the detection would shift all poses that rest on this keyframe.

    Args:
        known: (L,) bool, landmarks of the map that need not be followed.
    """
    view = keyframe.view
    if view.gray is None:
        return None
    rows = np.flatnonzero(keyframe.landmark_ids >= 0)
    if known is not None:
        rows = rows[~known[keyframe.landmark_ids[rows]]]
    points = landmarks.points[keyframe.landmark_ids[rows]]
    points_cam = points @ keyframe.R_cw.T + keyframe.t_cw
    pixels = view.camera.project(points_cam)
    near = np.linalg.norm(pixels - view.features.points[rows], axis=1) < MAX_OFFSET_PX
    chosen = np.flatnonzero(near)
    if len(chosen) < min_points:
        return None
    chosen = chosen[strongest_spread(pixels[chosen], MAX_POINTS, view.camera.size)]
    rows, pixels = rows[chosen], pixels[chosen]
    # A landmark is uncertain along its ray only: across, it is wherever its patch is.
    covariances = landmarks.covariances[keyframe.landmark_ids[rows]]
    variances = np.einsum("i,nij,j->n", keyframe.R_cw[2], covariances, keyframe.R_cw[2])
    rays = (points_cam[chosen] / points_cam[chosen, 2:]) @ keyframe.R_cw
    local = LandmarkMap(SIGMA_PX, 1)
    local.points = points[chosen]
    local.covariances = variances[:, None, None] * rays[:, :, None] * rays[:, None, :]
    copy = Keyframe(_moved(view, rows, pixels), keyframe.R_cw, keyframe.t_cw)
    copy.covariance = keyframe.covariance
    copy.landmark_ids[rows] = np.arange(len(rows))
    local.keyframes = [copy]
    return Anchor(copy, local, rows, pixels, image_pyramid(view.gray))


def keypoint_anchor(keyframe: Keyframe) -> Anchor | None:
    """Follow keypoints of a keyframe that shows no landmarks yet."""
    view = keyframe.view
    if view.gray is None or len(view.x) < MIN_POINTS:
        return None
    pixels = view.features.points
    rows = strongest_spread(pixels, MAX_POINTS, view.camera.size)
    return Anchor(keyframe, None, rows, pixels[rows], image_pyramid(view.gray))


def _moved(view: View, rows: np.ndarray, pixels: np.ndarray) -> View:
    """The view with some keypoints at other pixels."""
    points, x = view.features.points.copy(), view.x.copy()
    points[rows], x[rows] = pixels, view.camera.normalize(pixels)
    return replace(view, features=replace(view.features, points=points), x=x)


def follow_landmarks(
    anchor: Anchor, frame: View, pyramid: list[np.ndarray], predicted: HasPose
) -> Followed | None:
    """Locate a frame near a predicted pose; None if too few landmarks are found there.

    Args:
        frame: view without keypoints.
        pyramid: of its image.
    """
    landmarks, keyframe = anchor.landmarks, anchor.keyframe
    assert landmarks is not None
    guesses, warps = _predict(anchor, landmarks, frame.camera, predicted)
    found = _find(anchor, frame, pyramid, guesses, warps, NEAR_LEVEL)
    if found is None:
        return None
    view, points = found
    pose = _located(view, landmarks.points[points], landmarks.covariances[points], predicted)
    if pose is None:
        return None
    rows = anchor.rows[points]
    track = _track(keyframe, view, rows, *motion_between(keyframe, pose), pose.used)
    in_view = np.isfinite(guesses[:, 0]).mean()
    return Followed(view, replace(track, pose=pose), float(in_view))


def find_landmarks(
    anchor: Anchor, frame: View, pyramid: list[np.ndarray], pose: HasPose
) -> tuple[np.ndarray, np.ndarray]:
    """Find landmarks of a keyframe in a frame whose pose is known.

    Returns:
        Which points of the anchor were found next to their projections, and (K, 2) pixels.
    """
    assert anchor.landmarks is not None
    guesses, warps = _predict(anchor, anchor.landmarks, frame.camera, pose)
    pixels, found = align_patches(
        anchor.pyramid, anchor.pixels, pyramid, guesses, warps, coarsest=KNOWN_LEVEL
    )
    found[found] = np.linalg.norm(pixels[found] - guesses[found], axis=1) < MAX_MISS_PX
    points = np.flatnonzero(found)
    return points, pixels[points]


def _predict(
    anchor: Anchor, landmarks: LandmarkMap, camera: Camera, pose: HasPose
) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (M, 2) and deformation (M, 2, 2) of the points in a camera; NaN if not in view."""
    keyframe = anchor.keyframe
    R_10, t_10 = motion_between(keyframe, pose)
    depths = landmarks.points @ keyframe.R_cw[2] + keyframe.t_cw[2]
    warps = _predicted_warps(camera, R_10, t_10, keyframe.view.x[anchor.rows], depths)
    guesses = camera.project(landmarks.points @ pose.R_cw.T + pose.t_cw)
    in_view = _is_inside(guesses, camera) & np.isfinite(warps).all(axis=(1, 2))
    guesses[~in_view], warps[~in_view] = np.nan, np.eye(2)
    return guesses, warps


def follow_keypoints(
    anchor: Anchor, frame: View, pyramid: list[np.ndarray], guesses: np.ndarray
) -> Followed | None:
    """Find the points of a keyframe without landmarks; None if there are too few.

    Args:
        guesses: (M, 2) where the points may be; NaN if unknown.
    """
    warps = np.tile(np.eye(2), (len(guesses), 1, 1))
    found = _find(anchor, frame, pyramid, guesses, warps, LEVELS)
    if found is None:
        return None
    view, points = found
    in_view = _is_inside(guesses, frame.camera)
    if len(points) < MIN_FOUND * in_view.sum():
        return None
    no_motion = np.eye(3), np.zeros(3)
    agree = np.ones(len(points), bool)
    track = _track(anchor.keyframe, view, anchor.rows[points], *no_motion, agree)
    return Followed(view, track, float(in_view.mean()))


def _find(
    anchor: Anchor,
    frame: View,
    pyramid: list[np.ndarray],
    guesses: np.ndarray,
    warps: np.ndarray,
    level: int,
) -> tuple[View, np.ndarray] | None:
    """The view of the points found, and which ones these are; None if there are too few."""
    pixels, found = align_patches(anchor.pyramid, anchor.pixels, pyramid, guesses, warps, level)
    points = np.flatnonzero(found)
    x = frame.camera.normalize(pixels[points])
    valid = np.isfinite(x).all(axis=1)
    points, x = points[valid], x[valid]
    if len(points) < MIN_POINTS:
        return None
    no_descriptors = np.empty((len(points), 0), np.float32)
    features = features_from_rows("flow", pixels[points].astype(np.float32), no_descriptors)
    return replace(frame, features=features, x=x), points


def _located(
    view: View, points: np.ndarray, covariances: np.ndarray, predicted: HasPose
) -> Pose | None:
    """The pose on which most of the landmarks agree, with the noise that they show."""
    whitening = np.eye(2) * view.camera.focal / SIGMA_PX
    start = predicted.R_cw, predicted.t_cw
    refined = refine_pose(*start, points, view.x, whitening, covariances)
    seen = np.isfinite(refined.distance)
    excess = np.sqrt(residual_scale(refined.distance[seen] ** 2, MEDIAN_OF_TWO))
    limit = OUTLIER_SIGMAS
    if excess > 1:
        whitening /= min(excess, MAX_SIGMA_PX / SIGMA_PX)
        start = refined.R_cw, refined.t_cw
        refined = refine_pose(*start, points, view.x, whitening, covariances)
        limit = MEASURED_OUTLIER_SIGMAS
    used = refined.distance < limit
    if used.sum() < max(MIN_POINTS, MIN_AGREEING * len(used)):
        return None
    return Pose(refined.R_cw, refined.t_cw, refined.covariance, used)


def _track(
    keyframe: Keyframe,
    view: View,
    rows: np.ndarray,
    R_10: np.ndarray,
    t_10: np.ndarray,
    inliers: np.ndarray,
) -> Track:
    """The points found as matches of a two-view result; `t_10` of any length."""
    length = np.linalg.norm(t_10)
    t_10 = t_10 / length if length > 0 else np.array([0.0, 0.0, 1.0])
    first, count = keyframe.view, len(rows)
    correspondences = Correspondences(
        x0=first.x[rows],
        x1=view.x,
        p0=first.features.points[rows].astype(np.float64),
        p1=view.features.points.astype(np.float64),
        size0=first.camera.size,
        size1=view.camera.size,
        focal=(first.camera.focal + view.camera.focal) / 2,
        ratio=np.zeros(count, np.float32),
        mutual=np.ones(count, bool),
    )
    pose = PoseEstimate(R_10, t_10, essential_from_pose(R_10, t_10), inliers)
    kept = np.ones(count, bool)
    result = TwoViewResult(correspondences, kept, inliers, pose, "", None, {})
    columns = np.arange(count)
    candidates = ReferenceMatches(rows, columns, view.x)
    return Track(keyframe, result, rows, columns, columns, candidates)


def with_two_view_pose(track: Track, options: OdometryOptions) -> Track:
    """Points that were followed without landmarks, with their relative pose; None in the result
    if they do not determine one.

    Few samples do: nearly all points that were followed are true matches.
    """
    estimator = EstimatorOptions(options.threshold_px, max_iterations=SAMPLES, seed=options.seed)
    pose = ESTIMATORS[FILTER_ESTIMATOR](track.result.correspondences, estimator)
    if pose is None:
        return replace(track, result=replace(track.result, pose=None))
    chosen = np.flatnonzero(pose.inliers)
    return replace(
        track,
        result=replace(track.result, pose=pose, inliers=pose.inliers),
        index0=track.index0[chosen],
        index1=track.index1[chosen],
        rows=track.rows[chosen],
    )


def _is_inside(pixels: np.ndarray, camera: Camera) -> np.ndarray:
    """Mask of the pixels that are in the image."""
    with np.errstate(invalid="ignore"):
        inside = (pixels >= 0) & (pixels <= np.array(camera.size) - 1)
    return np.asarray(inside.all(axis=1))


def _predicted_warps(
    camera: Camera, R_10: np.ndarray, t_10: np.ndarray, x0: np.ndarray, depths: np.ndarray
) -> np.ndarray:
    """(N, 2, 2) deformation of patches that face camera 0; NaN if it is too large to be of use.

    Lens distortion is about the same where a patch was and where it is, and left out.
    """
    points1 = depths[:, None] * (homogeneous(x0) @ R_10.T) + t_10
    z = np.where(points1[:, 2] > 0, points1[:, 2], np.nan)
    x1 = points1[:, :2] / z[:, None]
    warps = R_10[None, :2, :2] - x1[:, :, None] * R_10[None, 2:, :2]
    warps = (depths / z)[:, None, None] * warps
    aspect = camera.K[0, 0] / camera.K[1, 1]
    warps = warps * np.array([[1.0, aspect], [1 / aspect, 1.0]])
    with np.errstate(invalid="ignore"):
        zoom = abs(np.linalg.det(warps))
        warps[~((zoom < MAX_ZOOM) & (zoom > 1 / MAX_ZOOM))] = np.nan
    return warps


def with_points(view: View, pixels: np.ndarray, source: View, rows: np.ndarray) -> View:
    """Add keypoints of another view, found at these pixels, to a view.

    They keep the descriptors they have in the other view.
    """
    f, origin = view.features, source.features.subset(rows)
    features = replace(
        f,
        points=np.concatenate([f.points, pixels.astype(np.float32)]),
        descriptors=np.concatenate([f.descriptors, origin.descriptors]),
        sizes=np.concatenate([f.sizes, origin.sizes]),
        angles=np.concatenate([f.angles, origin.angles]),
        responses=np.concatenate([f.responses, origin.responses]),
    )
    return replace(view, features=features, x=np.vstack([view.x, view.camera.normalize(pixels)]))

"""Tracking by optical flow: points of a keyframe are followed into the frames after it.

Patches are always taken from the keyframe, never from the frame before, so that no drift
accumulates while a keyframe lasts. A frame costs a small part of what extracting and matching
keypoints would. The result has the form of a view matched to a keyframe, so that everything after
it is the same for both.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from lgc_ros.odometry.pose_optimization import (
    MEDIAN_OF_TWO,
    is_determined,
    project,
    refine_pose,
    residual_scale,
)
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
# Largest predicted change of the area of a patch.
MAX_ZOOM = 3.0
# A landmark projected further from its keypoint may be in front of other texture.
MAX_OFFSET_PX = 1.5
# Samples of the two-view estimator.
SAMPLES = 50


@dataclass(frozen=True, eq=False)
class Patches:
    """Patches of one keyframe.

    Attributes:
        keyframe: where they are taken from.
        rows: (M,) keypoints of the keyframe that they belong to.
        pixels: (M, 2) their centers.
        depths: (M,) of the points in the keyframe; empty if unknown.
        pyramid: of the keyframe's image.
    """

    keyframe: Keyframe
    rows: np.ndarray
    pixels: np.ndarray
    depths: np.ndarray
    pyramid: list[np.ndarray]


@dataclass(frozen=True, eq=False)
class Anchor:
    """Points that are followed from a keyframe: a copy of what tracking needs of the map.

    Tracking can go on with it while the map changes.

    Attributes:
        keyframe: the keyframe, with the points as its keypoints; its landmark ids refer to
            `landmarks`.
        landmarks: those of the points. None before there are enough.
        sources: patches of the points, in the order of the points. Landmarks that the keyframe
            does not show, because of blur for example, have patches in keyframes before.
    """

    keyframe: Keyframe
    landmarks: LandmarkMap | None
    sources: list[Patches]


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


def landmark_patches(
    keyframe: Keyframe, landmarks: LandmarkMap, known: np.ndarray, count: int = MAX_POINTS
) -> Patches | None:
    """Patches of landmarks that a keyframe shows, spread over the image; None without an image.

    They are taken where the landmarks are projected to, not where keypoints were detected: the
    noise of the detection would shift all poses that rest on this keyframe.

    Args:
        known: (L + 1,) bool, landmarks that are left out; NONE is the last one.
    """
    view = keyframe.view
    if view.gray is None:
        return None
    rows = np.flatnonzero(~known[keyframe.landmark_ids] & (keyframe.landmark_ids >= 0))
    points = landmarks.points[keyframe.landmark_ids[rows]]
    points_cam = points @ keyframe.R_cw.T + keyframe.t_cw
    pixels = view.camera.project(points_cam)
    near = np.linalg.norm(pixels - view.features.points[rows], axis=1) < MAX_OFFSET_PX
    chosen = np.flatnonzero(near)
    chosen = chosen[strongest_spread(pixels[chosen], count, view.camera.size)]
    depths = points_cam[chosen, 2]
    return Patches(keyframe, rows[chosen], pixels[chosen], depths, image_pyramid(view.gray))


def landmark_anchor(
    keyframe: Keyframe, landmarks: LandmarkMap, others: Sequence[Keyframe] = ()
) -> Anchor | None:
    """Follow the landmarks that a keyframe shows, and those of others; None if they are too few.

    Args:
        others: keyframes whose landmarks are followed, too, as far as the first shows them not.
    """
    sources, seen = [], []
    known = np.zeros(len(landmarks.points) + 1, bool)
    for source in (keyframe, *others):
        count = MAX_POINTS - sum(len(ids) for ids in seen)
        patches = landmark_patches(source, landmarks, known, count) if count > 0 else None
        if patches is not None and len(patches.rows):
            seen.append(source.landmark_ids[patches.rows])
            known[source.landmark_ids] = True
            sources.append(_copied(patches))
    if sum(len(ids) for ids in seen) < MIN_POINTS:
        return None
    ids = np.concatenate(seen)
    local = LandmarkMap(SIGMA_PX, len(sources) + 1)
    local.points = landmarks.points[ids]
    # A landmark is uncertain along its ray only: across, it is wherever its patch is.
    local.covariances = np.concatenate(
        [
            _along_rays(patches, landmarks.covariances[part])
            for patches, part in zip(sources, seen, strict=True)
        ]
    )
    copy = Keyframe(_view_of(keyframe, local.points), keyframe.R_cw, keyframe.t_cw)
    copy.covariance, copy.landmark_ids = keyframe.covariance, np.arange(len(ids))
    local.keyframes = [copy, *(patches.keyframe for patches in sources)]
    return Anchor(copy, local, sources)


def _copied(patches: Patches) -> Patches:
    """The same with a copy of the keyframe, which keeps its pose when the map changes."""
    keyframe = patches.keyframe
    return replace(patches, keyframe=Keyframe(keyframe.view, keyframe.R_cw, keyframe.t_cw))


def _along_rays(patches: Patches, covariances: np.ndarray) -> np.ndarray:
    """(M, 3, 3) the part of the landmarks' covariances along their rays."""
    R_cw = patches.keyframe.R_cw
    rays = homogeneous(patches.keyframe.view.camera.normalize(patches.pixels)) @ R_cw
    variances = np.einsum("i,nij,j->n", R_cw[2], covariances, R_cw[2])
    return variances[:, None, None] * rays[:, :, None] * rays[:, None, :]


def _view_of(keyframe: Keyframe, points: np.ndarray) -> View:
    """A keyframe's view of these points of the world."""
    view, points_cam = keyframe.view, points @ keyframe.R_cw.T + keyframe.t_cw
    x, _ = project(points_cam)
    pixels = view.camera.project(points_cam)
    features = features_from_rows(
        "flow", pixels.astype(np.float32), np.empty((len(points), 0), np.float32)
    )
    return replace(view, features=features, x=x)


def keypoint_anchor(keyframe: Keyframe) -> Anchor | None:
    """Follow keypoints of a keyframe that shows no landmarks yet."""
    view = keyframe.view
    if view.gray is None or len(view.x) < MIN_POINTS:
        return None
    pixels = view.features.points
    rows = strongest_spread(pixels, MAX_POINTS, view.camera.size)
    pyramid = image_pyramid(view.gray)
    return Anchor(keyframe, None, [Patches(keyframe, rows, pixels[rows], np.empty(0), pyramid)])


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
    guesses = frame.camera.project(landmarks.points @ predicted.R_cw.T + predicted.t_cw)
    pixels, found = np.empty_like(guesses), np.zeros(len(guesses), bool)
    first = 0
    for patches in anchor.sources:
        part = slice(first, first + len(patches.rows))
        pixels[part], found[part] = find_patches(
            patches, pyramid, frame.camera, guesses[part], predicted, NEAR_LEVEL
        )
        first = part.stop
    view, points = _view_of_points(frame, pixels, found)
    if len(points) < MIN_POINTS:
        return None
    pose = _located(view, landmarks.points[points], landmarks.covariances[points], predicted)
    if pose is None:
        return None
    track = _track(keyframe, view, points, *motion_between(keyframe, pose), pose.used)
    # Of the keyframe itself: landmarks of others may have been out of its view from the start.
    in_view = _is_inside(guesses[: len(anchor.sources[0].rows)], frame.camera)
    return Followed(view, replace(track, pose=pose), float(in_view.mean()))


def find_patches(
    patches: Patches,
    pyramid: list[np.ndarray],
    camera: Camera,
    guesses: np.ndarray,
    pose: HasPose,
    level: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Find patches in an image of about this pose.

    Args:
        pyramid: of the image.
        guesses: (M, 2) where they may be, pixels.
        level: coarsest pyramid level.

    Returns:
        (M, 2) pixels, and a mask (M,) of the patches that were found there.
    """
    keyframe = patches.keyframe
    x0 = keyframe.view.camera.normalize(patches.pixels)
    R_10, t_10 = motion_between(keyframe, pose)
    warps = _predicted_warps(camera, R_10, t_10, x0, patches.depths)
    in_view = _is_inside(guesses, camera) & np.isfinite(warps).all(axis=(1, 2))
    guesses = np.where(in_view[:, None], guesses, np.nan)
    warps[~in_view] = np.eye(2)
    return align_patches(patches.pyramid, patches.pixels, pyramid, guesses, warps, level)


def follow_keypoints(
    anchor: Anchor, frame: View, pyramid: list[np.ndarray], guesses: np.ndarray
) -> Followed | None:
    """Find the points of a keyframe without landmarks; None if there are too few.

    Args:
        guesses: (M, 2) where the points may be; NaN if unknown.
    """
    (patches,) = anchor.sources
    warps = np.tile(np.eye(2), (len(guesses), 1, 1))
    pixels, found = align_patches(patches.pyramid, patches.pixels, pyramid, guesses, warps, LEVELS)
    view, points = _view_of_points(frame, pixels, found)
    in_view = _is_inside(guesses, frame.camera)
    if len(points) < max(MIN_POINTS, MIN_FOUND * in_view.sum()):
        return None
    no_motion = np.eye(3), np.zeros(3)
    agree = np.ones(len(points), bool)
    track = _track(anchor.keyframe, view, patches.rows[points], *no_motion, agree)
    return Followed(view, track, float(in_view.mean()))


def _view_of_points(frame: View, pixels: np.ndarray, found: np.ndarray) -> tuple[View, np.ndarray]:
    """A frame's view of the points found, and which ones these are."""
    points = np.flatnonzero(found)
    x = frame.camera.normalize(pixels[points])
    valid = np.isfinite(x).all(axis=1)
    points, x = points[valid], x[valid]
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
    if not is_determined(refined, points[used]):
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

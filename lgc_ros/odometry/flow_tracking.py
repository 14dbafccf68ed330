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
from lgc_ros.features.keypoints import features_from_rows
from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.epipolar import essential_from_pose, homogeneous
from lgc_ros.matching.correspondences import Correspondences
from lgc_ros.odometry.anchor import (
    MIN_POINTS,
    SIGMA_PX,
    Anchor,
    Patches,
    keypoint_anchor,
    landmark_anchor,
)
from lgc_ros.odometry.map import (
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
    RefinedPose,
    is_determined,
    refine_far_pose,
    refine_pose,
    residual_scale,
)
from lgc_ros.odometry.tracking import (
    MIN_AGREEING_SHARE,
    MIN_LANDMARKS,
    TRUSTED_SAMPLES,
    Pose,
    Track,
)
from lgc_ros.odometry.triangulation import STRICT_OUTLIER_SIGMAS

# Share of the keypoints in view that must be found where no pose can confirm them.
MIN_FOUND = 0.5
# The noise of the points is measured in every frame, since blur and rolling shutter increase it;
# this is its largest standard deviation.
MAX_SIGMA_PX = 1.0
# Coarsest pyramid level for landmarks, which are near their projections.
NEAR_LEVEL = 3
# Largest predicted change of the area of a patch.
MAX_ZOOM = 3.0
# Points whose depth has grown by this factor count as out of view: a camera that moves backwards
# loses none of them, but sees ever more that its keyframe did not.
MAX_RECESSION = 1.25
# Keypoints without landmarks are followed for so many frames, before the frame is matched to the
# whole map again.
MAX_FRAMES_WITHOUT_LANDMARKS = 10
# A landmark that has not been found for so long is lost: blur hides it for less.
LOST_AFTER_NS = 350_000_000
# Latest keyframes whose landmarks are followed together with those of the current one.
OTHERS = 3


@dataclass(frozen=True, eq=False)
class Followed:
    """A frame into which points of a keyframe were followed.

    Attributes:
        view: the frame; its keypoints are the points found.
        track: the points found, as matches with the keyframe; with a pose if they are landmarks.
        overlap: share of the anchor's points that are in view, found or not, and not much
            farther away than from the keyframe.
        found: (M,) bool, the anchor's points that were found.
    """

    view: View
    track: Track
    overlap: float
    found: np.ndarray


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
    if len(points) < MIN_LANDMARKS:
        return None
    pose = _located(view, landmarks.points[points], landmarks.covariances[points], predicted)
    if pose is None:
        return None
    track = _track(keyframe, view, points, *motion_between(keyframe, pose), pose.used)
    # Of the keyframe itself: landmarks of others may have been out of its view from the start.
    own = anchor.sources[0]
    in_view = _is_inside(guesses[: len(own.rows)], frame.camera)
    depths = landmarks.points[: len(own.rows)] @ predicted.R_cw[2] + predicted.t_cw[2]
    in_view &= depths < MAX_RECESSION * own.depths
    return Followed(view, replace(track, pose=pose), float(in_view.mean()), found)


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
    warps = _predicted_warps(keyframe.view.camera, camera, R_10, t_10, x0, patches.depths)
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
    if frame.camera.size != anchor.keyframe.view.camera.size:
        return None
    warps = np.tile(np.eye(2), (len(guesses), 1, 1))
    pixels, found = align_patches(patches.pyramid, patches.pixels, pyramid, guesses, warps, LEVELS)
    view, points = _view_of_points(frame, pixels, found)
    in_view = _is_inside(guesses, frame.camera)
    if len(points) < max(MIN_POINTS, MIN_FOUND * in_view.sum()):
        return None
    no_motion = np.eye(3), np.zeros(3)
    agree = np.ones(len(points), bool)
    track = _track(anchor.keyframe, view, patches.rows[points], *no_motion, agree)
    return Followed(view, track, float(in_view.mean()), found)


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
    excess = _excess_noise(refined)
    if excess > MAX_SIGMA_PX / SIGMA_PX:  # no noise is that large: the prediction is far off
        refined = refine_far_pose(*start, points, view.x, whitening, covariances)
        excess = _excess_noise(refined)
    if excess > 1:
        whitening /= min(excess, MAX_SIGMA_PX / SIGMA_PX)
        start = refined.R_cw, refined.t_cw
        refined = refine_pose(*start, points, view.x, whitening, covariances)
    used = refined.distance < STRICT_OUTLIER_SIGMAS
    if used.sum() < max(MIN_LANDMARKS, MIN_AGREEING_SHARE * len(used)):
        return None
    if not is_determined(refined, points[used]):
        return None
    return Pose(refined.R_cw, refined.t_cw, refined.covariance, used)


def _excess_noise(refined: RefinedPose) -> float:
    """Noise that the median residual shows, relative to the assumed one."""
    seen = np.isfinite(refined.distance)
    return float(np.sqrt(residual_scale(refined.distance[seen] ** 2, MEDIAN_OF_TWO)))


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
    """
    estimator = EstimatorOptions(
        options.threshold_px, max_iterations=TRUSTED_SAMPLES, seed=options.seed
    )
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
    camera0: Camera,
    camera1: Camera,
    R_10: np.ndarray,
    t_10: np.ndarray,
    x0: np.ndarray,
    depths: np.ndarray,
) -> np.ndarray:
    """(N, 2, 2) deformation of patches that face camera 0; NaN if it is too large to be of use.

    Lens distortion is about the same where a patch was and where it is, and left out.
    """
    points1 = depths[:, None] * (homogeneous(x0) @ R_10.T) + t_10
    z = np.where(points1[:, 2] > 0, points1[:, 2], np.nan)
    x1 = points1[:, :2] / z[:, None]
    warps = R_10[None, :2, :2] - x1[:, :, None] * R_10[None, 2:, :2]
    warps = (depths / z)[:, None, None] * warps
    warps = warps * np.outer(np.diag(camera1.K)[:2], 1 / np.diag(camera0.K)[:2])
    with np.errstate(invalid="ignore"):
        zoom = abs(np.linalg.det(warps))
        warps[~((zoom < MAX_ZOOM) & (zoom > 1 / MAX_ZOOM))] = np.nan
    return warps


class PointFollower:
    """Optical flow from one keyframe.

    Attributes:
        anchor: the keyframe and its points; None if there is nothing to follow.
        share_left: of the landmarks, those that were found lately.
    """

    def __init__(self) -> None:
        self.anchor: Anchor | None = None
        self.share_left = 1.0
        self._found_ns = np.empty(0, np.int64)
        self._pixels, self._shift = np.empty((0, 2)), np.zeros(2)
        self._frames = 0

    @property
    def landmarks(self) -> LandmarkMap | None:
        """Landmarks that are followed; None if there are none."""
        return self.anchor.landmarks if self.anchor else None

    def rescale(self, factor: float, about: np.ndarray) -> None:
        """Follow the map when it is scaled about a point."""
        if self.anchor is not None and self.anchor.landmarks is not None:
            self.anchor.landmarks.rescale(factor, about)

    def stop(self) -> None:
        """Follow nothing."""
        self.anchor = None

    def follow_landmarks_of(self, keyframe: Keyframe, landmarks: LandmarkMap) -> None:
        """Follow the landmarks that a keyframe shows from now on."""
        others = [k for k in landmarks.keyframes[: -1 - OTHERS : -1] if k is not keyframe]
        self.anchor = landmark_anchor(keyframe, landmarks, others)
        if self.landmarks is not None:
            self._found_ns = np.full(len(self.landmarks.points), keyframe.view.stamp_ns)

    def follow_keypoints_of(self, keyframe: Keyframe) -> None:
        """Follow keypoints of a keyframe that shows no landmarks from now on."""
        self.anchor, self._frames = keypoint_anchor(keyframe), 0
        if self.anchor is not None:
            self._pixels = self.anchor.sources[0].pixels.astype(np.float64)
            self._shift = np.zeros(2)

    def follow(self, frame: View, predicted: HasPose, initialized: bool) -> Followed | None:
        """Find the points in a frame; None if too few are found.

        Args:
            predicted: pose of the frame, by which landmarks are predicted. Keypoints without
                landmarks are predicted by their last motion in the image.
            initialized: whether there are landmarks elsewhere in the map.
        """
        if self.anchor is None or frame.gray is None:
            return None
        pyramid = image_pyramid(frame.gray)
        if self.anchor.landmarks is not None:
            followed = follow_landmarks(self.anchor, frame, pyramid, predicted)
            if followed is not None:
                self._found_ns[followed.found] = frame.stamp_ns
                self.share_left = float(np.mean(frame.stamp_ns - self._found_ns < LOST_AFTER_NS))
            return followed
        self._frames += 1
        if initialized and self._frames > MAX_FRAMES_WITHOUT_LANDMARKS:
            return None
        guesses = self._pixels + self._shift
        followed = follow_keypoints(self.anchor, frame, pyramid, guesses)
        if followed is not None:
            self._remember(self.anchor, followed)
        return followed

    def _remember(self, anchor: Anchor, followed: Followed) -> None:
        """Where the points are now; those that were not found moved like the others."""
        found = np.searchsorted(anchor.sources[0].rows, followed.track.index0)
        pixels = followed.view.features.points.astype(np.float64)
        self._shift = np.median(pixels - self._pixels[found], axis=0)
        self._pixels = self._pixels + self._shift
        self._pixels[found] = pixels

"""Patches of a keyframe, and the points that are followed from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lgc_ros.features.keypoints import features_from_rows, strongest_spread
from lgc_ros.geometry.epipolar import homogeneous
from lgc_ros.odometry.map import Keyframe, LandmarkMap, View
from lgc_ros.odometry.patch_alignment import image_pyramid
from lgc_ros.odometry.pose_optimization import project

# Points that are followed, spread over the image, and the fewest that are worth it.
MAX_POINTS, MIN_POINTS = 250, 30
SIGMA_PX = 0.15
"""Standard deviation of the position of an aligned patch, at least."""
# A landmark projected further from its keypoint may be in front of other texture.
MAX_OFFSET_PX = 1.5


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
        others: keyframes whose landmarks are followed, too, except those the first one shows.
    """
    sources: list[Patches] = []
    seen: list[np.ndarray] = []
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

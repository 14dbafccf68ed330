"""Mapping: a new keyframe gets landmarks, old and new, and the map is refined around it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lgc_ros.features.image_sharpness import noise_ratio
from lgc_ros.geometry.epipolar import essential_from_pose, sampson_distance
from lgc_ros.matching.correspondences import match, row_distances
from lgc_ros.matching.guided import NOT_FOUND, match_guided
from lgc_ros.odometry import covariance
from lgc_ros.odometry.anchor import landmark_patches, with_points
from lgc_ros.odometry.flow_tracking import find_patches
from lgc_ros.odometry.local_adjustment import adjust_window
from lgc_ros.odometry.map import NONE, Keyframe, LandmarkMap, View, motion_between
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.patch_alignment import image_pyramid
from lgc_ros.odometry.tracking import MIN_LANDMARKS, Pose, Track

# A new keyframe is searched for the landmarks of this many covisible keyframes, this far from
# their projections. A keypoint is accepted if its descriptor is as close as those of this share
# of the matches that gave the pose.
SEARCHED_KEYFRAMES = 10
SEARCH_PX = 4.0
SIMILAR_SHARE = 0.97
# Optical flow searches it for those of this many, beginning at this pyramid level.
FOLLOWED_KEYFRAMES = 4
FOLLOWED_LEVEL = 1
# Matches that no filter has scored must be this much closer to their epipolar lines than inliers.
UNFILTERED_THRESHOLD = 0.5


def insert_keyframe(
    landmarks: LandmarkMap, view: View, track: Track, pose: Pose, options: OdometryOptions
) -> Keyframe:
    """Make a tracked view a keyframe: hand landmarks over, add new ones, refine the window."""
    reference, used = track.reference, pose.used
    keyframe = Keyframe(view, pose.R_cw, pose.t_cw)
    ids = reference.landmark_ids[track.index0[used]]
    base = landmarks.covariance_of_observers(ids, reference)
    spread = covariance.with_blur(pose.covariance, noise_ratio(view.features.sharpness))
    keyframe.covariance = covariance.chained(base, replace(pose, covariance=spread))
    keyframe.landmark_ids[track.index1[used]] = ids
    landmarks.add_keyframe(keyframe, keep=reference)
    _follow_landmarks(landmarks, keyframe, [reference])
    landmarks.triangulate(reference, keyframe, track.index0, track.index1)
    connect(landmarks, keyframe, track, options.threshold_px)
    adjust_window(landmarks, options.window, options.window_fixed, options.window_iterations)
    return keyframe


def insert_rotated_keyframe(
    landmarks: LandmarkMap, view: View, track: Track, pose: Pose
) -> Keyframe:
    """Make a view a keyframe that only rotated: it adds no landmarks."""
    keyframe = Keyframe(view, pose.R_cw, pose.t_cw)
    keyframe.covariance = covariance.chained(track.reference.covariance, pose)
    keyframe.landmark_ids[track.index1] = track.reference.landmark_ids[track.index0]
    landmarks.add_keyframe(keyframe, keep=track.reference)
    return keyframe


def connect(landmarks: LandmarkMap, keyframe: Keyframe, track: Track, threshold_px: float) -> None:
    """Tie a new keyframe to more keyframes than the one it was matched to.

    Landmarks of covisible keyframes are searched for where the pose predicts them, which makes
    tracks longer and ends the drift where the camera comes back. The remaining keypoints become
    new landmarks with one of these keyframes.
    """
    others = [
        other
        for shared, other in landmarks.covisible(keyframe.landmark_ids)
        if other is not keyframe and shared >= MIN_LANDMARKS
    ][:SEARCHED_KEYFRAMES]
    if not others:
        return
    _find_landmarks(landmarks, keyframe, others, _typical_distance(track, keyframe))
    _follow_landmarks(landmarks, keyframe, others[:FOLLOWED_KEYFRAMES])
    for other in others:
        if other is not track.reference:
            _add_landmarks(landmarks, other, keyframe, threshold_px)
            return


def _typical_distance(track: Track, keyframe: Keyframe) -> float:
    """Descriptor distance that most matches of the pose stay below."""
    assert track.pose is not None  # only tracked views become keyframes
    used = track.pose.used
    if not used.any():
        return 0.0
    distance = row_distances(
        track.reference.view.features.descriptors[track.index0[used]],
        keyframe.view.features.descriptors[track.index1[used]],
    )
    return float(np.quantile(distance, SIMILAR_SHARE))


def _find_landmarks(
    landmarks: LandmarkMap, keyframe: Keyframe, others: list[Keyframe], max_distance: float
) -> None:
    """Assign landmarks of other keyframes to keypoints where they are predicted."""
    view = keyframe.view
    ids, x, descriptors = landmarks.predicted_observations(keyframe, others)
    radius = SEARCH_PX / view.camera.focal
    found = match_guided(x, descriptors, view.x, view.features.descriptors, radius, max_distance)
    new = found != NOT_FOUND
    new[new] = keyframe.landmark_ids[found[new]] == NONE
    keyframe.landmark_ids[found[new]] = ids[new]


def _follow_landmarks(landmarks: LandmarkMap, keyframe: Keyframe, others: list[Keyframe]) -> None:
    """Find landmarks of other keyframes by optical flow, where keypoints have not been matched.

    Under motion blur hardly any keypoint is detected again, but most patches can be followed.
    """
    if keyframe.view.gray is None:
        return
    pyramid, camera = image_pyramid(keyframe.view.gray), keyframe.view.camera
    for other in others:
        known = np.zeros(len(landmarks.points) + 1, bool)
        known[keyframe.landmark_ids] = True
        patches = landmark_patches(other, landmarks, known)
        if patches is None:
            continue
        ids = other.landmark_ids[patches.rows]
        guesses = camera.project(landmarks.points[ids] @ keyframe.R_cw.T + keyframe.t_cw)
        pixels, found = find_patches(patches, pyramid, camera, guesses, keyframe, FOLLOWED_LEVEL)
        found[found] = np.linalg.norm((pixels - guesses)[found], axis=1) < SEARCH_PX
        rows = patches.rows[found]
        keyframe.view = with_points(keyframe.view, pixels[found], other.view, rows)
        keyframe.landmark_ids = np.append(keyframe.landmark_ids, ids[found])


def _add_landmarks(
    landmarks: LandmarkMap, other: Keyframe, keyframe: Keyframe, threshold_px: float
) -> None:
    """New landmarks from keypoints of two keyframes that show none yet.

    No filter has scored these matches; the known poses reject the outliers.
    """
    free0, free1 = (np.flatnonzero(k.landmark_ids == NONE) for k in (other, keyframe))
    matches = match(other.view.features.subset(free0), keyframe.view.features.subset(free1))
    index0, index1 = free0[matches.index0[matches.mutual]], free1[matches.index1[matches.mutual]]
    E_10 = essential_from_pose(*motion_between(other, keyframe))
    threshold = UNFILTERED_THRESHOLD * threshold_px / keyframe.view.camera.focal
    x0, x1 = other.view.x[index0], keyframe.view.x[index1]
    close = sampson_distance(E_10, x0, x1) < threshold**2
    landmarks.triangulate(other, keyframe, index0[close], index1[close])

"""What ties a new keyframe to the map: landmarks of others found in it, and new ones with them."""

from __future__ import annotations

import numpy as np

from lgc_ros.geometry.epipolar import essential_from_pose, sampson_distance
from lgc_ros.matching.correspondences import match, row_distances
from lgc_ros.matching.guided import NOT_FOUND, match_guided
from lgc_ros.odometry.map import NONE, Keyframe, LandmarkMap, motion_between
from lgc_ros.odometry.tracking import MIN_LANDMARKS, Track

# Landmarks of this many keyframes are looked for in a new one, this far from where they should be,
# and found if as alike as this share of the matches that gave its pose.
CONNECTED_KEYFRAMES = 10
SEARCH_PX = 4.0
ALIKE_SHARE = 0.97
# Matches that no filter has seen make landmarks within this part of the inlier threshold.
CLOSE_SHARE = 0.5


def connect(landmarks: LandmarkMap, keyframe: Keyframe, track: Track, threshold_px: float) -> None:
    """Tie a new keyframe to more than the one it was matched to: longer, stiffer tracks.

    Landmarks of others are looked for where the pose says they should be, so that drift ends where
    the camera comes back to. What is left becomes new landmarks with one of them.
    """
    others = [
        other
        for shared, other in landmarks.covisible(keyframe.landmark)
        if other is not keyframe and shared >= MIN_LANDMARKS
    ][:CONNECTED_KEYFRAMES]
    if not others:
        return
    _find_landmarks(landmarks, keyframe, others, _usual_distance(track, keyframe))
    for other in others:
        if other is not track.reference:
            _make_landmarks(landmarks, other, keyframe, threshold_px)
            return


def _usual_distance(track: Track, keyframe: Keyframe) -> float:
    """How far descriptors of the same point are apart in most of the matches of a pose."""
    used = track.pose.used
    distance = row_distances(
        track.reference.view.features.descriptors[track.index0[used]],
        keyframe.view.features.descriptors[track.index1[used]],
    )
    return float(np.quantile(distance, ALIKE_SHARE))


def _find_landmarks(
    landmarks: LandmarkMap, keyframe: Keyframe, others: list[Keyframe], max_distance: float
) -> None:
    """Give keypoints without a landmark those of others that should be where they are."""
    view = keyframe.view
    ids, x, descriptors = landmarks.expected(keyframe, others)
    radius = SEARCH_PX / view.camera.focal
    found = match_guided(x, descriptors, view.x, view.features.descriptors, radius, max_distance)
    new = found != NOT_FOUND
    new[new] = keyframe.landmark[found[new]] == NONE
    keyframe.landmark[found[new]] = ids[new]


def _make_landmarks(
    landmarks: LandmarkMap, other: Keyframe, keyframe: Keyframe, threshold_px: float
) -> None:
    """New landmarks from keypoints of two keyframes that show none yet.

    No filter has seen their matches; the poses, which are known, tell right from wrong.
    """
    free0, free1 = (np.flatnonzero(k.landmark == NONE) for k in (other, keyframe))
    matches = match(other.view.features.subset(free0), keyframe.view.features.subset(free1))
    index0, index1 = free0[matches.index0[matches.mutual]], free1[matches.index1[matches.mutual]]
    E_10 = essential_from_pose(*motion_between(other, keyframe))
    threshold = CLOSE_SHARE * threshold_px / keyframe.view.camera.focal
    x0, x1 = other.view.x[index0], keyframe.view.x[index1]
    close = sampson_distance(E_10, x0, x1) < threshold**2
    landmarks.triangulate(other, keyframe, index0[close], index1[close])

"""Consistency check of the map: a wrong initialization is found and undone."""

from __future__ import annotations

import numpy as np

from lgc_ros.geometry.epipolar import essential_from_pose, sampson_distance
from lgc_ros.odometry.map import View, motion_between
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.tracking import EXPLAINED_SHARE, MIN_LANDMARKS, Track

# Share of the matches that must agree on a two-view pose.
MIN_INLIER_SHARE = 0.2
# The map is given up when this many more views refute than confirm it.
MAX_REFUTED = 2


class MapCheck:
    """Counts the views that confirm and refute the map."""

    def __init__(self, options: OdometryOptions) -> None:
        self._options = options
        self._balance = 0

    def restart(self) -> None:
        """Judge a new map from scratch."""
        self._balance = 0

    def accepts(self, view: View, track: Track) -> bool:
        """Whether a view may be located by the map, for or against which it counts from now on.

        Under strong blur, a few landmarks may agree on a wrong pose; the matches contradict it.
        """
        if not (shows_landmarks(track) and self.agrees(track)):
            return self.trusts_map
        confirmed = self.confirms(view, track)
        self._balance += 1 if confirmed else -1
        return confirmed and self.trusts_map

    @property
    def trusts_map(self) -> bool:
        """Whether the map has not been refuted."""
        return self._balance > -MAX_REFUTED

    def agrees(self, track: Track) -> bool:
        """Whether enough matches agree on a pose; a few always do, even if all are outliers."""
        needed = max(self._options.min_inliers, MIN_INLIER_SHARE * track.result.kept.sum())
        return len(track.index0) >= needed

    def trusts_two_views(self, track: Track) -> bool:
        """Whether the two-view pose can be trusted without landmarks.

        Landmarks that were matched but gave no pose speak against it.
        """
        return self.agrees(track) and not shows_landmarks(track)

    def confirms(self, view: View, track: Track) -> bool:
        """Whether the pose from landmarks explains the two-view inliers."""
        if track.pose is None:
            return False
        x0, x1 = track.reference.view.x[track.index0], view.x[track.index1]
        E_10 = essential_from_pose(*motion_between(track.reference, track.pose))
        threshold = 2 * self._options.threshold_px / view.camera.focal
        agree = sampson_distance(E_10, x0, x1) < threshold**2
        return bool(np.mean(agree) > EXPLAINED_SHARE)


def shows_landmarks(track: Track) -> bool:
    """Whether enough matched keypoints of the keyframe show landmarks for a pose."""
    return (track.reference.landmark_ids[track.index0] >= 0).sum() >= MIN_LANDMARKS

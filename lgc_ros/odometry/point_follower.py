"""Follows the points of the current keyframe from frame to frame."""

from __future__ import annotations

import numpy as np

from lgc_ros.odometry.anchor import Anchor, keypoint_anchor, landmark_anchor
from lgc_ros.odometry.flow_tracking import Followed, follow_keypoints, follow_landmarks
from lgc_ros.odometry.map import HasPose, Keyframe, LandmarkMap, View
from lgc_ros.odometry.patch_alignment import image_pyramid

# Keypoints without landmarks are followed for so many frames, before the frame is matched to the
# whole map again.
MAX_FRAMES_WITHOUT_LANDMARKS = 10
# Latest keyframes whose landmarks are followed together with those of the current one.
OTHERS = 3


class PointFollower:
    """Optical flow from one keyframe.

    Attributes:
        anchor: the keyframe and its points; None if there is nothing to follow.
    """

    def __init__(self) -> None:
        self.anchor: Anchor | None = None
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
            return follow_landmarks(self.anchor, frame, pyramid, predicted)
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

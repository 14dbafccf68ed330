"""Poses of the frames before the first landmarks, estimated once there are some.

Monocular odometry cannot know the translation of its first frames. When the map has been
initialized, they are located by its landmarks, so that a trajectory begins with the first frame.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from lgc_ros.odometry import covariance
from lgc_ros.odometry.history import StateReport
from lgc_ros.odometry.keyframe_matching import locate
from lgc_ros.odometry.map import LandmarkMap, View
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.state import OK, OdometryState
from lgc_ros.odometry.tracking import Track

# Frames that are remembered: ten seconds of a camera.
MAX_FRAMES = 300


@dataclass(frozen=True, eq=False)
class _Frame:
    state: OdometryState
    view: View
    track: Track


class LookBack:
    """Remembers frames that have no position yet."""

    def __init__(self, options: OdometryOptions) -> None:
        self._options = options
        self._frames: deque[_Frame] = deque(maxlen=MAX_FRAMES)

    def remember(self, state: OdometryState, view: View, track: Track) -> None:
        """Keep what is needed to locate a frame later: where it saw keypoints of its keyframe."""
        seen = track.candidates
        columns = np.arange(len(seen.index0))
        none = np.empty((len(columns), 0), np.float32)
        features = replace(view.features.subset(seen.index1), descriptors=none)
        view = replace(view, features=features, x=seen.x, gray=None)
        track = replace(track, index0=seen.index0, index1=columns, rows=columns)
        self._frames.append(_Frame(state.without_matches(), view, track))

    def forget(self) -> None:
        """Drop all frames."""
        self._frames.clear()

    def locate(self, landmarks: LandmarkMap, report: StateReport) -> list[OdometryState]:
        """States of the frames that landmarks can locate by now; drops all frames."""
        located = []
        for frame in self._frames:
            pose = locate(frame.view, frame.track, landmarks, self._options)
            if pose is None:
                continue
            T_wc = covariance.T_wc(pose)
            spread = covariance.chained(frame.track.reference.covariance, pose)
            located.append(
                replace(
                    frame.state,
                    status=OK,
                    message="",
                    T_wc=T_wc,
                    covariance=report.published(spread, T_wc),
                )
            )
        self._frames.clear()
        return located

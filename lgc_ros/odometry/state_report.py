"""The answer to a frame: its state, from the pose and from what all the parts know."""

from __future__ import annotations

import numpy as np

from lgc_ros.odometry import covariance
from lgc_ros.odometry.history import PoseHistory
from lgc_ros.odometry.map import Keyframe, LandmarkMap, View
from lgc_ros.odometry.metric_scale import MetricScale
from lgc_ros.odometry.options import FLOW, MATCH
from lgc_ros.odometry.state import (
    FEW_MATCHES,
    INITIALIZING,
    LOST,
    OK,
    TRACKED,
    OdometryState,
    match_counts,
)
from lgc_ros.odometry.tracking import Pose, Track
from lgc_ros.runtime.stage_timer import StageTimer


class StateReport:
    """Makes states and adds them to the history.

    Args:
        lost_after: frames in a row without a pose after which the status is `lost`.
    """

    def __init__(
        self, landmarks: LandmarkMap, scale: MetricScale, history: PoseHistory, lost_after: int
    ) -> None:
        self._map, self._scale, self._history = landmarks, scale, history
        self._lost_after = lost_after

    def published(self, covariance_world: np.ndarray, T_wc: np.ndarray) -> np.ndarray:
        """(6, 6) covariance to publish with a pose, from that of the step on its left."""
        scale = self._scale
        return covariance.published(
            covariance_world, T_wc[:3, 3], scale.sigma, scale.displacement, scale.held_sigma_m
        )

    def held(
        self,
        stamp_ns: int,
        message: str,
        track: Track | None,
        timer: StageTimer,
        drift: np.ndarray,
    ) -> OdometryState:
        """The answer to a frame without a pose: the last one, with growing uncertainty.

        Args:
            drift: (6, 6) world covariance of the last pose by now.
        """
        self._history.failures += 1
        T_wc = self._scale.shown(self._history.T_wc)
        state = OdometryState(
            stamp_ns,
            LOST if self._history.failures > self._lost_after else FEW_MATCHES,
            message,
            T_wc,
            self.published(drift, T_wc),
            np.zeros(6),
            relative=track and track.result,
            relative_stamp_ns=track and track.reference.view.stamp_ns,
            counts=match_counts(track and track.result, 0),
            ms=timer.ms,
            scale_sigma=self._scale.sigma,
        )
        self._history.last = state
        return state

    def located(
        self,
        view: View,
        status: str,
        message: str,
        where: Pose | Keyframe,
        track: Track | None,
        pose: Pose | None,
        timer: StageTimer,
        keyframe: bool,
        landmarks: LandmarkMap | None = None,
    ) -> OdometryState:
        """The answer to a frame with a pose, at least a rotation.

        Args:
            landmarks: map that the ids of the track refer to; by default the whole map.
        """
        T_wc, tracked = covariance.T_wc(where), status in TRACKED
        if self._scale.is_awaited and status == OK:
            last = self._history.last
            assert last is not None  # landmarks take two frames
            self._scale.held_s += (view.stamp_ns - last.stamp_ns) * 1e-9
        if self._scale.is_awaited and tracked:
            status, message = INITIALIZING, self._scale.held_message
        spread = where.covariance
        if isinstance(where, Pose):
            assert track is not None  # without a match, only a keyframe is placed
            spread = covariance.chained(track.reference.covariance, where)
        shown = self._scale.shown(T_wc)
        used = 0 if pose is None else int(pose.used.sum())
        state = OdometryState(
            view.stamp_ns,
            status,
            message,
            shown,
            self.published(spread, shown),
            self._history.twist(view.stamp_ns, T_wc, status),
            keyframe,
            track and track.result,
            track and track.reference.view.stamp_ns,
            tracking=FLOW if landmarks is not None else MATCH,
            counts={"features": len(view.x)} | match_counts(track and track.result, used),
            ms=timer.ms,
            scale_sigma=self._scale.sigma,
            **_seen_landmarks(landmarks or self._map, view, where, track, pose),
        )
        self._history.add(state, T_wc, tracked)
        return state


def _seen_landmarks(
    landmarks: LandmarkMap,
    view: View,
    where: Pose | Keyframe,
    track: Track | None,
    pose: Pose | None,
) -> dict[str, np.ndarray]:
    """Landmarks that the pose rests on, their keypoints and scores, by field of OdometryState."""
    if track is None or pose is None:
        return {}
    ids = track.reference.landmark_ids[track.index0]
    seen = pose.used & (ids >= 0)  # bundle adjustment may have rejected some
    points, scores = landmarks.points[ids[seen]], track.result.scores
    return {
        "points_cam": points @ where.R_cw.T + where.t_cw,
        "points_px": view.features.points[track.index1[seen]].astype(np.float64),
        "scores": np.ones(len(points)) if scores is None else scores[track.rows[seen]],
    }

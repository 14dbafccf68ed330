"""The states of frames: how they are made, and what odometry remembers of those before."""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np

from lgc_ros.images.frame import Frame
from lgc_ros.odometry import covariance
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

# While tracking is lost, velocity may change by as much as itself, and rotation by this rate.
LOST_TURN_RADPS = 0.5
# Speed assumed while lost, at least, in scene depths per second.
LOST_SPEED = 0.1


class CameraPose(NamedTuple):
    """Pose of a camera, world to camera."""

    R_cw: np.ndarray
    t_cw: np.ndarray


class PoseHistory:
    """The last poses and states.

    Attributes:
        T_wc: (4, 4) last pose; its position is also known here while publishing it is held back.
        depth: median depth of the landmarks in the last tracked view, in map units.
        first, last, last_tracked: states; None before there is one.
        failures: frames in a row without a pose.
    """

    def __init__(self) -> None:
        self.T_wc = np.eye(4)
        self.depth: float | None = None
        self.first: OdometryState | None = None
        self.last: OdometryState | None = None
        self.last_tracked: OdometryState | None = None
        self.failures = 0
        # Velocity in the camera frame, also while publishing it is held back.
        self._velocity, self._tracked = np.zeros(6), False

    def add(self, state: OdometryState, T_wc: np.ndarray, tracked: bool) -> None:
        """Remember the state of a frame that was matched."""
        known = tracked and self._tracked
        self._velocity = self._motion(state.stamp_ns, T_wc) if known else np.zeros(6)
        self._tracked = tracked
        self.T_wc = T_wc
        self.last, self.first = state, self.first or state
        if tracked:
            self.last_tracked = state

    def refusal(self, frame: Frame) -> OdometryState | None:
        """The answer to a frame that is not newer than the last one; None if it is."""
        last = self.last
        if last is None or frame.stamp_ns > last.stamp_ns:
            return None
        if frame.stamp_ns == last.stamp_ns:
            message, status = "same stamp as the previous frame; ignored", last.status
        else:
            late_s = (last.stamp_ns - frame.stamp_ns) * 1e-9
            message, status = f"{late_s:.3f} s older than the previous frame; ignored", LOST
        held = last.T_wc, last.covariance, np.zeros(6)
        sigma = last.scale_sigma
        return OdometryState(frame.stamp_ns, status, message, *held, scale_sigma=sigma)

    def rescale(self, factor: float, about: np.ndarray) -> None:
        """Follow the map when it is scaled about a point."""
        self.T_wc = self.T_wc.copy()  # states hold the previous one
        self.T_wc[:3, 3] = about + factor * (self.T_wc[:3, 3] - about)
        self.depth = self.depth and factor * self.depth
        self._velocity = self._velocity * np.repeat([factor, 1.0], 3)

    def twist(self, stamp_ns: int, T_wc: np.ndarray, status: str) -> np.ndarray:
        """(6,) velocity in the camera frame since the last tracked pose, in the current scale."""
        if self.last is None or not self.last.tracked or status not in TRACKED:
            return np.zeros(6)
        return self._motion(stamp_ns, T_wc)

    def _motion(self, stamp_ns: int, T_wc: np.ndarray) -> np.ndarray:
        """(6,) mean velocity from the last pose to this one, in the camera frame."""
        assert self.last is not None
        elapsed_s = (stamp_ns - self.last.stamp_ns) * 1e-9
        moved = np.linalg.inv(self.T_wc) @ T_wc
        angular, _ = cv2.Rodrigues(moved[:3, :3])
        linear = moved[:3, :3].T @ moved[:3, 3]
        return np.concatenate([linear, angular.ravel()]) / elapsed_s

    def predicted(self, stamp_ns: int) -> CameraPose:
        """The pose at a later time if the camera keeps its velocity."""
        T_wc = self.T_wc
        if self.last is not None:
            moved = self._velocity * (stamp_ns - self.last.stamp_ns) * 1e-9
            turn, _ = cv2.Rodrigues(moved[3:])
            step = np.eye(4)
            step[:3, :3], step[:3, 3] = turn, turn @ moved[:3]
            T_wc = T_wc @ step
        R_cw = np.ascontiguousarray(T_wc[:3, :3].T)
        return CameraPose(R_cw, -R_cw @ T_wc[:3, 3])

    def move(self, T_nw: np.ndarray) -> None:
        """Follow the map when it is moved rigidly, from the old world to the new one."""
        self.T_wc = T_nw @ self.T_wc

    def lost_s(self, stamp_ns: int) -> float:
        """Seconds since the last tracked frame."""
        good = self.last_tracked
        return (stamp_ns - good.stamp_ns) * 1e-9 if good else float("inf")

    def drift(self, stamp_ns: int, base: np.ndarray) -> np.ndarray:
        """(6, 6) world covariance of the held pose, which grows with the time without tracking.

        Args:
            base: (6, 6) world covariance of the keyframe that the held pose rests on.
        """
        good = self.last_tracked or self.first
        if good is None:
            return np.zeros((6, 6))
        elapsed_s = (stamp_ns - good.stamp_ns) * 1e-9
        speed = max(float(np.linalg.norm(good.twist[:3])), LOST_SPEED * (self.depth or 1.0))
        spread = np.zeros((6, 6))
        spread[:3, :3] = (LOST_TURN_RADPS * elapsed_s) ** 2 * np.eye(3)
        spread[3:, 3:] = (speed * elapsed_s) ** 2 * np.eye(3)
        return base + covariance.in_world(spread, good.T_wc)


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
        """(6, 6) covariance to publish with a pose, from that of the step on the left of T_wc."""
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

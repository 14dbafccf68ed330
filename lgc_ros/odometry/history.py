"""What odometry remembers of the frames before: last poses, scene depth, failures."""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np

from lgc_ros.images.frame import Frame
from lgc_ros.odometry import covariance
from lgc_ros.odometry.state import LOST, TRACKED, OdometryState

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

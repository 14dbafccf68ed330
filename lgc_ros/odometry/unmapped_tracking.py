"""Tracking where there are no landmarks: rotation only, or the map is initialized."""

from __future__ import annotations

import numpy as np

from lgc_ros.images.frame import Frame
from lgc_ros.odometry import covariance
from lgc_ros.odometry.context import Context
from lgc_ros.odometry.flow_tracking import with_two_view_pose
from lgc_ros.odometry.initialization import (
    FirstMotion,
    first_motion,
    triangulate_first_landmarks,
)
from lgc_ros.odometry.keyframe_policy import few_matches_left
from lgc_ros.odometry.map import View
from lgc_ros.odometry.mapping import insert_rotated_keyframe
from lgc_ros.odometry.motion_gate import pure_rotation, rotated_pose
from lgc_ros.odometry.state import DEGENERATE, INITIALIZING, NO_MOTION, OK, OdometryState
from lgc_ros.odometry.tracking import Pose, Reference, Track
from lgc_ros.runtime.stage_timer import StageTimer

# Motion that a pure rotation may hide, and how far points may be before their depth is known.
HIDDEN_MOTION_PX = 3.0
UNKNOWN_DEPTH = 10.0
# Growth of parallax after which optical flow asks for another attempt to initialize the map.
RETRY_PARALLAX = 1.2
TOO_FEW = "too few points can be triangulated"


class UnmappedTracking:
    """Tracks views whose keyframe shows too few landmarks."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def track(
        self, view: View, track: Track, frame: Frame, timer: StageTimer, by_flow: bool = False
    ) -> OdometryState | None:
        """A view matched to a keyframe without enough landmarks: rotate, or initialize the map.

        Returns:
            None if the points were followed by flow, but a keyframe is needed.
        """
        c = self._context
        o, focal, depth = c.options, view.camera.focal, c.history.depth
        rotation = pure_rotation(view, track, c.map.sigma(view.camera), o.still_px)
        c.history.failures = 0
        c.current.saw(track)
        if few_matches_left(track, c.current.most_matches, o):
            c.current.runs_out = True
        if rotation is not None:
            R_10, status = rotation
            hidden_rad = HIDDEN_MOTION_PX / focal
            sigma_position = hidden_rad * (depth or UNKNOWN_DEPTH)
            pose = rotated_pose(track, R_10, track.reference.center, hidden_rad, sigma_position)
            return self._rotate(view, track, pose, status, "", timer, by_flow)
        if by_flow:
            track = with_two_view_pose(track, o)
            if track.result.pose is None:
                return None
        # Less parallax is accepted before the keyframe, and with it the baseline, is given up.
        needed_deg = o.init_parallax_deg / (2 if c.current.runs_out else 1)
        x1 = view.x[track.index1]
        first = first_motion(track, x1, c.current.views, needed_deg, o.threshold_px / focal)
        c.current.remember(track.candidates)
        status = DEGENERATE if c.map.initialized else INITIALIZING
        if first.parallax_deg < needed_deg:
            message = f"parallax of {first.parallax_deg:.2f} degrees is too small for landmarks"
        elif not first.is_clear:
            status, message = DEGENERATE, "two motions explain the views, as in front of a plane"
        elif first.inliers.mean() < c.match.first_share:
            agreeing, count = first.inliers.sum(), len(first.inliers)
            message = f"only {agreeing} of {count} matches agree on a motion"
        elif by_flow:
            if first.parallax_deg > c.current.retry_parallax_deg:
                c.current.retry_parallax_deg = RETRY_PARALLAX * first.parallax_deg
                return None
            message = TOO_FEW
        else:
            state = self._initialize(view, track, first, frame, timer)
            if state is not None:
                return state
            message = TOO_FEW
        # Translation may be mistaken for a rotation as large as the parallax.
        sigma_rad, sigma_position = np.radians(first.parallax_deg), depth or 1.0
        center = c.history.T_wc[:3, 3]
        pose = rotated_pose(track, first.motion.R_10, center, sigma_rad, sigma_position)
        return self._rotate(view, track, pose, status, message, timer, by_flow)

    def _rotate(
        self,
        view: View,
        track: Track,
        pose: Pose,
        status: str,
        message: str,
        timer: StageTimer,
        by_flow: bool,
    ) -> OdometryState | None:
        """A view whose position is held; it becomes a keyframe before the matches run out."""
        c = self._context
        inserted = status != NO_MOTION and c.current.runs_out
        if inserted and by_flow:
            return None
        c.gate.anchor_at(pose)
        if inserted:
            c.reference = Reference(insert_rotated_keyframe(c.map, view, track, pose))
        if not by_flow and (inserted or c.follower.anchor is None):
            c.follower.follow_keypoints_of(c.current.keyframe)
        landmarks = c.map if by_flow else None
        state = c.report.located(
            view, status, message, pose, track, pose, timer, inserted, landmarks
        )
        if not c.map.initialized:
            c.look_back.remember(state, view, track)
        return state

    def _initialize(
        self, view: View, track: Track, first: FirstMotion, frame: Frame, timer: StageTimer
    ) -> OdometryState | None:
        """Initialize the map from two views; None if too few landmarks can be triangulated."""
        c = self._context
        made = triangulate_first_landmarks(c.map, view, track, first, c.history)
        if made is None:
            return None
        reference, (keyframe, pose) = track.reference, made
        keyframe.covariance = covariance.chained(reference.covariance, pose)
        c.map.initialized = True
        c.check.restart()
        c.rescale(c.scale.measure(keyframe, reference, frame.depth, about=reference.center))
        c.refer_to(keyframe)
        c.history.depth = float(np.median(c.map.depths(keyframe, keyframe.landmark_ids)))
        if not c.scale.is_awaited:
            c.revised += c.look_back.locate(c.map, c.report)
        timer.lap("map")
        return c.report.located(view, OK, "", keyframe, track, pose, timer, True)

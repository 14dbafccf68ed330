"""The cheap path of a frame: points of the keyframe are followed; keyframes go to the mapper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lgc_ros.features.base import Features
from lgc_ros.images.frame import Frame
from lgc_ros.odometry.context import Context
from lgc_ros.odometry.flow_tracking import Followed
from lgc_ros.odometry.keyframe_policy import few_points_left
from lgc_ros.odometry.map import View
from lgc_ros.odometry.mapper import KeyframeRequest, Mapper
from lgc_ros.odometry.state import NO_MOTION, OK, OdometryState
from lgc_ros.odometry.tracking import Pose, Reference
from lgc_ros.odometry.unmapped_tracking import UnmappedTracking
from lgc_ros.runtime.stage_timer import StageTimer

# When a keyframe is tried again after keypoints did not confirm its pose.
RETRY_NS = 100_000_000


class FlowPath:
    """Tracks frames by optical flow, as long as that works.

    Args:
        background: map keyframes in a thread of their own.

    Attributes:
        mapper: inserts the keyframes.
    """

    def __init__(self, context: Context, unmapped: UnmappedTracking, background: bool) -> None:
        c = self._context = context
        self._unmapped, self._background = unmapped, background
        self.mapper = Mapper(c.map, c.match, c.check, c.scale, c.refinement, c.options)
        self._keyframe_after_ns = 0

    def track(
        self, frame_view: View, frame: Frame, extract: Callable[[], Features], timer: StageTimer
    ) -> OdometryState | None:
        """Follow points of the keyframe into the frame; None if the frame must be matched."""
        c = self._context
        predicted = c.history.predicted(frame.stamp_ns)
        followed = c.follower.follow(frame_view, predicted, c.map.initialized)
        timer.lap("flow")
        if followed is None:
            return None
        view, track, landmarks = followed.view, followed.track, c.follower.landmarks
        if track.pose is None or landmarks is None:
            return self._unmapped.track(view, track, frame, timer, by_flow=True)
        pose, status = c.gate(view, track, landmarks)
        inserted = False
        if status != NO_MOTION and self._followed_keyframe_is_due(followed, pose, frame):
            reference, depth = c.current.keyframe, frame.depth
            # Not the held pose: in a fast turn, motion within the noise adds up.
            request = KeyframeRequest(reference, frame_view, extract, track.pose, depth)
            if self._background:
                self.mapper.start(request)
                inserted = True
            else:
                mapped = self.mapper.insert(request, timer)
                if mapped is not None:
                    c.follow_correction(mapped.correction)
                    c.refer_to(mapped.keyframe)
                    view, track = mapped.view, mapped.track
                    return c.tracked(view, track, mapped.keyframe, status, timer, True)
                self._give_up_keyframe(request)
        if status == OK:
            c.gate.anchor_at(pose)
        return c.tracked(view, replace(track, pose=pose), pose, status, timer, inserted, landmarks)

    def _followed_keyframe_is_due(self, followed: Followed, pose: Pose, frame: Frame) -> bool:
        c = self._context
        if self.mapper.busy or frame.stamp_ns < self._keyframe_after_ns:
            return False
        return c.keyframe_is_due(
            followed.view,
            followed.track,
            pose,
            frame,
            few_points_left(followed.overlap, c.follower.share_left, c.options),
            c.follower.landmarks or c.map,
        )

    def take_over_map(self, wait: bool) -> None:
        """Go on with what the background has mapped since the last frame, if it is ready."""
        c = self._context
        finished = self.mapper.finished(wait)
        if finished is not None:
            request, mapped = finished
            if mapped is None:
                self._give_up_keyframe(request)
            else:
                c.follow_correction(mapped.correction)
                T_nw = mapped.motion_of_world(request)
                c.history.move(T_nw)
                c.gate.move(T_nw)
                c.reference = Reference(mapped.keyframe)
                c.radial = mapped.keyframe.view.camera.radial
                c.follower.follow_landmarks_of(mapped.keyframe, c.map)
        if c.reference is not None and not self.mapper.busy:
            c.use_late_scale_measurements()

    def _give_up_keyframe(self, request: KeyframeRequest) -> None:
        """Wait a moment after keypoints did not confirm a pose; stop if they refute the map."""
        self._keyframe_after_ns = request.frame.stamp_ns + RETRY_NS
        if not self._context.check.trusts_map:
            self._context.follower.stop()

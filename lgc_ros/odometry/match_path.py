"""The thorough path of a frame: its keypoints are matched to keyframes, across any baseline."""

from __future__ import annotations

from dataclasses import replace

from lgc_ros.images.frame import Frame
from lgc_ros.odometry.context import Context
from lgc_ros.odometry.keyframe_policy import few_matches_left
from lgc_ros.odometry.map import Keyframe, View
from lgc_ros.odometry.mapping import insert_keyframe
from lgc_ros.odometry.state import INITIALIZING, NO_MOTION, OK, OdometryState
from lgc_ros.odometry.tracking import MIN_LANDMARKS, Reference, Track
from lgc_ros.odometry.unmapped_tracking import UnmappedTracking
from lgc_ros.runtime.stage_timer import StageTimer

# Re-initialization needs this many times the keypoints of a tracked frame.
REINITIALIZATION_FACTOR = 5


class MatchPath:
    """Tracks frames by matching: the first one, those that flow has lost, or all of them."""

    def __init__(self, context: Context, unmapped: UnmappedTracking) -> None:
        self._context, self._unmapped = context, unmapped

    def track(self, view: View, frame: Frame, timer: StageTimer) -> OdometryState:
        """Match the frame to keyframes, across any baseline that the filter can bridge."""
        c = self._context
        if c.reference is None:
            return self._begin(view, timer)
        track = self._match_to_map(view, timer)
        if not c.check.accepts(view, track):
            track = replace(track, pose=None)
        if not c.check.trusts_map:
            c.map.forget_landmarks()
            c.follower.stop()
        if track.pose is not None:
            return self._track(view, track, frame, timer)
        if c.check.trusts_two_views(track):
            state = self._unmapped.track(view, track, frame, timer)
            assert state is not None  # only optical flow leaves frames to matching
            return state
        if self._is_lost_for_long(view):
            return self._reinitialize(view, track, timer)
        return c.hold(frame.stamp_ns, self._why_not_tracked(track), track, timer)

    def _begin(self, view: View, timer: StageTimer) -> OdometryState:
        """Make the view the first keyframe, at the last known pose."""
        c = self._context
        if len(view.x) < c.options.min_inliers:
            message = f"only {len(view.x)} keypoints, too few to initialize; is the image blank?"
            return c.hold(view.stamp_ns, message, None, timer)
        R_cw = c.history.T_wc[:3, :3].T
        keyframe = Keyframe(view, R_cw, -R_cw @ c.history.T_wc[:3, 3])
        if c.history.last is not None:
            keyframe.covariance = c.drift(view.stamp_ns)
        c.map.add_keyframe(keyframe)
        c.refer_to(keyframe)
        c.look_back.forget()
        return c.report.located(
            view, INITIALIZING, "first frame", keyframe, None, None, timer, True
        )

    def _match_to_map(self, view: View, timer: StageTimer) -> Track:
        """Match to the current keyframe and, if that gives no pose, to the latest others."""
        c = self._context
        current = c.current.keyframe
        best = c.match(view, current, c.map, timer)
        if c.check.confirms(view, best) or len(view.x) < c.options.min_inliers:
            return best
        # A good match without landmarks is no failure: the camera may have turned away from them.
        matched = c.check.trusts_two_views(best)
        if matched and not c.map.initialized:
            return best
        others = c.map.latest_with_landmarks(MIN_LANDMARKS, other_than=current)
        for keyframe in others[: 1 if matched else c.options.retry_keyframes]:
            track = c.match(view, keyframe, c.map, timer)
            if c.check.confirms(view, track):
                c.reference = Reference(keyframe)
                c.follower.follow_landmarks_of(keyframe, c.map)
                return track
        return best

    def _track(self, view: View, track: Track, frame: Frame, timer: StageTimer) -> OdometryState:
        """A view located by landmarks: gate its motion, insert a keyframe if one is due."""
        c = self._context
        pose, status = c.gate(view, track, c.map)
        c.current.saw(track)
        low = few_matches_left(track, c.current.most_matches, c.options)
        if status != NO_MOTION and c.keyframe_is_due(view, track, pose, frame, low, c.map):
            assert track.pose is not None  # it was gated
            inserted = insert_keyframe(c.map, view, track, track.pose, c.options)
            c.refinement.update(c.map)
            correction = c.scale.measure(
                inserted, track.reference, frame.depth, about=inserted.center
            )
            c.rescale(correction)
            c.refer_to(inserted)
            timer.lap("map")
            return c.tracked(view, track, inserted, status, timer, True)
        if status == OK:
            c.gate.anchor_at(pose)
        return c.tracked(view, replace(track, pose=pose), pose, status, timer)

    def _is_lost_for_long(self, view: View) -> bool:
        c = self._context
        o, history = c.options, c.history
        return history.failures > o.lost_after and history.lost_s(view.stamp_ns) > o.restart_s

    def _reinitialize(self, view: View, track: Track, timer: StageTimer) -> OdometryState:
        """Begin a new map at the held pose, since no known view has come back."""
        c = self._context
        if len(view.x) < REINITIALIZATION_FACTOR * c.options.min_inliers:
            message = f"only {len(view.x)} keypoints, too few to re-initialize"
            return c.hold(view.stamp_ns, message, track, timer)
        state = self._begin(view, timer)
        c.history.failures = 0
        return state

    def _why_not_tracked(self, track: Track) -> str:
        c = self._context
        if track.result.failure:
            return track.result.failure
        if c.check.agrees(track):
            return "the landmarks in view do not agree on a pose"
        return f"only {len(track.index0)} of {track.result.kept.sum()} matches agree on a pose"

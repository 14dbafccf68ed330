"""Visual odometry: frames in, poses with covariance and status out.

Tracking is cheap and runs on every frame: landmarks of the current keyframe are followed by
optical flow. Mapping is thorough and runs on keyframes: keypoints are extracted and matched, the
two-view method (the learned filter, or a baseline) rejects outliers, new landmarks are
triangulated, and the latest keyframes are refined together. Where optical flow fails, after a
fast turn or dropped frames, the frame itself is matched to a keyframe. With `tracking: match`
every frame is.

There are no files and no ROS here. The same frames always give the same result, unless keyframes
are mapped in the background.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from lgc_ros.errors import CameraError, LgcError
from lgc_ros.features.base import Extractor, Features, make_extractor
from lgc_ros.features.image_sharpness import with_sharpness
from lgc_ros.features.keypoints import to_gray
from lgc_ros.filter.correspondence_filter import CorrespondenceFilter
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import Frame
from lgc_ros.odometry import covariance
from lgc_ros.odometry.bundle_adjustment import warm_up
from lgc_ros.odometry.flow_tracking import Followed, with_two_view_pose
from lgc_ros.odometry.history import PoseHistory
from lgc_ros.odometry.initialization import (
    FirstMotion,
    first_motion,
    triangulate_first_landmarks,
)
from lgc_ros.odometry.keyframe_matching import KeyframeMatcher
from lgc_ros.odometry.keyframe_policy import (
    few_matches_left,
    few_points_in_view,
    keyframe_is_due,
)
from lgc_ros.odometry.look_back import LookBack
from lgc_ros.odometry.map import (
    Keyframe,
    LandmarkMap,
    View,
    WheelPose,
    make_view,
    with_keypoints,
)
from lgc_ros.odometry.map_check import MapCheck
from lgc_ros.odometry.mapper import KeyframeRequest, Mapper
from lgc_ros.odometry.mapping import (
    insert_keyframe,
    insert_rotated_keyframe,
    locate_earlier_keyframes,
)
from lgc_ros.odometry.metric_scale import Correction, MetricScale
from lgc_ros.odometry.motion_gate import MotionGate, pure_rotation, rotated_pose
from lgc_ros.odometry.options import FLOW, OdometryOptions
from lgc_ros.odometry.patch_alignment import warm_up as warm_up_flow
from lgc_ros.odometry.point_follower import PointFollower
from lgc_ros.odometry.state import (
    DEGENERATE,
    INITIALIZING,
    NO_MOTION,
    OK,
    OdometryState,
)
from lgc_ros.odometry.state_report import StateReport
from lgc_ros.odometry.tracking import MIN_LANDMARKS, Pose, Reference, Track
from lgc_ros.runtime.stage_timer import StageTimer
from lgc_ros.runtime.threads import limit_threads

# Motion that a pure rotation may hide, and how far points may be before their depth is known.
HIDDEN_MOTION_PX = 3.0
UNKNOWN_DEPTH = 10.0
# Re-initialization needs this many times the keypoints of a tracked frame.
REINITIALIZATION_FACTOR = 5
# After an attempt has failed: when the next keyframe is tried, and the growth of parallax after
# which the map is initialized from optical flow.
RETRY_NS = 100_000_000
RETRY_PARALLAX = 1.2


class VisualOdometry:
    """Feed it frames in order; it answers each with a state.

    Args:
        options: settings.
        extract: extractor to use instead of the one that the options name.
        background: map keyframes in a thread of their own while tracking goes on, for live use.

    Attributes:
        map: keyframes and landmarks.
        extract: the extractor.
    """

    def __init__(
        self,
        options: OdometryOptions | None = None,
        extract: Extractor | None = None,
        background: bool = False,
    ) -> None:
        self.options = o = options or OdometryOptions()
        limit_threads(o.threads)
        self.extract = with_sharpness(
            extract or make_extractor(o.features, o.max_keypoints, o.spread)
        )
        self._background = background
        self._match = KeyframeMatcher(o)
        warm_up()
        warm_up_flow()
        self._start()

    @property
    def filter(self) -> CorrespondenceFilter | None:
        """The learned filter, if the method has one."""
        return self._match.solver.filter

    @property
    def scale_sigma(self) -> float:
        """Relative standard deviation of the scale; 1 while no source has measured it."""
        return self._scale.sigma

    def scale_warning(self) -> str:
        """What the scale source lacks if it could rarely measure; empty otherwise."""
        return self._scale.warning()

    def mapping_report(self) -> dict[str, str]:
        """Tracking, number of keyframes, time since the last one, and what the mapper does."""
        last, keyframes = self._history.last, self.map.keyframes[-1:]
        age_s = (last.stamp_ns - keyframes[0].view.stamp_ns) * 1e-9 if last and keyframes else 0.0
        return {
            "tracking": self.options.tracking,
            "keyframes": str(len(self.map.keyframes)),
            "last_keyframe_s": f"{age_s:.2f}",
            "mapper": "busy" if self._mapper.busy else "idle",
        }

    def reset(self) -> None:
        """Forget everything but the settings; the next frame is the origin."""
        self.close()
        self._start()

    def _start(self) -> None:
        o = self.options
        self.map = LandmarkMap(o.sigma_px, o.max_keyframes)
        self._reference: Reference | None = None
        self._scale = MetricScale(o.scale, self.map)
        self._gate = MotionGate(o.still_px)
        self._check = MapCheck(o)
        self._history = PoseHistory()
        self._report = StateReport(self.map, self._scale, self._history, o.lost_after)
        self._follower = PointFollower()
        self._mapper = Mapper(self.map, self._match, self._check, self._scale, o)
        self._look_back = LookBack(o)
        self._revised: list[OdometryState] = []
        # No keyframe before this stamp, and no initialization below this parallax: the last
        # attempt has failed.
        self._keyframe_after_ns = 0
        self._retry_parallax_deg = 0.0

    def close(self) -> None:
        """End the background thread, if there is one."""
        self._mapper.close()

    def take_revised(self) -> list[OdometryState]:
        """States of earlier frames that could only be located now, each once."""
        revised, self._revised = self._revised, []
        return revised

    def process(
        self,
        frame: Frame,
        T_oc: WheelPose = None,
        features: Callable[[], Features] | None = None,
    ) -> OdometryState:
        """The state after this frame; for a frame that cannot be used, the state says why.

        Args:
            frame: image with camera and stamp; newer than the frame before.
            T_oc: (4, 4) pose of the camera in the wheel odometry at the frame's stamp, for the
                scale source `odom`. If its samples may arrive later than the frame: a function
                that returns None until then.
            features: returns the keypoints of the image, if they are extracted elsewhere (see
                prefetch.py).

        Raises:
            CameraError: the frame has no camera.
        """
        timer = StageTimer()
        camera = frame.camera
        if camera is None:
            raise CameraError("the frame has no camera; give its calibration with --camera")
        refusal = self._history.refusal(frame)
        if refusal is not None:
            return refusal
        extract = features or partial(self.extract, frame.image)
        try:
            _check_sizes(frame, camera)
            gray = to_gray(frame.image) if self.options.tracking == FLOW else None
            view = make_view(frame.stamp_ns, camera, T_oc, gray)
            self._take_over_map(wait=False)
            state = self._track_by_flow(view, frame, extract, timer)
            if state is not None:
                return state
            self._take_over_map(wait=True)
            view = with_keypoints(view, extract())
        except LgcError as error:
            return self._hold(frame.stamp_ns, str(error), None, timer)
        timer.lap("features")
        return self._track_by_matching(view, frame, timer)

    def _track_by_flow(
        self, frame_view: View, frame: Frame, extract: Callable[[], Features], timer: StageTimer
    ) -> OdometryState | None:
        """Follow points of the keyframe into the frame; None if the frame must be matched."""
        predicted = self._history.predicted(frame.stamp_ns)
        followed = self._follower.follow(frame_view, predicted, self.map.initialized)
        timer.lap("flow")
        if followed is None:
            return None
        view, track, landmarks = followed.view, followed.track, self._follower.landmarks
        if track.pose is None or landmarks is None:
            return self._track_without_landmarks(view, track, frame, timer, by_flow=True)
        pose, status = self._gate(view, track, landmarks)
        inserted = False
        if status != NO_MOTION and self._followed_keyframe_is_due(followed, pose, frame):
            reference, depth = self._current.keyframe, frame.depth
            request = KeyframeRequest(reference, frame_view, extract, pose, depth)
            if self._background:
                self._mapper.start(request)
                inserted = True
            else:
                mapped = self._mapper.insert(request, timer)
                if mapped is not None:
                    self._follow_correction(mapped.correction)
                    self._refer_to(mapped.keyframe)
                    view, track = mapped.view, mapped.track
                    return self._tracked(view, track, mapped.keyframe, status, timer, True)
                self._give_up_keyframe(request)
        if status == OK:
            self._gate.anchor_at(pose)
        return self._tracked(
            view, replace(track, pose=pose), pose, status, timer, inserted, landmarks
        )

    def _followed_keyframe_is_due(self, followed: Followed, pose: Pose, frame: Frame) -> bool:
        if self._mapper.busy or frame.stamp_ns < self._keyframe_after_ns:
            return False
        return self._keyframe_is_due(
            followed.view,
            followed.track,
            pose,
            frame,
            few_points_in_view(followed.overlap, self.options),
            self._follower.landmarks or self.map,
        )

    def _take_over_map(self, wait: bool) -> None:
        """Go on with what the background has mapped since the last frame, if it is ready."""
        finished = self._mapper.finished(wait)
        if finished is not None:
            request, mapped = finished
            if mapped is None:
                self._give_up_keyframe(request)
            else:
                self._follow_correction(mapped.correction)
                T_nw = mapped.motion_of_world(request)
                self._history.move(T_nw)
                self._gate.move(T_nw)
                self._reference = Reference(mapped.keyframe)
                self._follower.follow_landmarks_of(mapped.keyframe, self.map)
        if self._reference is not None and not self._mapper.busy:
            self._use_late_scale_measurements()

    def _give_up_keyframe(self, request: KeyframeRequest) -> None:
        """Wait a moment after keypoints did not confirm a pose; stop if they refute the map."""
        self._keyframe_after_ns = request.frame.stamp_ns + RETRY_NS
        if not self._check.trusts_map:
            self._follower.stop()

    def _track_by_matching(self, view: View, frame: Frame, timer: StageTimer) -> OdometryState:
        """Match the frame to keyframes, across any baseline that the filter can bridge."""
        if self._reference is None:
            return self._begin(view, timer)
        track = self._match_to_map(view, timer)
        if not self._check.accepts(view, track):
            self.map.forget_landmarks()
            self._follower.stop()
            track = replace(track, pose=None)
        if track.pose is not None:
            return self._track(view, track, track.pose, frame, timer)
        if self._check.trusts_two_views(track):
            state = self._track_without_landmarks(view, track, frame, timer)
            assert state is not None  # only optical flow leaves frames to matching
            return state
        if self._is_lost_for_long(view):
            return self._reinitialize(view, track, timer)
        return self._hold(frame.stamp_ns, self._why_not_tracked(track), track, timer)

    @property
    def _current(self) -> Reference:
        """The reference, which exists from the first keyframe on."""
        assert self._reference is not None
        return self._reference

    def _begin(self, view: View, timer: StageTimer) -> OdometryState:
        """Make the view the first keyframe, at the last known pose."""
        if len(view.x) < self.options.min_inliers:
            message = f"only {len(view.x)} keypoints, too few to initialize; is the image blank?"
            return self._hold(view.stamp_ns, message, None, timer)
        R_cw = self._history.T_wc[:3, :3].T
        keyframe = Keyframe(view, R_cw, -R_cw @ self._history.T_wc[:3, 3])
        if self._history.last is not None:
            keyframe.covariance = self._drift(view.stamp_ns)
        self.map.add_keyframe(keyframe)
        self._refer_to(keyframe)
        self._look_back.forget()
        return self._report.located(
            view, INITIALIZING, "first frame", keyframe, None, None, timer, True
        )

    def _match_to_map(self, view: View, timer: StageTimer) -> Track:
        """Match to the current keyframe and, if that gives no pose, to the latest others."""
        current = self._current.keyframe
        best = self._match(view, current, self.map, timer)
        if best.pose is not None or len(view.x) < self.options.min_inliers:
            return best
        # A good match without landmarks is no failure: the camera may have turned away from them.
        matched = self._check.trusts_two_views(best)
        if matched and not self.map.initialized:
            return best
        others = [
            keyframe
            for keyframe in self.map.keyframes[::-1]
            if keyframe is not current
            and np.count_nonzero(keyframe.landmark_ids >= 0) >= MIN_LANDMARKS
        ]
        for keyframe in others[: 1 if matched else self.options.retry_keyframes]:
            track = self._match(view, keyframe, self.map, timer)
            if track.pose is not None:
                self._reference = Reference(keyframe)
                self._follower.follow_landmarks_of(keyframe, self.map)
                return track
        return best

    def _track(
        self, view: View, track: Track, found: Pose, frame: Frame, timer: StageTimer
    ) -> OdometryState:
        """A view located by landmarks: gate its motion, insert a keyframe if one is due."""
        pose, status = self._gate(view, track, self.map)
        self._current.saw(track)
        low = few_matches_left(track, self._current.most_matches, self.options)
        if status != NO_MOTION and self._keyframe_is_due(view, track, pose, frame, low, self.map):
            inserted = insert_keyframe(self.map, view, track, pose, self.options)
            correction = self._scale.measure(
                inserted, track.reference, frame.depth, about=inserted.center
            )
            self._rescale(correction)
            self._refer_to(inserted)
            timer.lap("map")
            return self._tracked(view, track, inserted, status, timer, True)
        if status == OK:
            self._gate.anchor_at(pose)
        return self._tracked(view, replace(track, pose=pose), pose, status, timer)

    def _keyframe_is_due(
        self,
        view: View,
        track: Track,
        pose: Pose,
        frame: Frame,
        overlap_is_low: bool,
        landmarks: LandmarkMap,
    ) -> bool:
        o, has_depth = self.options, frame.depth is not None
        return self._scale.wants_keyframe(
            view, track, pose, landmarks, has_depth, o.init_parallax_deg
        ) or keyframe_is_due(view, track, pose, landmarks, overlap_is_low, o)

    def _tracked(
        self,
        view: View,
        track: Track,
        where: Pose | Keyframe,
        status: str,
        timer: StageTimer,
        keyframe: bool = False,
        landmarks: LandmarkMap | None = None,
    ) -> OdometryState:
        """The answer to a frame located by landmarks."""
        pose = track.pose
        assert pose is not None
        self._history.failures = 0
        ids = track.reference.landmark_ids[track.index0[pose.used]]
        depths = (landmarks or self.map).depths(where, ids)
        if len(depths):
            self._history.depth = float(np.median(depths))
        return self._report.located(
            view, status, "", where, track, pose, timer, keyframe, landmarks
        )

    def _track_without_landmarks(
        self, view: View, track: Track, frame: Frame, timer: StageTimer, by_flow: bool = False
    ) -> OdometryState | None:
        """A view matched to a keyframe without enough landmarks: rotate, or initialize the map.

        Returns:
            None if the points were followed by flow, but a keyframe is needed.
        """
        o, focal, depth = self.options, view.camera.focal, self._history.depth
        rotation = pure_rotation(view, track, self.map.sigma(view.camera), o.still_px)
        self._history.failures = 0
        self._current.saw(track)
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
        runs_out = few_matches_left(track, self._current.most_matches, o)
        needed_deg = o.init_parallax_deg / (2 if runs_out else 1)
        x1 = view.x[track.index1]
        first = first_motion(track, x1, self._current.views, needed_deg, o.threshold_px / focal)
        self._current.remember(track.candidates)
        status = DEGENERATE if self.map.initialized else INITIALIZING
        if first.parallax_deg < needed_deg:
            message = f"parallax of {first.parallax_deg:.2f} degrees is too small for landmarks"
        elif not first.is_clear:
            status, message = DEGENERATE, "two motions explain the views, as in front of a plane"
        elif by_flow:
            if first.parallax_deg > self._retry_parallax_deg:
                self._retry_parallax_deg = RETRY_PARALLAX * first.parallax_deg
                return None
            message = "too few points can be triangulated"
        else:
            state = self._initialize(view, track, first, frame, timer)
            if state is not None:
                return state
            message = "too few points can be triangulated"
        # Translation may be mistaken for a rotation as large as the parallax.
        sigma_rad, sigma_position = np.radians(first.parallax_deg), depth or 1.0
        center = self._history.T_wc[:3, 3]
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
        low = few_matches_left(track, self._current.most_matches, self.options)
        inserted = status != NO_MOTION and low
        if inserted and by_flow:
            return None
        self._gate.anchor_at(pose)
        if inserted:
            self._reference = Reference(insert_rotated_keyframe(self.map, view, track, pose))
        if not by_flow and (inserted or self._follower.anchor is None):
            self._follower.follow_keypoints_of(self._current.keyframe)
        landmarks = self.map if by_flow else None
        state = self._report.located(
            view, status, message, pose, track, pose, timer, inserted, landmarks
        )
        if not self.map.initialized:
            self._look_back.remember(state, view, track)
        return state

    def _initialize(
        self, view: View, track: Track, first: FirstMotion, frame: Frame, timer: StageTimer
    ) -> OdometryState | None:
        """Initialize the map from two views; None if too few landmarks can be triangulated."""
        made = triangulate_first_landmarks(self.map, view, track, first, self._history)
        if made is None:
            return None
        reference, (keyframe, pose) = track.reference, made
        origin = reference
        if not self.map.initialized:
            origin = locate_earlier_keyframes(self.map, reference, self._match, timer)
        keyframe.covariance = covariance.chained(reference.covariance, pose)
        self.map.initialized = True
        self._check.restart()
        self._rescale(self._scale.measure(keyframe, reference, frame.depth, about=origin.center))
        self._refer_to(keyframe)
        self._history.depth = float(np.median(self.map.depths(keyframe, keyframe.landmark_ids)))
        if not self._scale.is_awaited:
            self._revised += self._look_back.locate(self.map, self._report)
        timer.lap("map")
        return self._report.located(view, OK, "", keyframe, track, pose, timer, True)

    def _refer_to(self, keyframe: Keyframe) -> None:
        """Track the next views by a new keyframe, and measure motion from it."""
        self._reference = Reference(keyframe)
        self._gate.anchor_at(keyframe)
        self._retry_parallax_deg = 0.0
        self._follower.follow_landmarks_of(keyframe, self.map)
        if self._follower.anchor is None and not self.map.initialized:
            self._follower.follow_keypoints_of(keyframe)

    def _use_late_scale_measurements(self) -> None:
        for keyframe, previous in self._scale.late_pairs(self._current.keyframe):
            here = self._history.T_wc[:3, 3]
            self._rescale(self._scale.measure_late(keyframe, previous, here))

    def _rescale(self, correction: Correction) -> None:
        if correction.factor != 1.0:
            self.map.rescale(*correction)
            self._follow_correction(correction)

    def _follow_correction(self, correction: Correction) -> None:
        """Tracking follows a change of scale of the map."""
        if correction.factor == 1.0:
            return
        self._gate.rescale(*correction)
        self._history.rescale(*correction)
        self._follower.rescale(*correction)
        self._scale.note(correction)

    def _is_lost_for_long(self, view: View) -> bool:
        o, history = self.options, self._history
        return history.failures > o.lost_after and history.lost_s(view.stamp_ns) > o.restart_s

    def _reinitialize(self, view: View, track: Track, timer: StageTimer) -> OdometryState:
        """Begin a new map at the held pose, since no known view has come back."""
        if len(view.x) < REINITIALIZATION_FACTOR * self.options.min_inliers:
            message = f"only {len(view.x)} keypoints, too few to re-initialize"
            return self._hold(view.stamp_ns, message, track, timer)
        state = self._begin(view, timer)
        self._history.failures = 0
        return state

    def _why_not_tracked(self, track: Track) -> str:
        if track.result.failure:
            return track.result.failure
        if self._check.agrees(track):
            return "the landmarks in view do not agree on a pose"
        return f"only {len(track.index0)} of {track.result.kept.sum()} matches agree on a pose"

    def _hold(
        self, stamp_ns: int, message: str, track: Track | None, timer: StageTimer
    ) -> OdometryState:
        """Answer a frame without a pose with the last one."""
        return self._report.held(stamp_ns, message, track, timer, self._drift(stamp_ns))

    def _drift(self, stamp_ns: int) -> np.ndarray:
        base = self._reference.keyframe.covariance if self._reference else np.zeros((6, 6))
        return self._history.drift(stamp_ns, base)


def _check_sizes(frame: Frame, camera: Camera) -> None:
    """Raise unless image, depth and camera fit together."""
    name = frame.name or "the image"
    camera.check_image(frame.image, name)
    if frame.depth is not None and frame.depth.shape != frame.image.shape[:2]:
        raise CameraError(
            f"the depth image of {name} has another size than the image; register it to the image"
        )

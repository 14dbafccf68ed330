"""Visual odometry: frames in, poses with covariance and status out.

Each frame is matched to a keyframe. The two-view method (the learned filter, or a baseline)
rejects outliers, and the landmarks that the keyframe's keypoints show give the pose in the scale
of the map. New keyframes triangulate new landmarks, and the latest keyframes are refined together.

There are no files and no ROS here, and the same frames always give the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from lgc_ros.errors import CameraError, LgcError
from lgc_ros.features.base import Extractor, Features, make_extractor
from lgc_ros.features.image_sharpness import with_sharpness
from lgc_ros.filter.correspondence_filter import CorrespondenceFilter
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import Frame
from lgc_ros.odometry import covariance
from lgc_ros.odometry.bundle_adjustment import warm_up
from lgc_ros.odometry.history import PoseHistory
from lgc_ros.odometry.initialization import (
    FirstMotion,
    first_motion,
    triangulate_first_landmarks,
)
from lgc_ros.odometry.keyframe_policy import keyframe_is_due, overlap_is_low
from lgc_ros.odometry.map import Keyframe, LandmarkMap, View, WheelPose, make_view
from lgc_ros.odometry.map_check import MapCheck
from lgc_ros.odometry.mapping import (
    insert_keyframe,
    insert_rotated_keyframe,
    locate_earlier_keyframes,
)
from lgc_ros.odometry.metric_scale import Correction, MetricScale
from lgc_ros.odometry.motion_gate import MotionGate, pure_rotation, rotated_pose
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.state import (
    DEGENERATE,
    INITIALIZING,
    NO_MOTION,
    OK,
    OdometryState,
)
from lgc_ros.odometry.state_report import StateReport
from lgc_ros.odometry.tracking import MIN_LANDMARKS, KeyframeMatcher, Pose, Reference, Track
from lgc_ros.runtime.stage_timer import StageTimer
from lgc_ros.runtime.threads import limit_threads

# Motion that a pure rotation may hide, and how far points may be before their depth is known.
HIDDEN_MOTION_PX = 3.0
UNKNOWN_DEPTH = 10.0
# Re-initialization needs this many times the keypoints of a tracked frame.
REINITIALIZATION_FACTOR = 5


class VisualOdometry:
    """Feed it frames in order; it answers each with a state.

    Args:
        options: settings.
        extract: extractor to use instead of the one that the options name.

    Attributes:
        map: keyframes and landmarks.
        extract: the extractor.
    """

    def __init__(
        self, options: OdometryOptions | None = None, extract: Extractor | None = None
    ) -> None:
        self.options = o = options or OdometryOptions()
        limit_threads(o.threads)
        self.extract = with_sharpness(
            extract or make_extractor(o.features, o.max_keypoints, o.spread)
        )
        self._match = KeyframeMatcher(o)
        warm_up()
        self.reset()

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

    def reset(self) -> None:
        """Forget everything but the settings; the next frame is the origin."""
        o = self.options
        self.map = LandmarkMap(o.sigma_px, o.max_keyframes)
        self._reference: Reference | None = None
        self._scale = MetricScale(o.scale, self.map)
        self._gate = MotionGate(o.still_px)
        self._check = MapCheck(o)
        self._history = PoseHistory()
        self._report = StateReport(self.map, self._scale, self._history, o.lost_after)

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
        try:
            _check_sizes(frame, camera)
            extract = features or partial(self.extract, frame.image)
            view = make_view(frame.stamp_ns, camera, T_oc, extract())
        except LgcError as error:
            return self._hold(frame.stamp_ns, str(error), None, timer)
        timer.lap("features")
        if self._reference is None:
            return self._begin(view, timer)
        self._use_late_scale_measurements()
        track = self._match_to_map(view, timer)
        if not self._check.accepts(view, track):
            self.map.forget_landmarks()
            track = replace(track, pose=None)
        if track.pose is not None:
            return self._track(view, track, frame, timer)
        if self._check.trusts_two_views(track):
            return self._track_without_landmarks(view, track, frame, timer)
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
                return track
        return best

    def _track(self, view: View, track: Track, frame: Frame, timer: StageTimer) -> OdometryState:
        """A view located by landmarks: gate its motion, insert a keyframe if one is due."""
        pose, status = self._gate(view, track, self.map)
        self._history.failures = 0
        self._current.saw(track)
        inserted = None
        if status != NO_MOTION and self._keyframe_is_due(view, track, pose, frame):
            inserted = insert_keyframe(self.map, view, track, pose, self.options)
            correction = self._scale.measure(
                inserted, track.reference, frame.depth, about=inserted.center
            )
            self._rescale(correction)
            self._refer_to(inserted)
            timer.lap("map")
        if status == OK and inserted is None:
            self._gate.anchor_at(pose)
        where = inserted or pose
        depths = self.map.depths(where, track.reference.landmark_ids[track.index0[pose.used]])
        if len(depths):
            self._history.depth = float(np.median(depths))
        return self._report.located(
            view, status, "", where, track, pose, timer, inserted is not None
        )

    def _keyframe_is_due(self, view: View, track: Track, pose: Pose, frame: Frame) -> bool:
        o, most = self.options, self._current.most_matches
        return self._scale.wants_keyframe(
            view, track, pose, frame, o.init_parallax_deg
        ) or keyframe_is_due(view, track, pose, self.map, most, o)

    def _track_without_landmarks(
        self, view: View, track: Track, frame: Frame, timer: StageTimer
    ) -> OdometryState:
        """A view matched to a keyframe without enough landmarks: rotate, or initialize the map."""
        o, focal, depth = self.options, view.camera.focal, self._history.depth
        rotation = pure_rotation(view, track, self.map.sigma(view.camera), o.still_px)
        self._history.failures = 0
        self._current.saw(track)
        if rotation is not None:
            R_10, status = rotation
            hidden_rad = HIDDEN_MOTION_PX / focal
            sigma_position = hidden_rad * (depth or UNKNOWN_DEPTH)
            pose = rotated_pose(track, R_10, track.reference.center, hidden_rad, sigma_position)
            return self._rotate(view, track, pose, status, "", timer)
        # Less parallax is accepted before the keyframe, and with it the baseline, is given up.
        runs_out = overlap_is_low(track, self._current.most_matches, o)
        needed_deg = o.init_parallax_deg / (2 if runs_out else 1)
        x1 = view.x[track.index1]
        first = first_motion(track, x1, self._current.views, needed_deg, o.threshold_px / focal)
        self._current.remember(track.candidates)
        status = DEGENERATE if self.map.initialized else INITIALIZING
        if first.parallax_deg < needed_deg:
            message = f"parallax of {first.parallax_deg:.2f} degrees is too small for landmarks"
        elif not first.is_clear:
            status, message = DEGENERATE, "two motions explain the views, as in front of a plane"
        else:
            state = self._initialize(view, track, first, frame, timer)
            if state is not None:
                return state
            message = "too few points can be triangulated"
        # Translation may be mistaken for a rotation as large as the parallax.
        sigma_rad, sigma_position = np.radians(first.parallax_deg), depth or 1.0
        center = self._history.T_wc[:3, 3]
        pose = rotated_pose(track, first.motion.R_10, center, sigma_rad, sigma_position)
        return self._rotate(view, track, pose, status, message, timer)

    def _rotate(
        self, view: View, track: Track, pose: Pose, status: str, message: str, timer: StageTimer
    ) -> OdometryState:
        """A view whose position is held; it becomes a keyframe before the matches run out."""
        self._gate.anchor_at(pose)
        low = overlap_is_low(track, self._current.most_matches, self.options)
        inserted = status != NO_MOTION and low
        if inserted:
            self._reference = Reference(insert_rotated_keyframe(self.map, view, track, pose))
        return self._report.located(view, status, message, pose, track, pose, timer, inserted)

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
        timer.lap("map")
        return self._report.located(view, OK, "", keyframe, track, pose, timer, True)

    def _refer_to(self, keyframe: Keyframe) -> None:
        """Match the next views to a new keyframe, and measure motion from it."""
        self._reference = Reference(keyframe)
        self._gate.anchor_at(keyframe)

    def _use_late_scale_measurements(self) -> None:
        for keyframe, previous in self._scale.late_pairs(self._current.keyframe):
            here = self._history.T_wc[:3, 3]
            self._rescale(self._scale.measure_late(keyframe, previous, here))

    def _rescale(self, correction: Correction) -> None:
        if correction.factor == 1.0:
            return
        for part in (self.map, self._gate, self._history):
            part.rescale(*correction)
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

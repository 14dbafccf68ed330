"""What the parts of odometry share: settings, map, reference keyframe, history."""

from __future__ import annotations

import numpy as np

from lgc_ros.images.frame import Frame
from lgc_ros.odometry.camera_refinement import CameraRefinement
from lgc_ros.odometry.flow_tracking import PointFollower
from lgc_ros.odometry.history import PoseHistory, StateReport
from lgc_ros.odometry.keyframe_matching import KeyframeMatcher
from lgc_ros.odometry.keyframe_policy import keyframe_is_due
from lgc_ros.odometry.look_back import LookBack
from lgc_ros.odometry.map import Keyframe, LandmarkMap, View
from lgc_ros.odometry.map_check import MapCheck
from lgc_ros.odometry.metric_scale import Correction, MetricScale
from lgc_ros.odometry.motion_gate import MotionGate
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.state import OdometryState
from lgc_ros.odometry.tracking import Pose, Reference, Track
from lgc_ros.runtime.stage_timer import StageTimer


class Context:
    """The state of odometry since the last reset.

    Attributes:
        reference: the keyframe that views are tracked by; None before the first one.
        radial: correction of the camera that the map has as far as tracking has seen it; the
            refinement may be ahead in the background.
        revised: states of earlier frames that could only be located later.
    """

    def __init__(self, options: OdometryOptions, match: KeyframeMatcher) -> None:
        self.options, self.match = options, match
        self.map = LandmarkMap(options.sigma_px, options.max_keyframes)
        self.reference: Reference | None = None
        self.scale = MetricScale(options.scale, self.map)
        self.refinement = CameraRefinement(options.refine_camera)
        self.radial = 0.0
        self.gate = MotionGate(options.still_px)
        self.check = MapCheck(options)
        self.history = PoseHistory()
        self.report = StateReport(self.map, self.scale, self.history, options.lost_after)
        self.follower = PointFollower()
        self.look_back = LookBack(options)
        self.revised: list[OdometryState] = []

    @property
    def current(self) -> Reference:
        """The reference, which exists from the first keyframe on."""
        assert self.reference is not None
        return self.reference

    def refer_to(self, keyframe: Keyframe) -> None:
        """Track the next views by a new keyframe, and measure motion from it."""
        self.reference = Reference(keyframe)
        self.radial = keyframe.view.camera.radial
        self.gate.anchor_at(keyframe)
        self.follower.follow_landmarks_of(keyframe, self.map)
        if self.follower.anchor is None and not self.map.initialized:
            self.follower.follow_keypoints_of(keyframe)

    def keyframe_is_due(
        self,
        view: View,
        track: Track,
        pose: Pose,
        frame: Frame,
        overlap_is_low: bool,
        landmarks: LandmarkMap,
    ) -> bool:
        """Whether the map or the scale needs a keyframe here."""
        o, has_depth = self.options, frame.depth is not None
        return self.scale.wants_keyframe(
            view, track, pose, landmarks, has_depth, o.init_parallax_deg
        ) or keyframe_is_due(view, track, pose, landmarks, overlap_is_low, o)

    def use_late_scale_measurements(self) -> None:
        """Use wheel odometry that has arrived after its keyframes."""
        for keyframe, previous in self.scale.late_pairs(self.current.keyframe):
            here = self.history.T_wc[:3, 3]
            self.rescale(self.scale.measure_late(keyframe, previous, here))

    def rescale(self, correction: Correction) -> None:
        """Change the scale of the map, and of tracking with it."""
        if correction.factor != 1.0:
            self.map.rescale(*correction)
            self.follow_correction(correction)

    def follow_correction(self, correction: Correction) -> None:
        """Let tracking follow a change of scale of the map."""
        if correction.factor == 1.0:
            return
        self.gate.rescale(*correction)
        self.history.rescale(*correction)
        self.follower.rescale(*correction)
        self.scale.note(correction)

    def tracked(
        self,
        view: View,
        track: Track,
        where: Pose | Keyframe,
        status: str,
        timer: StageTimer,
        keyframe: bool = False,
        landmarks: LandmarkMap | None = None,
    ) -> OdometryState:
        """The answer to a frame located by landmarks, of the map or of the follower."""
        pose = track.pose
        assert pose is not None
        self.history.failures = 0
        ids = track.reference.landmark_ids[track.index0[pose.used]]
        depths = (landmarks or self.map).depths(where, ids)
        if len(depths):
            self.history.depth = float(np.median(depths))
        return self.report.located(
            view, status, "", where, track, pose, timer, keyframe, landmarks
        )

    def hold(
        self, stamp_ns: int, message: str, track: Track | None, timer: StageTimer
    ) -> OdometryState:
        """The answer to a frame without a pose: the last one."""
        return self.report.held(stamp_ns, message, track, timer, self.drift(stamp_ns))

    def drift(self, stamp_ns: int) -> np.ndarray:
        """(6, 6) world covariance of the last pose by now."""
        base = self.reference.keyframe.covariance if self.reference else np.zeros((6, 6))
        return self.history.drift(stamp_ns, base)

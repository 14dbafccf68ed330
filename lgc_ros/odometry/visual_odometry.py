"""Visual odometry: frames in, poses and verdicts out; no files, no ROS, the same result twice.

Each frame is matched to a keyframe some way back. The two-view method (the learned filter, or a
baseline) tells right matches from wrong ones; the landmarks that the keyframe's keypoints show
then give the pose in the map's scale. New keyframes triangulate new landmarks, and the latest
keyframes are refined together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import cv2
import numpy as np

from lgc_ros.errors import CameraError, LgcError
from lgc_ros.features.base import Extractor, Features, make_extractor
from lgc_ros.features.image_sharpness import with_sharpness
from lgc_ros.filter.correspondence_filter import CorrespondenceFilter
from lgc_ros.geometry.epipolar import (
    essential_from_pose,
    parallax_deg,
    rotation_error_deg,
    sampson_distance,
)
from lgc_ros.images.frame import Frame
from lgc_ros.odometry import covariance
from lgc_ros.odometry.bundle_adjustment import warm_up
from lgc_ros.odometry.initialization import (
    Motion,
    ReferenceMatches,
    find_motion,
    motion_covariance,
)
from lgc_ros.odometry.map import NONE, Keyframe, LandmarkMap, Posed, View, motion_between
from lgc_ros.odometry.mapping import connect
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.pose_optimization import fit_rotation, refine_pose
from lgc_ros.odometry.scale import NEEDS, ScaleEstimator, ScaleEvidence
from lgc_ros.odometry.state import (
    DEGENERATE,
    FEW_MATCHES,
    INITIALIZING,
    LOST,
    NO_MOTION,
    OK,
    ROTATION_ONLY,
    TRACKED,
    OdometryState,
)
from lgc_ros.odometry.tracking import MIN_LANDMARKS, Pose, Track, Tracker
from lgc_ros.runtime.stage_timer import StageTimer
from lgc_ros.runtime.threads import limit_threads

# Share of the matches that must agree on a pose of two views.
MIN_INLIER_SHARE = 0.2
# Share of the matches that should show landmarks; below, new ones are made as soon as they can.
LANDMARK_SHARE = 1 / 3
# Below this median distance from the best rotation, in pixels, parallax cannot be told from noise.
ROTATION_ONLY_PX = 1.0
# What motion such a rotation may hide, in pixels, and how far points may be before it is known.
HIDDEN_PX = 3.0
UNKNOWN_DEPTH = 10.0
# Views since the reference that help to tell motions apart.
MAX_SIGHTS = 5
# A map is confirmed where its pose explains this share of the matches that agree on some pose, and
# given up when this many more views refute than confirm it.
CONFIRMED_SHARE = 0.8
DISTRUST = 2
# What a new beginning needs: landmarks, and the share of the matches that become one.
MIN_INITIAL_LANDMARKS = 40
MIN_INITIAL_SHARE = 1 / 3
# What a first motion has wrong that all matches share: a turn as large as the noise of one, and a
# shift, relative to its length.
INITIAL_SIGMA = 0.02
# Landmarks in common that carry the scale over to a new beginning.
MIN_COMMON_LANDMARKS = 5
# Without them, speed is taken to last for so many seconds, and depth to change at most this much.
SPEED_LASTS_S = 1.5
DEPTH_CHANGE = 2.0
# An older keyframe takes the place of a new one if it is this much nearer than the current one.
RETURN_DISTANCE = 0.6
RETURN_TURN_DEG = 15.0
# Motion within this many standard deviations may be noise, and is held back until it is more.
STILL_SIGMAS = 2.0
# Uncertainty while lost: the last speed may have changed by as much as itself, or by this turn.
LOST_TURN_RADPS = 0.5


class VisualOdometry:
    """Feed it frames in order; it answers each with a state.

    Args:
        options: settings.
        extract: extractor to use instead of the one that the options name.
    """

    def __init__(
        self, options: OdometryOptions | None = None, extract: Extractor | None = None
    ) -> None:
        self.options = o = options or OdometryOptions()
        limit_threads(o.threads)
        self.extract = with_sharpness(
            extract or make_extractor(o.features, o.max_keypoints, o.spread)
        )
        self._tracker = Tracker(o)
        warm_up()
        self.reset()

    @property
    def filter(self) -> CorrespondenceFilter | None:
        """The learned filter, if the method has one."""
        return self._tracker.solver.filter

    @property
    def scale_sigma(self) -> float:
        """Relative standard deviation of the scale; 1 while no source has said anything."""
        return self._scale.sigma

    def scale_warning(self) -> str:
        """What the source of scale is missing if it mostly knew nothing; else empty."""
        scale, source = self._scale, self.options.scale.source
        if source == "none" or 2 * scale.answered >= scale.asked:
            return ""
        return (
            f"scale source {source} knew nothing at {scale.asked - scale.answered} of "
            f"{scale.asked} keyframes, so do not trust metres: it needs {NEEDS[source]}"
        )

    def reset(self) -> None:
        """Forget everything but the settings; the next frame is the new world."""
        o = self.options
        self.map = LandmarkMap(o.sigma_px, o.max_keyframes)
        self._scale = ScaleEstimator(o.scale)
        # Where the way before a correction of the scale has left the world, against one of that
        # scale from the beginning: nothing jumps, so the error stays, and is owned up to.
        self._misplaced = np.zeros(3)
        self._reference: Keyframe | None = None
        self._most_matches = 0
        self._sights: list[ReferenceMatches] = []
        self._initialized = False
        self._trust = 0
        self._depth: float | None = None
        self._anchor = np.eye(3), np.zeros(3)
        self._last: OdometryState | None = None
        self._last_good: OdometryState | None = None
        self._failures = 0

    def process(
        self,
        frame: Frame,
        T_ob: np.ndarray | None = None,
        features: Callable[[], Features] | None = None,
    ) -> OdometryState:
        """The state after this frame.

        `T_ob` is the pose of the robot in its wheel odometry at the frame's stamp, if there is
        one; the scale source `odom` needs it. `features` gives the keypoints of the image where
        they are extracted elsewhere, see prefetch.py. A frame that cannot be used (out
        of order, of another size than its camera) is answered with the reason.
        """
        timer = StageTimer()
        if frame.camera is None:
            raise CameraError("the frame has no camera; give its calibration with --camera")
        refusal = self._refusal(frame)
        if refusal is not None:
            return refusal
        try:
            _check(frame)
            view = self._view(frame, T_ob, features or partial(self.extract, frame.image))
        except LgcError as error:
            return self._fail(frame.stamp_ns, str(error), None, timer)
        timer.lap("features")
        if self._reference is None:
            return self._start(view, timer)
        track = self._track_any(view, timer)
        if not self._map_is_trusted(view, track):
            self.map.forget_landmarks()
            track = replace(track, pose=None)
        if track.pose is not None:
            return self._follow(view, track, frame, timer)
        if self._is_credible(track):
            return self._two_view(view, track, frame, timer)
        message = track.result.failure or (
            "the landmarks seen do not agree on a pose"
            if self._agrees(track)
            else f"only {len(track.index0)} of {track.result.kept.sum()} matches agree on a pose"
        )
        if self._restart_is_due(view):
            return self._restart(view, track, timer)
        return self._fail(frame.stamp_ns, message, track, timer)

    def _refusal(self, frame: Frame) -> OdometryState | None:
        last = self._last
        if last is None or frame.stamp_ns > last.stamp_ns:
            return None
        if frame.stamp_ns == last.stamp_ns:
            message, status = "the stamp is that of the frame before; ignored", last.status
        else:
            late_s = (last.stamp_ns - frame.stamp_ns) * 1e-9
            message, status = f"the frame is {late_s:.3f} s older than one before; ignored", LOST
        return OdometryState(
            frame.stamp_ns, status, message, last.T_wc, last.covariance, np.zeros(6)
        )

    def _view(
        self, frame: Frame, T_ob: np.ndarray | None, extracted: Callable[[], Features]
    ) -> View:
        features = extracted()
        x = frame.camera.normalize(features.points)
        seen = np.isfinite(x).all(axis=1)
        if not seen.all():
            features, x = features.subset(seen), x[seen]
        odom_m = None if T_ob is None else T_ob[:3, 3]
        return View(frame.stamp_ns, frame.camera, features, x, odom_m)

    def _start(self, view: View, timer: StageTimer) -> OdometryState:
        if len(view.x) < self.options.min_inliers:
            message = f"{len(view.x)} keypoints are too few to start; is the image blank?"
            return self._fail(view.stamp_ns, message, None, timer)
        T_wc = np.eye(4) if self._last is None else self._last.T_wc
        R_cw = T_wc[:3, :3].T
        keyframe = Keyframe(view, R_cw, -R_cw @ T_wc[:3, 3])
        if self._last is not None:
            keyframe.covariance = self._drifted(view.stamp_ns)
        self.map.add_keyframe(keyframe)
        self._refer_to(keyframe)
        self._anchor = keyframe.R_cw, keyframe.t_cw
        return self._state(view, INITIALIZING, "first frame", keyframe, None, None, timer, True)

    def _track_any(self, view: View, timer: StageTimer) -> Track:
        """Match to the current keyframe and, where that fails, to the latest others."""
        best = self._tracker(view, self._reference, self.map, timer)
        if best.pose is not None or len(view.x) < self.options.min_inliers:
            return best
        # A good match without landmarks is no failure: the view may have turned away from them.
        matched = self._is_credible(best)
        if matched and not self._initialized:
            return best
        others = [
            keyframe
            for keyframe in self.map.keyframes[::-1]
            if keyframe is not self._reference
            and np.count_nonzero(keyframe.landmark >= 0) >= MIN_LANDMARKS
        ]
        for keyframe in others[: 1 if matched else self.options.retry_keyframes]:
            track = self._tracker(view, keyframe, self.map, timer)
            if track.pose is not None:
                self._refer_to(keyframe)
                return track
        return best

    def _is_credible(self, track: Track) -> bool:
        """Whether two views alone can be trusted.

        Landmarks that were matched but did not give a pose speak against it.
        """
        return self._agrees(track) and not self._shows_landmarks(track)

    def _agrees(self, track: Track) -> bool:
        """Whether matches agree on a pose: some of them do even if all are wrong."""
        needed = max(self.options.min_inliers, MIN_INLIER_SHARE * track.result.kept.sum())
        return len(track.index0) >= needed

    def _shows_landmarks(self, track: Track) -> bool:
        return (track.reference.landmark[track.index0] >= 0).sum() >= MIN_LANDMARKS

    def _map_is_trusted(self, view: View, track: Track) -> bool:
        """Count what the views say; a map that more refute than confirm has had a wrong start."""
        if self._shows_landmarks(track) and self._agrees(track):
            self._trust += 1 if self._is_confirmed(view, track) else -1
        return self._trust > -DISTRUST

    def _is_confirmed(self, view: View, track: Track) -> bool:
        """Whether the pose by landmarks explains what two views agree on."""
        if track.pose is None:
            return False
        x0, x1 = track.reference.view.x[track.index0], view.x[track.index1]
        E_10 = essential_from_pose(*motion_between(track.reference, track.pose))
        threshold = 2 * self.options.threshold_px / view.camera.focal
        return np.mean(sampson_distance(E_10, x0, x1) < threshold**2) > CONFIRMED_SHARE

    def _follow(self, view: View, track: Track, frame: Frame, timer: StageTimer) -> OdometryState:
        """A view located by landmarks: hold what did not move, make a keyframe if it is time."""
        pose, status = self._hold(view, track)
        self._failures = 0
        self._most_matches = max(self._most_matches, len(track.index0))
        inserted = None
        if status != NO_MOTION and self._keyframe_is_due(view, track, pose):
            older = self._return_to_older(view, track, pose, timer)
            if older is not None:
                track = older
                pose, status = self._hold(view, track)
            else:
                inserted = self._insert(view, track, pose, frame, timer)
        if status == OK and inserted is None:
            self._anchor = pose.R_cw, pose.t_cw
        where = inserted or pose
        depths = self._depths(where, track.reference.landmark[track.index0[pose.used]])
        self._depth = float(np.median(depths)) if len(depths) else self._depth
        return self._state(view, status, "", where, track, pose, timer, inserted is not None)

    def _hold(self, view: View, track: Track) -> tuple[Pose, str]:
        """Keep the position, or all of the pose, where motion is within the noise."""
        pose, focal = track.pose, view.camera.focal
        R_anchor, t_anchor = self._anchor
        centre = -R_anchor.T @ t_anchor
        ids = track.reference.landmark[track.index0[pose.used]]
        points, x = self.map.points[ids], view.x[track.index1[pose.used]]
        depth = np.median((points @ pose.R_cw.T + pose.t_cw)[:, 2])
        still_px, variances = self.options.still_px, np.diag(pose.covariance)
        moved_px = focal * np.linalg.norm(pose.centre - centre) / depth
        if moved_px >= max(still_px, STILL_SIGMAS * focal * np.sqrt(variances[3:].sum()) / depth):
            return pose, OK
        turned_px = focal * np.radians(rotation_error_deg(pose.R_cw, R_anchor))
        if turned_px < max(still_px, STILL_SIGMAS * focal * np.sqrt(variances[:3].sum())):
            return Pose(R_anchor, t_anchor, pose.covariance, pose.used), NO_MOTION
        whitening, spread = self.map.whitening(view), self.map.covariances[ids]
        held = refine_pose(
            pose.R_cw, -pose.R_cw @ centre, points, x, whitening, spread, hold_centre=True
        )
        return Pose(held.R_cw, held.t_cw, pose.covariance, pose.used), ROTATION_ONLY

    def _keyframe_is_due(self, view: View, track: Track, pose: Pose) -> bool:
        o = self.options
        turned_deg = rotation_error_deg(pose.R_cw, track.reference.R_cw)
        if self._matches_run_thin(track) or turned_deg > o.keyframe_turn_deg:
            return True
        elapsed_s = (view.stamp_ns - track.reference.view.stamp_ns) * 1e-9
        needed_deg = o.keyframe_parallax_deg
        if elapsed_s > o.keyframe_interval_s or pose.used.sum() < 3 * MIN_LANDMARKS:
            needed_deg /= 2
        if self._parallax_deg(track, pose) > needed_deg:
            return True
        if pose.used.sum() > LANDMARK_SHARE * len(track.index0):
            return False
        x0, x1 = track.reference.view.x[track.index0], view.x[track.index1]
        R_10 = pose.R_cw @ track.reference.R_cw.T
        return _usual_parallax_deg(R_10, x0, x1) > o.init_parallax_deg

    def _matches_run_thin(self, track: Track) -> bool:
        share = self.options.keyframe_overlap
        # Without landmarks, what was left behind is lost: there is reason to stay.
        share = share if track.pose is not None else share / 2
        return len(track.index0) < share * self._most_matches

    def _parallax_deg(self, track: Track, pose: Pose) -> float:
        """Median angle at which landmarks see the reference and this camera."""
        points = self.map.points[track.reference.landmark[track.index0[pose.used]]]
        a, b = points - track.reference.centre, points - pose.centre
        across = np.linalg.norm(np.cross(a, b), axis=1)
        return float(np.degrees(np.median(np.arctan2(across, np.einsum("ij,ij->i", a, b)))))

    def _return_to_older(
        self, view: View, track: Track, pose: Pose, timer: StageTimer
    ) -> Track | None:
        """An older keyframe taken nearer to here, if matching to it gives as many landmarks.

        Where the camera comes back to, the map is known already, and drift ends.
        """
        here, reach = pose.centre, np.linalg.norm(pose.centre - track.reference.centre)
        ids = track.reference.landmark[track.index0[pose.used]]
        for shared, keyframe in self.map.covisible(ids):
            if shared < MIN_LANDMARKS:
                return None
            near = np.linalg.norm(keyframe.centre - here) < RETURN_DISTANCE * reach
            turned_deg = rotation_error_deg(keyframe.R_cw, pose.R_cw)
            if keyframe is track.reference or not near or turned_deg > RETURN_TURN_DEG:
                continue
            found = self._tracker(view, keyframe, self.map, timer)
            if found.pose is None or found.pose.used.sum() < pose.used.sum():
                return None
            self._refer_to(keyframe)
            self._most_matches = len(found.index0)
            return found
        return None

    def _insert(
        self, view: View, track: Track, pose: Pose, frame: Frame, timer: StageTimer
    ) -> Keyframe:
        """Make the view a keyframe: hand landmarks over, make new ones, refine the window."""
        reference = track.reference
        keyframe = Keyframe(view, pose.R_cw, pose.t_cw)
        keyframe.covariance = self._covariance(reference, pose)
        used = pose.used
        keyframe.landmark[track.index1[used]] = reference.landmark[track.index0[used]]
        self.map.add_keyframe(keyframe, keep=reference)
        self.map.triangulate(reference, keyframe, track.index0, track.index1)
        connect(self.map, keyframe, track, self.options.threshold_px)
        self.map.adjust(
            self.options.window, self.options.window_fixed, self.options.window_iterations
        )
        self._correct_scale(keyframe, reference, frame, about=keyframe.centre)
        self._refer_to(keyframe)
        self._anchor = keyframe.R_cw, keyframe.t_cw
        timer.lap("map")
        return keyframe

    def _correct_scale(
        self, keyframe: Keyframe, previous: Keyframe, frame: Frame, about: np.ndarray
    ) -> None:
        """Let the scale source speak; the point `about` stays where it is."""
        seen = np.flatnonzero(keyframe.landmark >= 0)
        points_cam = self.map.points[keyframe.landmark[seen]] @ keyframe.R_cw.T + keyframe.t_cw
        depths_m = None
        if frame.depth is not None:
            last = np.array(frame.depth.shape[::-1]) - 1
            pixels = np.round(keyframe.view.features.points[seen]).astype(int)
            column, row = np.clip(pixels, 0, last).T
            depths_m = frame.depth[row, column]
        start, end = previous.view.odom_m, keyframe.view.odom_m
        odom_distance_m = None
        if start is not None and end is not None:
            odom_distance_m = float(np.linalg.norm(end - start))
        evidence = ScaleEvidence(
            elapsed_s=(keyframe.view.stamp_ns - previous.view.stamp_ns) * 1e-9,
            motion_cam=keyframe.R_cw @ (keyframe.centre - previous.centre),
            odom_distance_m=odom_distance_m,
            points_cam=points_cam,
            depths_m=depths_m,
        )
        factor = self._scale.correction(evidence)
        if factor != 1.0:
            self.map.rescale(factor, about)
            self._misplaced = factor * self._misplaced + (1 - factor) * about
            self._depth = self._depth and factor * self._depth

    def _two_view(
        self, view: View, track: Track, frame: Frame, timer: StageTimer
    ) -> OdometryState:
        """A view matched to a keyframe without enough landmarks: rotation, or a new beginning."""
        reference, pose = track.reference, track.result.pose
        x0, x1 = reference.view.x[track.index0], view.x[track.index1]
        focal = view.camera.focal
        R_10, left_rad = fit_rotation(x0, x1, self.map.sigma(view.camera))
        self._failures = 0
        self._most_matches = max(self._most_matches, len(track.index0))
        if focal * np.median(left_rad) < ROTATION_ONLY_PX:
            turned_px = focal * np.radians(rotation_error_deg(R_10, np.eye(3)))
            status, R_10 = (
                (NO_MOTION, np.eye(3))
                if turned_px < self.options.still_px
                else (ROTATION_ONLY, R_10)
            )
            hidden_rad = HIDDEN_PX / focal
            sigma_position = hidden_rad * (self._depth or UNKNOWN_DEPTH)
            pose = self._turned(track, R_10, reference.centre, hidden_rad, sigma_position)
            return self._turn(view, track, pose, status, "", timer)
        threshold = self.options.threshold_px / focal
        # Before the reference is given up, with the way since then, less will do.
        needed_deg = self.options.init_parallax_deg / (2 if self._matches_run_thin(track) else 1)
        motion, clear = Motion(pose.R_10, pose.t_10, 0.0), False
        # As long as parallax is far too little, it does not matter which motion it is of.
        if _usual_parallax_deg(pose.R_10, x0, x1) > needed_deg / 2:
            motion, clear = find_motion(
                reference.view.x, self._sights, track.sight, pose.R_10, pose.t_10, threshold
            )
        self._remember(track.sight)
        x0 = reference.view.x[track.sight.index0]
        agree = motion.agrees(x0, track.sight.x, threshold)
        parallax = _usual_parallax_deg(motion.R_10, x0[agree], track.sight.x[agree])
        status = DEGENERATE if self._initialized else INITIALIZING
        if parallax < needed_deg:
            message = f"parallax of {parallax:.2f} degrees is too little for landmarks"
        elif not clear:
            status, message = DEGENERATE, "two motions explain what is seen, as if of a plane only"
        else:
            state = self._initialize(view, track, motion, agree, frame, timer)
            if state is not None:
                return state
            message = "too few points can be triangulated"
        # What was motion may be mistaken for a turn as large as the parallax.
        sigma_rad, sigma_position = np.radians(parallax), self._depth or 1.0
        centre = self._last.T_wc[:3, 3]
        pose = self._turned(track, motion.R_10, centre, sigma_rad, sigma_position)
        return self._turn(view, track, pose, status, message, timer)

    def _turned(
        self,
        track: Track,
        R_10: np.ndarray,
        centre: np.ndarray,
        sigma_rad: float,
        sigma_position: float,
    ) -> Pose:
        """The pose after a turn against the reference, at a given place."""
        R_cw = R_10 @ track.reference.R_cw
        spread = np.diag(np.repeat([sigma_rad, sigma_position], 3) ** 2)
        return Pose(R_cw, -R_cw @ centre, spread, np.zeros(len(track.index0), bool))

    def _turn(
        self, view: View, track: Track, pose: Pose, status: str, message: str, timer: StageTimer
    ) -> OdometryState:
        """A view whose position is held; a keyframe takes over before the matches run out."""
        self._anchor = pose.R_cw, pose.t_cw
        inserted = None
        if status != NO_MOTION and self._matches_run_thin(track):
            inserted = Keyframe(view, pose.R_cw, pose.t_cw)
            inserted.covariance = self._covariance(track.reference, pose)
            inserted.landmark[track.index1] = track.reference.landmark[track.index0]
            self.map.add_keyframe(inserted, keep=track.reference)
            self._refer_to(inserted)
        return self._state(view, status, message, pose, track, pose, timer, inserted is not None)

    def _remember(self, sight: ReferenceMatches) -> None:
        """Keep what was seen since the reference; of many views every other one."""
        self._sights.append(sight)
        if len(self._sights) > MAX_SIGHTS:
            self._sights = self._sights[1::2]

    def _initialize(
        self,
        view: View,
        track: Track,
        motion: Motion,
        agree: np.ndarray,
        frame: Frame,
        timer: StageTimer,
    ) -> OdometryState | None:
        """Landmarks from two views; the scale goes on from common landmarks or the last depth."""
        reference = track.reference
        index0, index1 = track.sight.index0[agree], track.sight.index1[agree]

        def placed(baseline: float) -> Keyframe:
            t_cw = motion.R_10 @ reference.t_cw + baseline * motion.t_10
            return Keyframe(view, motion.R_10 @ reference.R_cw, t_cw)

        good, points0, _ = self.map.intersect(reference, placed(1.0), index0, index1)
        if good.sum() < max(MIN_INITIAL_LANDMARKS, len(good) * MIN_INITIAL_SHARE):
            return None
        baseline = self._baseline(view, reference, index0[good], points0[good, 2])
        keyframe = placed(baseline)
        # What landmarks there were could not locate this view.
        reference.landmark[index0] = NONE
        self.map.triangulate(reference, keyframe, index0, index1)
        x0, x1 = reference.view.x[index0], view.x[index1]
        sigma = self.map.sigma(view.camera)
        spread = motion_covariance(motion.R_10, motion.t_10, x0, x1, sigma)
        spread += np.diag(np.repeat([sigma, INITIAL_SIGMA], 3) ** 2)
        unit = np.repeat([1.0, baseline], 3)
        spread *= np.outer(unit, unit)
        used = reference.landmark[track.index0] >= 0
        pose = Pose(keyframe.R_cw, keyframe.t_cw, spread, used)
        self.map.add_keyframe(keyframe, keep=reference)
        origin = reference if self._initialized else self._look_back(reference, timer)
        keyframe.covariance = self._covariance(reference, pose)
        self._initialized, self._trust = True, 0
        self._correct_scale(keyframe, reference, frame, about=origin.centre)
        self._refer_to(keyframe)
        self._anchor = keyframe.R_cw, keyframe.t_cw
        self._depth = float(np.median(self._depths(keyframe, keyframe.landmark)))
        timer.lap("map")
        return self._state(view, OK, "", keyframe, track, pose, timer, True)

    def _look_back(self, reference: Keyframe, timer: StageTimer) -> Keyframe:
        """Find the way that was held back before the first landmarks; the world stays.

        Each keyframe before the reference is located by the landmarks of the next, as far as that
        goes. The earliest one found keeps its pose, and all others move.
        """
        origin, spread = reference, np.zeros((6, 6))
        held = reference.R_cw, reference.t_cw
        for older in self.map.keyframes[-3::-1]:
            track = self._tracker(older.view, origin, self.map, timer)
            if track.pose is None:
                break
            held = older.R_cw, older.t_cw
            older.R_cw, older.t_cw = track.pose.R_cw, track.pose.t_cw
            spread += covariance.in_world(track.pose.covariance, _T_wc(older.R_cw, older.t_cw))
            used = track.pose.used
            older.landmark[track.index1[used]] = origin.landmark[track.index0[used]]
            self.map.triangulate(origin, older, track.index0, track.index1)
            origin = older
        self.map.move(*held, origin)
        if origin is not reference:
            reference.covariance = origin.covariance + spread
        return origin

    def _baseline(
        self, view: View, reference: Keyframe, index0: np.ndarray, depths: np.ndarray
    ) -> float:
        """The distance of two views in the map's unit, given depths for a distance of one.

        By landmarks in common. Without them it is a guess: robots keep their speed for a moment;
        what is seen is about as far away as before, which limits the guess where a hand turned
        round, and is all there is after a while.
        """
        ids = reference.landmark[index0]
        common = ids >= 0
        if common.sum() >= MIN_COMMON_LANDMARKS:
            return float(np.median(self._depths(reference, ids[common]) / depths[common]))
        if self._depth is None:
            return 1.0
        by_depth, good = self._depth / float(np.median(depths)), self._last_good
        elapsed_s = (view.stamp_ns - reference.view.stamp_ns) * 1e-9
        by_speed = elapsed_s * float(np.linalg.norm(good.twist[:3]))
        if by_speed == 0 or view.stamp_ns - good.stamp_ns > 1e9 * SPEED_LASTS_S:
            return by_depth
        return float(np.clip(by_speed, by_depth / DEPTH_CHANGE, by_depth * DEPTH_CHANGE))

    def _depths(self, where: Posed, landmark: np.ndarray) -> np.ndarray:
        """Depths in a camera of the landmarks that are there."""
        points = self.map.points[landmark[landmark >= 0]]
        return points @ where.R_cw[2] + where.t_cw[2]

    def _refer_to(self, keyframe: Keyframe) -> None:
        self._reference = keyframe
        self._most_matches = 0
        self._sights = []

    def _fail(
        self, stamp_ns: int, message: str, track: Track | None, timer: StageTimer
    ) -> OdometryState:
        """Nothing to go by: the pose is held and its uncertainty grows."""
        self._failures += 1
        status = LOST if self._failures > self.options.lost_after else FEW_MATCHES
        T_wc = np.eye(4) if self._last is None else self._last.T_wc
        state = OdometryState(
            stamp_ns,
            status,
            message,
            T_wc,
            self._published(self._drifted(stamp_ns), T_wc[:3, 3]),
            np.zeros(6),
            relative=track and track.result,
            relative_stamp_ns=track and track.reference.view.stamp_ns,
            counts=_counts(track, 0),
            ms=timer.ms,
        )
        self._last = state
        return state

    def _drifted(self, stamp_ns: int) -> np.ndarray:
        """World covariance of the held pose after the time without tracking."""
        good = self._last_good
        if good is None:
            return np.zeros((6, 6))
        elapsed_s = (stamp_ns - good.stamp_ns) * 1e-9
        speed = max(np.linalg.norm(good.twist[:3]), 0.1 * (self._depth or 1.0))
        spread = np.zeros((6, 6))
        spread[:3, :3] = (LOST_TURN_RADPS * elapsed_s) ** 2 * np.eye(3)
        spread[3:, 3:] = (speed * elapsed_s) ** 2 * np.eye(3)
        base = self._reference.covariance if self._reference else np.zeros((6, 6))
        return base + covariance.in_world(spread, good.T_wc)

    def _restart_is_due(self, view: View) -> bool:
        good, o = self._last_good, self.options
        lost_s = (view.stamp_ns - good.stamp_ns) * 1e-9 if good else float("inf")
        return self._failures > o.lost_after and lost_s > o.restart_s

    def _restart(self, view: View, track: Track, timer: StageTimer) -> OdometryState:
        """Begin anew at the held pose: the view has not come back."""
        if len(view.x) < 5 * self.options.min_inliers:
            return self._fail(view.stamp_ns, "too few keypoints to start again", track, timer)
        state = self._start(view, timer)
        self._failures = 0
        return state

    def _covariance(self, reference: Keyframe, pose: Pose) -> np.ndarray:
        T_wc = _T_wc(pose.R_cw, pose.t_cw)
        return reference.covariance + covariance.in_world(pose.covariance, T_wc)

    def _published(self, covariance_world: np.ndarray, position: np.ndarray) -> np.ndarray:
        return (
            covariance.of_pose(covariance_world, position)
            + covariance.of_scale(position, self._scale.sigma)
            + covariance.of_scale(self._misplaced, 1.0)
        )

    def _state(
        self,
        view: View,
        status: str,
        message: str,
        where: Pose | Keyframe,
        track: Track | None,
        pose: Pose | None,
        timer: StageTimer,
        keyframe: bool,
    ) -> OdometryState:
        T_wc = _T_wc(where.R_cw, where.t_cw)
        spread = where.covariance
        if isinstance(where, Pose):
            spread = self._covariance(track.reference, where)
        extra = {}
        if track is not None and pose is not None:
            ids = track.reference.landmark[track.index0]
            # Refinement may have found some of them wrong.
            shown = pose.used & (ids >= 0)
            points, scores = self.map.points[ids[shown]], track.result.scores
            extra = {
                "points_cam": points @ where.R_cw.T + where.t_cw,
                "points_px": view.features.points[track.index1[shown]].astype(np.float64),
                "scores": np.ones(len(points)) if scores is None else scores[track.rows[shown]],
            }
        state = OdometryState(
            view.stamp_ns,
            status,
            message,
            T_wc,
            self._published(spread, T_wc[:3, 3]),
            self._twist(view.stamp_ns, T_wc, status),
            keyframe,
            track and track.result,
            track and track.reference.view.stamp_ns,
            counts={"features": len(view.x)}
            | _counts(track, 0 if pose is None else pose.used.sum()),
            ms=timer.ms,
            **extra,
        )
        self._last = state
        if state.tracked:
            self._last_good = state
        return state

    def _twist(self, stamp_ns: int, T_wc: np.ndarray, status: str) -> np.ndarray:
        """Velocity in the camera frame from the last two tracked poses."""
        last = self._last
        if last is None or not last.tracked or status not in TRACKED:
            return np.zeros(6)
        elapsed_s = (stamp_ns - last.stamp_ns) * 1e-9
        moved = np.linalg.inv(last.T_wc) @ T_wc
        angular, _ = cv2.Rodrigues(moved[:3, :3])
        linear = moved[:3, :3].T @ moved[:3, 3]
        return np.concatenate([linear, angular.ravel()]) / elapsed_s


def _check(frame: Frame) -> None:
    """Raise unless image, depth and camera fit together."""
    name = frame.name or "the image"
    frame.camera.check_image(frame.image, name)
    if frame.depth is not None and frame.depth.shape != frame.image.shape[:2]:
        raise CameraError(
            f"the depth image of {name} has another size than the image; register it to the image"
        )


def _usual_parallax_deg(R_10: np.ndarray, x0: np.ndarray, x1: np.ndarray) -> float:
    """What enough of the matches show: far points have no parallax, however far one goes."""
    return float(np.quantile(parallax_deg(R_10, x0, x1), 1 - MIN_INITIAL_SHARE))


def _T_wc(R_cw: np.ndarray, t_cw: np.ndarray) -> np.ndarray:
    T_wc = np.eye(4)
    T_wc[:3, :3], T_wc[:3, 3] = R_cw.T, -R_cw.T @ t_cw
    return T_wc


def _counts(track: Track | None, landmarks: int) -> dict[str, int]:
    if track is None:
        return {"matches": 0, "kept": 0, "inliers": 0, "landmarks": 0}
    return {
        "matches": len(track.result.correspondences),
        "kept": int(track.result.kept.sum()),
        "inliers": int(track.result.inliers.sum()),
        "landmarks": int(landmarks),
    }

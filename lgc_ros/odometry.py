"""Visual odometry: frames in, poses and verdicts out; no files, no ROS, the same result twice.

Each frame is matched to a keyframe some way back. The two-view method (the learned filter, or a
baseline) tells right matches from wrong ones; the landmarks that the keyframe's keypoints show
then give the pose in the map's scale. New keyframes triangulate new landmarks, and the latest
keyframes are refined together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import cv2
import numpy as np
import poselib

from lgc_ros import covariance
from lgc_ros.bundle import warm_up
from lgc_ros.errors import CameraError, ConfigError, LgcError
from lgc_ros.estimators import EstimatorOptions
from lgc_ros.features import Extractor, Features, make_extractor
from lgc_ros.frame import Frame
from lgc_ros.geometry import (
    essential_from_pose,
    parallax_deg,
    rotation_error_deg,
    sampson_distance,
)
from lgc_ros.guided import NOT_FOUND, find_near
from lgc_ros.landmarks import NONE, OUTLIER_SIGMAS, Keyframe, LandmarkMap, View
from lgc_ros.matching import Matches, correspond, distance_by_row, match, nearest_rows
from lgc_ros.methods import parse_method
from lgc_ros.refinement import fit_rotation, refine_pose
from lgc_ros.scale import NEEDS, ScaleEstimator, ScaleEvidence, ScaleOptions
from lgc_ros.start import Motion, Sight, find_motion, motion_covariance
from lgc_ros.threads import limit_threads
from lgc_ros.two_view import Decider, TwoViewResult

OK = "ok"
INITIALIZING = "initializing"
NO_MOTION = "no_motion"
ROTATION_ONLY = "rotation_only"
DEGENERATE = "degenerate"
FEW_MATCHES = "few_matches"
LOST = "lost"
STATUSES = (OK, INITIALIZING, NO_MOTION, ROTATION_ONLY, DEGENERATE, FEW_MATCHES, LOST)
TRACKED = (OK, NO_MOTION, ROTATION_ONLY)
"""Statuses whose pose is as good as it gets; with the others, all or part of it is held."""

# Landmarks that make a pose: fewer leave too much to chance.
MIN_LANDMARKS = 15
PNP_THRESHOLD_PX = 4.0
# Samples drawn at least; wrong landmarks are few, and where they are not, more are drawn. What
# the best one gives is refined a little here, and thoroughly afterwards.
PNP_SAMPLES = 20
PNP_REFINEMENTS = 5
# From frame to frame nearly all that the filter trusts is right.
FILTERED_SAMPLES = 100
# Share of the matches that must agree on a pose of two views.
MIN_INLIER_SHARE = 0.2
# Share of the matches that should show landmarks; below, new ones are made as soon as they can.
LANDMARK_SHARE = 1 / 3
# Share of the matched landmarks that must agree with a pose.
MIN_LANDMARK_SHARE = 0.5
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
# Landmarks of this many keyframes are looked for in a new one, this far from where they should be,
# and found if as alike as this share of the matches that gave its pose.
CONNECTED_KEYFRAMES = 10
SEARCH_PX = 4.0
ALIKE_SHARE = 0.97
# Matches that no filter has seen make landmarks within this part of the inlier threshold.
CLOSE_SHARE = 0.5
# An older keyframe takes the place of a new one if it is this much nearer than the current one.
RETURN_DISTANCE = 0.6
RETURN_TURN_DEG = 15.0
# Motion within this many standard deviations may be noise, and is held back until it is more.
STILL_SIGMAS = 2.0
# Uncertainty while lost: the last speed may have changed by as much as itself, or by this turn.
LOST_TURN_RADPS = 0.5


@dataclass(frozen=True)
class OdometryOptions:
    """Settings of visual odometry; `config/default.yaml` explains every one of them."""

    method: str = "cn"
    features: str = "sift"
    max_keypoints: int = 2000
    spread: bool = False
    model: str | None = None
    device: str = "auto"
    engine: str = "auto"
    threads: int = 0
    threshold_px: float = 1.0
    max_iterations: int | None = None
    sigma_px: float = 0.35
    min_inliers: int = 20
    init_parallax_deg: float = 1.5
    keyframe_parallax_deg: float = 4.0
    keyframe_turn_deg: float = 8.0
    keyframe_overlap: float = 0.7
    keyframe_interval_s: float = 2.0
    still_px: float = 0.3
    retry_keyframes: int = 4
    lost_after: int = 3
    restart_s: float = 2.0
    max_keyframes: int = 40
    window: int = 6
    window_fixed: int = 8
    window_iterations: int = 8
    seed: int = 0
    scale: ScaleOptions = field(default_factory=ScaleOptions)

    def __post_init__(self) -> None:
        if self.threads < 0:
            raise ConfigError(f"threads must be positive, or 0 for all cores, got {self.threads}")
        for name in (
            "sigma_px",
            "init_parallax_deg",
            "keyframe_parallax_deg",
            "keyframe_turn_deg",
            "still_px",
        ):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be positive, got {getattr(self, name)}")
        if not 0 < self.keyframe_overlap < 1:
            raise ConfigError(f"keyframe_overlap must be in (0, 1), got {self.keyframe_overlap}")
        if self.window < 2 or self.max_keyframes < self.window:
            raise ConfigError(
                f"window ({self.window}) must be at least 2 and max_keyframes "
                f"({self.max_keyframes}) at least as many"
            )


@dataclass(frozen=True, eq=False)
class OdometryState:
    """What is known after a frame.

    Attributes:
        stamp_ns: of the frame.
        status: one of STATUSES.
        message: why, in user terms; empty when all is well.
        T_wc: (4, 4) camera to world; the first frame's camera is the world.
        covariance: (6, 6) of position and orientation (fixed axes), as in ROS.
        twist: (6,) linear (m/s) and angular (rad/s) velocity in the camera frame.
        keyframe: whether the frame became a keyframe.
        relative: two-view result of the frame against its keyframe; None if nothing was matched.
        relative_stamp_ns: stamp of that keyframe.
        points_cam: (N, 3) landmarks the pose rests on, in the camera frame.
        points_px: (N, 2) their keypoints in the image.
        scores: (N,) what the method thinks of their matches, in [0, 1].
        counts: features, matches, kept, inliers and landmarks.
        ms: milliseconds by stage.
    """

    stamp_ns: int
    status: str
    message: str
    T_wc: np.ndarray
    covariance: np.ndarray
    twist: np.ndarray
    keyframe: bool = False
    relative: TwoViewResult | None = None
    relative_stamp_ns: int | None = None
    points_cam: np.ndarray = field(default_factory=lambda: np.empty((0, 3)))
    points_px: np.ndarray = field(default_factory=lambda: np.empty((0, 2)))
    scores: np.ndarray = field(default_factory=lambda: np.empty(0))
    counts: dict[str, int] = field(default_factory=dict)
    ms: dict[str, float] = field(default_factory=dict)

    @property
    def tracked(self) -> bool:
        """Whether the pose is estimated from this frame rather than held."""
        return self.status in TRACKED

    def without_matches(self) -> OdometryState:
        """The same but for matches and landmarks: a thousandth of the memory, to be kept."""
        nothing = {"points_cam": np.empty((0, 3)), "points_px": np.empty((0, 2))}
        return replace(self, relative=None, scores=np.empty(0), **nothing)


@dataclass(frozen=True, eq=False)
class _Track:
    """A view matched to a keyframe: one-to-one inliers, and the pose if landmarks gave one."""

    reference: Keyframe
    result: TwoViewResult
    index0: np.ndarray  # keypoints of the reference
    index1: np.ndarray  # keypoints of the view
    rows: np.ndarray  # their places among the correspondences of the result
    sight: Sight  # all that outlier rejection let through
    pose: _Pose | None = None


@dataclass(frozen=True, eq=False)
class _Pose:
    R_cw: np.ndarray
    t_cw: np.ndarray
    covariance: np.ndarray  # (6, 6) of the step on the left, relative to the reference
    used: np.ndarray  # (M,) bool over the track's matches: landmarks that agree

    @property
    def centre(self) -> np.ndarray:
        return -self.R_cw.T @ self.t_cw


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
        self.extract = extract or make_extractor(o.features, o.max_keypoints, o.spread)
        samples = o.max_iterations or (FILTERED_SAMPLES if parse_method(o.method).filter else None)
        estimator = EstimatorOptions(o.threshold_px, max_iterations=samples, seed=o.seed)
        self.decide = Decider(o.method, o.features, o.model, o.device, estimator, o.engine)
        warm_up()
        self.reset()

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
        self._sights: list[Sight] = []
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
        they are extracted elsewhere, see lgc_ros/pipelining.py. A frame that cannot be used (out
        of order, of another size than its camera) is answered with the reason.
        """
        clock = _Clock()
        if frame.camera is None:
            raise CameraError("the frame has no camera; give its calibration with --camera")
        refusal = self._refusal(frame)
        if refusal is not None:
            return refusal
        try:
            _check(frame)
            view = self._view(frame, T_ob, features or partial(self.extract, frame.image))
        except LgcError as error:
            return self._fail(frame.stamp_ns, str(error), None, clock)
        clock.lap("features")
        if self._reference is None:
            return self._start(view, clock)
        track = self._track_any(view, clock)
        if not self._map_is_trusted(view, track):
            self.map.forget_landmarks()
            track = replace(track, pose=None)
        if track.pose is not None:
            return self._follow(view, track, frame, clock)
        if self._is_credible(track):
            return self._two_view(view, track, frame, clock)
        message = track.result.failure or (
            "the landmarks seen do not agree on a pose"
            if self._agrees(track)
            else f"only {len(track.index0)} of {track.result.kept.sum()} matches agree on a pose"
        )
        if self._restart_is_due(view):
            return self._restart(view, track, clock)
        return self._fail(frame.stamp_ns, message, track, clock)

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

    def _start(self, view: View, clock: _Clock) -> OdometryState:
        if len(view.x) < self.options.min_inliers:
            message = f"{len(view.x)} keypoints are too few to start; is the image blank?"
            return self._fail(view.stamp_ns, message, None, clock)
        T_wc = np.eye(4) if self._last is None else self._last.T_wc
        R_cw = T_wc[:3, :3].T
        keyframe = Keyframe(view, R_cw, -R_cw @ T_wc[:3, 3])
        if self._last is not None:
            keyframe.covariance = self._drifted(view.stamp_ns)
        self.map.add_keyframe(keyframe)
        self._refer_to(keyframe)
        self._anchor = keyframe.R_cw, keyframe.t_cw
        return self._state(view, INITIALIZING, "first frame", keyframe, None, None, clock, True)

    def _track_any(self, view: View, clock: _Clock) -> _Track:
        """Match to the current keyframe and, where that fails, to the latest others."""
        best = self._track(view, self._reference, clock)
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
            track = self._track(view, keyframe, clock)
            if track.pose is not None:
                self._refer_to(keyframe)
                return track
        return best

    def _is_credible(self, track: _Track) -> bool:
        """Whether two views alone can be trusted.

        Landmarks that were matched but did not give a pose speak against it.
        """
        return self._agrees(track) and not self._shows_landmarks(track)

    def _agrees(self, track: _Track) -> bool:
        """Whether matches agree on a pose: some of them do even if all are wrong."""
        needed = max(self.options.min_inliers, MIN_INLIER_SHARE * track.result.kept.sum())
        return len(track.index0) >= needed

    def _shows_landmarks(self, track: _Track) -> bool:
        return (track.reference.landmark[track.index0] >= 0).sum() >= MIN_LANDMARKS

    def _map_is_trusted(self, view: View, track: _Track) -> bool:
        """Count what the views say; a map that more refute than confirm has had a wrong start."""
        if self._shows_landmarks(track) and self._agrees(track):
            self._trust += 1 if self._is_confirmed(view, track) else -1
        return self._trust > -DISTRUST

    def _is_confirmed(self, view: View, track: _Track) -> bool:
        """Whether the pose by landmarks explains what two views agree on."""
        if track.pose is None:
            return False
        x0, x1 = track.reference.view.x[track.index0], view.x[track.index1]
        E_10 = essential_from_pose(*_relative_pose(track.reference, track.pose))
        threshold = 2 * self.options.threshold_px / view.camera.focal
        return np.mean(sampson_distance(E_10, x0, x1) < threshold**2) > CONFIRMED_SHARE

    def _track(self, view: View, reference: Keyframe, clock: _Clock) -> _Track:
        matches, rejected = self._match(view, reference, clock)
        located = self._track_by_landmarks(view, reference, matches, rejected)
        clock.lap("track")
        if located is not None:
            return located
        track = _make_track(view, reference, matches, self.decide.estimate(rejected))
        clock.lap("estimate")
        track = replace(track, pose=self._locate(view, track))
        clock.lap("track")
        return track

    def _match(
        self, view: View, reference: Keyframe, clock: _Clock
    ) -> tuple[Matches, TwoViewResult]:
        matches = match(reference.view.features, view.features)
        correspondences = correspond(
            reference.view.features, view.features, matches, reference.view.camera, view.camera
        )
        clock.lap("match")
        rejected = self.decide.reject(correspondences)
        clock.lap("filter")
        return matches, rejected

    def _track_by_landmarks(
        self, view: View, reference: Keyframe, matches: Matches, rejected: TwoViewResult
    ) -> _Track | None:
        """The view where landmarks explain what the filter kept; no two-view pose is needed then.

        Without a filter the two-view estimator is what tells right matches from wrong ones.
        """
        if self.decide.filter is None:
            return None
        kept = _make_track(view, reference, matches, replace(rejected, inliers=rejected.kept))
        pose = self._locate(view, kept)
        if pose is None:
            return None
        result = self.decide.agree(rejected, *_relative_pose(reference, pose))
        track = _make_track(view, reference, matches, result)
        if len(track.index0) < CONFIRMED_SHARE * len(kept.index0):
            return None
        used = np.isin(track.rows, kept.rows[pose.used])
        return replace(track, pose=replace(pose, used=used))

    def _locate(self, view: View, track: _Track) -> _Pose | None:
        """The pose that the landmarks of the reference's matched keypoints give."""
        ids = track.reference.landmark[track.index0]
        known = np.flatnonzero(ids >= 0)
        if len(known) < MIN_LANDMARKS:
            return None
        ids, x = ids[known], view.x[track.index1[known]]
        points, focal = self.map.points[ids], view.camera.focal
        camera = {"model": "SIMPLE_PINHOLE", "width": 1, "height": 1, "params": [focal, 0.0, 0.0]}
        pose, info = poselib.estimate_absolute_pose(
            x * focal,
            points,
            camera,
            {
                "max_reproj_error": PNP_THRESHOLD_PX,
                "min_iterations": PNP_SAMPLES,
                "seed": self.options.seed,
            },
            {
                "loss_type": "CAUCHY",
                "loss_scale": self.options.sigma_px,
                "max_iterations": PNP_REFINEMENTS,
            },
        )
        needed = max(MIN_LANDMARKS, MIN_LANDMARK_SHARE * len(known))
        if info["num_inliers"] < MIN_LANDMARKS:
            return None
        refined = refine_pose(
            pose.R, pose.t, points, x, self.map.sigma(view.camera), self.map.covariances[ids]
        )
        agree = refined.distance < OUTLIER_SIGMAS
        if agree.sum() < needed:
            return None
        used = np.zeros(len(track.index0), bool)
        used[known[agree]] = True
        return _Pose(refined.R_cw, refined.t_cw, refined.covariance, used)

    def _follow(self, view: View, track: _Track, frame: Frame, clock: _Clock) -> OdometryState:
        """A view located by landmarks: hold what did not move, make a keyframe if it is time."""
        pose, status = self._hold(view, track)
        self._failures = 0
        self._most_matches = max(self._most_matches, len(track.index0))
        inserted = None
        if status != NO_MOTION and self._keyframe_is_due(view, track, pose):
            older = self._return_to_older(view, track, pose, clock)
            if older is not None:
                track = older
                pose, status = self._hold(view, track)
            else:
                inserted = self._insert(view, track, pose, frame, clock)
        if status == OK and inserted is None:
            self._anchor = pose.R_cw, pose.t_cw
        where = inserted or pose
        depths = self._depths(where, track.reference.landmark[track.index0[pose.used]])
        self._depth = float(np.median(depths)) if len(depths) else self._depth
        return self._state(view, status, "", where, track, pose, clock, inserted is not None)

    def _hold(self, view: View, track: _Track) -> tuple[_Pose, str]:
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
            return _Pose(R_anchor, t_anchor, pose.covariance, pose.used), NO_MOTION
        sigma, spread = self.map.sigma(view.camera), self.map.covariances[ids]
        held = refine_pose(
            pose.R_cw, -pose.R_cw @ centre, points, x, sigma, spread, hold_centre=True
        )
        return _Pose(held.R_cw, held.t_cw, pose.covariance, pose.used), ROTATION_ONLY

    def _keyframe_is_due(self, view: View, track: _Track, pose: _Pose) -> bool:
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

    def _matches_run_thin(self, track: _Track) -> bool:
        share = self.options.keyframe_overlap
        # Without landmarks, what was left behind is lost: there is reason to stay.
        share = share if track.pose is not None else share / 2
        return len(track.index0) < share * self._most_matches

    def _parallax_deg(self, track: _Track, pose: _Pose) -> float:
        """Median angle at which landmarks see the reference and this camera."""
        points = self.map.points[track.reference.landmark[track.index0[pose.used]]]
        a, b = points - track.reference.centre, points - pose.centre
        across = np.linalg.norm(np.cross(a, b), axis=1)
        return float(np.degrees(np.median(np.arctan2(across, np.einsum("ij,ij->i", a, b)))))

    def _return_to_older(
        self, view: View, track: _Track, pose: _Pose, clock: _Clock
    ) -> _Track | None:
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
            found = self._track(view, keyframe, clock)
            if found.pose is None or found.pose.used.sum() < pose.used.sum():
                return None
            self._refer_to(keyframe)
            self._most_matches = len(found.index0)
            return found
        return None

    def _insert(
        self, view: View, track: _Track, pose: _Pose, frame: Frame, clock: _Clock
    ) -> Keyframe:
        """Make the view a keyframe: hand landmarks over, make new ones, refine the window."""
        reference = track.reference
        keyframe = Keyframe(view, pose.R_cw, pose.t_cw)
        keyframe.covariance = self._covariance(reference, pose)
        used = pose.used
        keyframe.landmark[track.index1[used]] = reference.landmark[track.index0[used]]
        self.map.add_keyframe(keyframe, keep=reference)
        self.map.triangulate(reference, keyframe, track.index0, track.index1)
        self._connect(keyframe, track, used)
        self.map.adjust(
            self.options.window, self.options.window_fixed, self.options.window_iterations
        )
        self._correct_scale(keyframe, reference, frame, about=keyframe.centre)
        self._refer_to(keyframe)
        self._anchor = keyframe.R_cw, keyframe.t_cw
        clock.lap("map")
        return keyframe

    def _connect(self, keyframe: Keyframe, track: _Track, used: np.ndarray) -> None:
        """Tie a new keyframe to more than the one it was matched to: longer, stiffer tracks.

        Landmarks of others are looked for where the pose says they should be, so that drift ends
        where the camera comes back to. What is left becomes new landmarks with one of them.
        """
        others = [
            other
            for shared, other in self.map.covisible(keyframe.landmark)
            if other is not keyframe and shared >= MIN_LANDMARKS
        ][:CONNECTED_KEYFRAMES]
        if not others:
            return
        view, reference = keyframe.view, track.reference
        distance = distance_by_row(
            reference.view.features.descriptors[track.index0[used]],
            view.features.descriptors[track.index1[used]],
        )
        ids, x, descriptors = self.map.expected(keyframe, others)
        found = find_near(
            x,
            descriptors,
            view.x,
            view.features.descriptors,
            radius=SEARCH_PX / view.camera.focal,
            max_distance=np.quantile(distance, ALIKE_SHARE),
        )
        new = found != NOT_FOUND
        new[new] = keyframe.landmark[found[new]] == NONE
        keyframe.landmark[found[new]] = ids[new]
        for other in others:
            if other is not reference:
                self._densify(other, keyframe)
                return

    def _densify(self, other: Keyframe, keyframe: Keyframe) -> None:
        """New landmarks from keypoints of two keyframes that show none yet.

        No filter has seen their matches; the poses, which are known, tell right from wrong.
        """
        free0, free1 = (np.flatnonzero(k.landmark == NONE) for k in (other, keyframe))
        matches = match(other.view.features.subset(free0), keyframe.view.features.subset(free1))
        index0 = free0[matches.index0[matches.mutual]]
        index1 = free1[matches.index1[matches.mutual]]
        E_10 = essential_from_pose(*_relative_pose(other, keyframe))
        threshold = CLOSE_SHARE * self.options.threshold_px / keyframe.view.camera.focal
        x0, x1 = other.view.x[index0], keyframe.view.x[index1]
        close = sampson_distance(E_10, x0, x1) < threshold**2
        self.map.triangulate(other, keyframe, index0[close], index1[close])

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

    def _two_view(self, view: View, track: _Track, frame: Frame, clock: _Clock) -> OdometryState:
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
            return self._turn(view, track, pose, status, "", clock)
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
            state = self._initialize(view, track, motion, agree, frame, clock)
            if state is not None:
                return state
            message = "too few points can be triangulated"
        # What was motion may be mistaken for a turn as large as the parallax.
        sigma_rad, sigma_position = np.radians(parallax), self._depth or 1.0
        centre = self._last.T_wc[:3, 3]
        pose = self._turned(track, motion.R_10, centre, sigma_rad, sigma_position)
        return self._turn(view, track, pose, status, message, clock)

    def _turned(
        self,
        track: _Track,
        R_10: np.ndarray,
        centre: np.ndarray,
        sigma_rad: float,
        sigma_position: float,
    ) -> _Pose:
        """The pose after a turn against the reference, at a given place."""
        R_cw = R_10 @ track.reference.R_cw
        spread = np.diag(np.repeat([sigma_rad, sigma_position], 3) ** 2)
        return _Pose(R_cw, -R_cw @ centre, spread, np.zeros(len(track.index0), bool))

    def _turn(
        self, view: View, track: _Track, pose: _Pose, status: str, message: str, clock: _Clock
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
        return self._state(view, status, message, pose, track, pose, clock, inserted is not None)

    def _remember(self, sight: Sight) -> None:
        """Keep what was seen since the reference; of many views every other one."""
        self._sights.append(sight)
        if len(self._sights) > MAX_SIGHTS:
            self._sights = self._sights[1::2]

    def _initialize(
        self,
        view: View,
        track: _Track,
        motion: Motion,
        agree: np.ndarray,
        frame: Frame,
        clock: _Clock,
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
        baseline = self._baseline(reference, index0[good], points0[good, 2])
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
        pose = _Pose(keyframe.R_cw, keyframe.t_cw, spread, used)
        self.map.add_keyframe(keyframe, keep=reference)
        origin = reference if self._initialized else self._look_back(reference, clock)
        keyframe.covariance = self._covariance(reference, pose)
        self._initialized, self._trust = True, 0
        self._correct_scale(keyframe, reference, frame, about=origin.centre)
        self._refer_to(keyframe)
        self._anchor = keyframe.R_cw, keyframe.t_cw
        self._depth = float(np.median(self._depths(keyframe, keyframe.landmark)))
        clock.lap("map")
        return self._state(view, OK, "", keyframe, track, pose, clock, True)

    def _look_back(self, reference: Keyframe, clock: _Clock) -> Keyframe:
        """Find the way that was held back before the first landmarks; the world stays.

        Each keyframe before the reference is located by the landmarks of the next, as far as that
        goes. The earliest one found keeps its pose, and all others move.
        """
        origin, spread = reference, np.zeros((6, 6))
        held = reference.R_cw, reference.t_cw
        for older in self.map.keyframes[-3::-1]:
            track = self._track(older.view, origin, clock)
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

    def _baseline(self, reference: Keyframe, index0: np.ndarray, depths: np.ndarray) -> float:
        """The distance of two views in the map's unit, given depths for a distance of one."""
        ids = reference.landmark[index0]
        common = ids >= 0
        if common.sum() >= MIN_COMMON_LANDMARKS:
            return float(np.median(self._depths(reference, ids[common]) / depths[common]))
        return 1.0 if self._depth is None else self._depth / float(np.median(depths))

    def _depths(self, where: Keyframe | _Pose, landmark: np.ndarray) -> np.ndarray:
        """Depths in a camera of the landmarks that are there."""
        points = self.map.points[landmark[landmark >= 0]]
        return points @ where.R_cw[2] + where.t_cw[2]

    def _refer_to(self, keyframe: Keyframe) -> None:
        self._reference = keyframe
        self._most_matches = 0
        self._sights = []

    def _fail(
        self, stamp_ns: int, message: str, track: _Track | None, clock: _Clock
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
            ms=clock.ms,
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

    def _restart(self, view: View, track: _Track, clock: _Clock) -> OdometryState:
        """Begin anew at the held pose: the view has not come back."""
        if len(view.x) < 5 * self.options.min_inliers:
            return self._fail(view.stamp_ns, "too few keypoints to start again", track, clock)
        state = self._start(view, clock)
        self._failures = 0
        return state

    def _covariance(self, reference: Keyframe, pose: _Pose) -> np.ndarray:
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
        where: _Pose | Keyframe,
        track: _Track | None,
        pose: _Pose | None,
        clock: _Clock,
        keyframe: bool,
    ) -> OdometryState:
        T_wc = _T_wc(where.R_cw, where.t_cw)
        spread = where.covariance
        if isinstance(where, _Pose):
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
            ms=clock.ms,
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


class _Clock:
    """Milliseconds since the last lap, by stage."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = {}
        self._now = time.perf_counter()

    def lap(self, stage: str, part_ms: float | None = None) -> None:
        """Add the time since the last lap to a stage, or a known part of it."""
        now = time.perf_counter()
        elapsed_ms = 1e3 * (now - self._now) if part_ms is None else part_ms
        self._now += elapsed_ms * 1e-3
        self.ms[stage] = self.ms.get(stage, 0.0) + elapsed_ms


def _check(frame: Frame) -> None:
    """Raise unless image, depth and camera fit together."""
    name = frame.name or "the image"
    frame.camera.check_image(frame.image, name)
    if frame.depth is not None and frame.depth.shape != frame.image.shape[:2]:
        raise CameraError(
            f"the depth image of {name} has another size than the image; register it to the image"
        )


def _make_track(
    view: View, reference: Keyframe, matches: Matches, result: TwoViewResult
) -> _Track:
    rows, kept = (nearest_rows(matches, chosen) for chosen in (result.inliers, result.kept))
    index1 = matches.index1[kept]
    sight = Sight(matches.index0[kept], index1, view.x[index1])
    return _Track(reference, result, matches.index0[rows], matches.index1[rows], rows, sight)


def _usual_parallax_deg(R_10: np.ndarray, x0: np.ndarray, x1: np.ndarray) -> float:
    """What enough of the matches show: far points have no parallax, however far one goes."""
    return float(np.quantile(parallax_deg(R_10, x0, x1), 1 - MIN_INITIAL_SHARE))


def _relative_pose(
    first: Keyframe | _Pose, second: Keyframe | _Pose
) -> tuple[np.ndarray, np.ndarray]:
    """R_10 and t_10 from the first camera to the second, in the map's unit."""
    R_10 = second.R_cw @ first.R_cw.T
    return R_10, second.t_cw - R_10 @ first.t_cw


def _T_wc(R_cw: np.ndarray, t_cw: np.ndarray) -> np.ndarray:
    T_wc = np.eye(4)
    T_wc[:3, :3], T_wc[:3, 3] = R_cw.T, -R_cw.T @ t_cw
    return T_wc


def _counts(track: _Track | None, landmarks: int) -> dict[str, int]:
    if track is None:
        return {"matches": 0, "kept": 0, "inliers": 0, "landmarks": 0}
    return {
        "matches": len(track.result.correspondences),
        "kept": int(track.result.kept.sum()),
        "inliers": int(track.result.inliers.sum()),
        "landmarks": int(landmarks),
    }

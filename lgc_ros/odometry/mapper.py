"""Keyframes are mapped at once, or in a thread of their own while tracking goes on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from lgc_ros.features.base import Features
from lgc_ros.odometry import covariance
from lgc_ros.odometry.camera_refinement import CameraRefinement
from lgc_ros.odometry.keyframe_matching import KeyframeMatcher
from lgc_ros.odometry.map import Keyframe, LandmarkMap, View, with_keypoints
from lgc_ros.odometry.map_check import MapCheck
from lgc_ros.odometry.mapping import insert_keyframe
from lgc_ros.odometry.metric_scale import Correction, MetricScale
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.tracking import MIN_LANDMARKS, Pose, Track
from lgc_ros.runtime.stage_timer import StageTimer


@dataclass(frozen=True, eq=False)
class KeyframeRequest:
    """A frame, located by optical flow, that should become a keyframe.

    Attributes:
        reference: keyframe of the map that it was located by.
        frame: view without keypoints.
        extract: returns the keypoints.
        depth: (H, W) meters; None if unknown.
    """

    reference: Keyframe
    frame: View
    extract: Callable[[], Features]
    pose: Pose
    depth: np.ndarray | None


@dataclass(frozen=True, eq=False)
class MappedKeyframe:
    """A keyframe that was inserted into the map.

    Attributes:
        correction: change of scale that the map went through with it.
    """

    keyframe: Keyframe
    view: View
    track: Track
    correction: Correction

    def motion_of_world(self, request: KeyframeRequest) -> np.ndarray:
        """(4, 4) from the world that tracking saw to the refined one, after the correction."""
        T_wc = covariance.T_wc(request.pose)
        factor, about = self.correction
        T_wc[:3, 3] = about + factor * (T_wc[:3, 3] - about)
        return covariance.T_wc(self.keyframe) @ np.linalg.inv(T_wc)


class Mapper:
    """Inserts keyframes that optical flow has located.

    While a request is being mapped in the background, the map must not be touched.
    """

    def __init__(
        self,
        landmarks: LandmarkMap,
        match: KeyframeMatcher,
        check: MapCheck,
        scale: MetricScale,
        refinement: CameraRefinement,
        options: OdometryOptions,
    ) -> None:
        self._map, self._match, self._check, self._scale = landmarks, match, check, scale
        self._refinement = refinement
        self._options = options
        self._thread: ThreadPoolExecutor | None = None
        self._pending: tuple[KeyframeRequest, Future[MappedKeyframe | None]] | None = None

    @property
    def busy(self) -> bool:
        """Whether a request is being mapped in the background."""
        return self._pending is not None

    def insert(self, request: KeyframeRequest, timer: StageTimer) -> MappedKeyframe | None:
        """Extract and match keypoints, add landmarks and refine the map around the keyframe.

        Returns:
            None if the keypoints do not confirm the pose.
        """
        view = with_keypoints(request.frame, request.extract())
        timer.lap("features")
        track = self._confirmed_by_keypoints(view, request, timer)
        if track is None or track.pose is None:
            return None
        keyframe = insert_keyframe(self._map, view, track, track.pose, self._options)
        self._refinement.update(self._map)
        correction = self._scale.measure(
            keyframe, track.reference, request.depth, about=keyframe.center
        )
        if correction.factor != 1.0:
            self._map.rescale(*correction)
        timer.lap("map")
        return MappedKeyframe(keyframe, view, track, correction)

    def _confirmed_by_keypoints(
        self, view: View, request: KeyframeRequest, timer: StageTimer
    ) -> Track | None:
        """The request matched to its reference or, if that was blurred, to a keyframe before."""
        reference, retries = request.reference, self._options.retry_keyframes
        others = self._map.latest_with_landmarks(MIN_LANDMARKS, other_than=reference)
        for keyframe in (reference, *others[:retries]):
            track = self._match(view, keyframe, self._map, timer, request.pose)
            if track.pose is not None:
                return track if self._check.accepts(view, track) else None
        return None

    def start(self, request: KeyframeRequest) -> None:
        """Insert a keyframe in the background."""
        assert not self.busy
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "mapping")
        self._pending = request, self._thread.submit(self.insert, request, StageTimer())

    def finished(self, wait: bool) -> tuple[KeyframeRequest, MappedKeyframe | None] | None:
        """The request that was started last and its result; None if there is none yet.

        Raises what mapping raised.
        """
        if self._pending is None:
            return None
        request, future = self._pending
        if not wait and not future.done():
            return None
        self._pending = None
        return request, future.result()

    def close(self) -> None:
        """Wait for the background, drop its result, and end its thread."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        self._pending = None

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

from lgc_ros.errors import CameraError, LgcError
from lgc_ros.features.base import Extractor, Features, make_extractor
from lgc_ros.features.image_sharpness import with_sharpness
from lgc_ros.features.keypoints import to_gray
from lgc_ros.filter.correspondence_filter import CorrespondenceFilter
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import Frame
from lgc_ros.odometry import bundle_adjustment, patch_alignment
from lgc_ros.odometry.camera_refinement import correction_px
from lgc_ros.odometry.context import Context
from lgc_ros.odometry.flow_path import FlowPath
from lgc_ros.odometry.keyframe_matching import KeyframeMatcher
from lgc_ros.odometry.map import LandmarkMap, WheelPose, make_view, with_keypoints
from lgc_ros.odometry.match_path import MatchPath
from lgc_ros.odometry.options import FLOW, OdometryOptions
from lgc_ros.odometry.state import OdometryState
from lgc_ros.odometry.unmapped_tracking import UnmappedTracking
from lgc_ros.runtime.stage_timer import StageTimer
from lgc_ros.runtime.threads import limit_threads


class VisualOdometry:
    """Feed it frames in order; it answers each with a state.

    Args:
        options: settings.
        extract: extractor to use instead of the one that the options name.
        background: map keyframes in a thread of their own while tracking goes on, for live use.

    Attributes:
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
            extract or make_extractor(o.features, o.max_keypoints, o.spread, o.extractor_model)
        )
        self._background = background
        self._matcher = KeyframeMatcher(o)
        bundle_adjustment.warm_up()
        patch_alignment.warm_up()
        self._start()

    @property
    def filter(self) -> CorrespondenceFilter | None:
        """The learned filter, if the method has one."""
        return self._matcher.solver.filter

    @property
    def scale_sigma(self) -> float:
        """Relative standard deviation of the scale; 1 while no source has measured it."""
        return self._context.scale.sigma

    def scale_warning(self) -> str:
        """What the scale source lacks if it could rarely measure; empty otherwise."""
        return self._context.scale.warning()

    @property
    def camera_correction_px(self) -> float:
        """How far the corners of the image move by the correction of the camera found so far."""
        latest = self.map.keyframes[-1:]
        return correction_px(latest[0].view.camera) if latest else 0.0

    def mapping_report(self) -> dict[str, str]:
        """Tracking, keyframes, time since the last one, mapper, correction of the camera."""
        last, keyframes = self._context.history.last, self.map.keyframes[-1:]
        age_s = (last.stamp_ns - keyframes[0].view.stamp_ns) * 1e-9 if last and keyframes else 0.0
        return {
            "tracking": self.options.tracking,
            "keyframes": str(len(self.map.keyframes)),
            "last_keyframe_s": f"{age_s:.2f}",
            "mapper": "busy" if self._flow_path.mapper.busy else "idle",
            "camera_correction_px": f"{self.camera_correction_px:.1f}",
        }

    def reset(self) -> None:
        """Forget everything but the settings; the next frame is the origin."""
        self.close()
        self._start()

    def _start(self) -> None:
        self._context = Context(self.options, self._matcher)
        unmapped = UnmappedTracking(self._context)
        self._flow_path = FlowPath(self._context, unmapped, self._background)
        self._match_path = MatchPath(self._context, unmapped)

    @property
    def map(self) -> LandmarkMap:
        """Keyframes and landmarks."""
        return self._context.map

    def close(self) -> None:
        """End the background thread, if there is one."""
        self._flow_path.mapper.close()

    def take_revised(self) -> list[OdometryState]:
        """States of earlier frames that could only be located now, each once."""
        revised, self._context.revised = self._context.revised, []
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
        refusal = self._context.history.refusal(frame)
        if refusal is not None:
            return refusal
        extract = features or partial(self.extract, frame.image)
        try:
            _check_sizes(frame, camera)
            gray = to_gray(frame.image) if self.options.tracking == FLOW else None
            self._flow_path.take_over_map(wait=False)
            view = make_view(frame.stamp_ns, self._refined(camera), T_oc, gray)
            state = self._flow_path.track(view, frame, extract, timer)
            if state is not None:
                return state
            # Flow has failed: match keypoints, on the map as the mapper leaves it.
            self._flow_path.take_over_map(wait=True)
            view = with_keypoints(replace(view, camera=self._refined(camera)), extract())
        except LgcError as error:
            return self._context.hold(frame.stamp_ns, str(error), None, timer)
        timer.lap("features")
        return self._match_path.track(view, frame, timer)

    def _refined(self, camera: Camera) -> Camera:
        """The camera with the correction that the map has."""
        radial = self._context.radial
        return replace(camera, radial=radial) if radial else camera


def _check_sizes(frame: Frame, camera: Camera) -> None:
    """Raise unless image, depth and camera fit together."""
    name = frame.name or "the image"
    camera.check_image(frame.image, name)
    if frame.depth is not None and frame.depth.shape != frame.image.shape[:2]:
        raise CameraError(
            f"the depth image of {name} has another size than the image; register it to the image"
        )

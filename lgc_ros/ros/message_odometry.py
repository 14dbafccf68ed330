"""Visual odometry fed with ROS messages: calibration, stamp checks and re-initialization."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from lgc_ros.errors import ImageError
from lgc_ros.features.base import Extractor, Features
from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.camera_checks import camera_warnings
from lgc_ros.images.encoding import image_from_message
from lgc_ros.images.frame import Frame
from lgc_ros.images.header import declared_size
from lgc_ros.images.stamps import stamp_ns
from lgc_ros.odometry.map import Keyframe, WheelPose
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.state import OdometryState
from lgc_ros.odometry.visual_odometry import VisualOdometry
from lgc_ros.ros.synchronizer import JUMP_BACK_NS
from lgc_ros.runtime.stage_timer import StageTimer

# Calibrations that differ by less than this, in pixels, are the same: some drivers recompute them
# for each image. Keypoints are at least ten times less precise.
SAME_CAMERA_PX = 0.01


class PendingImage:
    """An image message, decoded and searched for keypoints on first use.

    Both are independent of earlier frames, so another thread can do it ahead of tracking.

    Args:
        message: the image.
        camera_info: its calibration, which limits how many pixels are decoded.
        extract: keypoint extractor.

    Attributes:
        ms: duration of the extraction in milliseconds.
    """

    def __init__(
        self, message: Image | CompressedImage, camera_info: CameraInfo, extract: Extractor
    ) -> None:
        self.message, self.camera_info, self.extract = message, camera_info, extract
        self.ms = 0.0

    @cached_property
    def image(self) -> np.ndarray:
        if isinstance(self.message, CompressedImage):
            _check_declared_size(self.message, self.camera_info)
        return image_from_message(self.message)

    def features(self) -> Features:
        return self._features

    @cached_property
    def _features(self) -> Features:
        image, timer = self.image, StageTimer()
        features = self.extract(image)
        timer.lap("features")
        self.ms = timer.ms["features"]
        return features


@dataclass(frozen=True, eq=False)
class TrackedFrame:
    """A frame with the odometry state after it and before it (None for the first frame)."""

    frame: Frame
    state: OdometryState
    last: OdometryState | None


class MessageOdometry:
    """Visual odometry whose input is ROS messages.

    Args:
        options: settings of odometry.
        rectified: whether images are rectified: P of camera_info applies instead of K and D.
        background: whether keyframes are mapped in a thread of their own.
        on_reset: called with the reason when odometry is re-initialized.
        on_warning: called with what is unusual about a new calibration.
    """

    def __init__(
        self,
        options: OdometryOptions,
        rectified: bool,
        background: bool,
        on_reset: Callable[[str], None],
        on_warning: Callable[[str], None],
    ) -> None:
        self.odometry = VisualOdometry(options, background=background)
        self._rectified = rectified
        self._on_reset, self._on_warning = on_reset, on_warning
        self._calibration: tuple | None = None
        self._camera: Camera | None = None
        self._last: OdometryState | None = None
        self._frames = 0

    def reset(self, reason: str) -> None:
        """Re-initialize: the next frame is the origin."""
        self.odometry.reset()
        self._last = None
        self._on_reset(reason)

    def close(self) -> None:
        """End the thread that maps keyframes."""
        self.odometry.close()

    @property
    def has_pose(self) -> bool:
        """Whether the first keyframe exists; there is no pose before it."""
        return bool(self.keyframes)

    @property
    def keyframes(self) -> list[Keyframe]:
        """Keyframes of the map."""
        return self.odometry.map.keyframes

    @property
    def setup(self) -> dict[str, str]:
        """Method, model, engine, device and scale, for diagnostics."""
        options, filter_ = self.odometry.options, self.odometry.filter
        setup = {"method": options.method, "features": options.features, "device": "cpu"}
        setup |= self.odometry.mapping_report()
        if filter_ is not None:
            setup |= {
                "model": filter_.info.name,
                "engine": filter_.engine,
                "device": str(filter_.device),
            }
        sigma = self.odometry.scale_sigma
        known = "no" if sigma >= 1 else f"to {100 * sigma:.1f} %"
        return setup | {"scale": options.scale.source, "scale_known": known}

    def prepare(self, message: Image | CompressedImage, camera_info: CameraInfo) -> PendingImage:
        """Wrap an image, so that its keypoints can be extracted ahead of `track`."""
        return PendingImage(message, camera_info, self.odometry.extract)

    def read(self, prepared: PendingImage) -> Frame:
        """Decode an image and its calibration; a changed calibration resets odometry.

        Raises:
            LgcError: the image, its stamp or its calibration is invalid.
        """
        image = prepared.image
        camera = self._calibrated(prepared.camera_info)
        return Frame(self._frames, self._checked_stamp(prepared.message), image, camera)

    def track(self, frame: Frame, T_oc: WheelPose, prepared: PendingImage) -> TrackedFrame:
        """Process a frame; `T_oc` is the camera's pose in the wheel odometry frame."""
        if prepared.extract is not self.odometry.extract:  # the settings have changed since
            prepared = self.prepare(prepared.message, prepared.camera_info)
        state, last = self.odometry.process(frame, T_oc, prepared.features), self._last
        if "features" in state.ms:  # they may have been extracted ahead
            state = replace(state, ms=state.ms | {"features": prepared.ms})
        self._last = state
        self._frames += 1
        return TrackedFrame(frame, state, last)

    def _calibrated(self, camera_info: CameraInfo) -> Camera:
        """The current camera, or a new one if camera_info has changed."""
        calibration = _calibration(camera_info)
        if self._camera is not None and calibration == self._calibration:
            return self._camera
        camera = Camera.from_camera_info(camera_info, self._rectified)
        if self._camera is not None:
            if _same_camera(camera, self._camera):
                return self._camera
            self.reset("camera_info has changed")
        self._calibration, self._camera = calibration, camera
        for warning in camera_warnings(camera):
            self._on_warning(warning)
        return camera

    def _checked_stamp(self, message: Image | CompressedImage) -> int:
        now_ns = stamp_ns(message.header.stamp)
        if now_ns <= 0:
            raise ImageError("the images have no stamp: set header.stamp in the camera driver")
        if self._last is not None and now_ns <= self._last.stamp_ns:
            back_ns = self._last.stamp_ns - now_ns
            if back_ns <= JUMP_BACK_NS:
                raise ImageError(
                    "image ignored because it is not newer than the previous one: check that "
                    "only one camera publishes the topic"
                )
            self.reset(f"stamps jumped back by {back_ns * 1e-9:.3f} s")
        return now_ns


def _check_declared_size(message: CompressedImage, info: CameraInfo) -> None:
    """Raise if the image claims to be larger than the sensor: decoding would allocate it all."""
    declared = declared_size(bytes(message.data))
    if declared is None or not (info.width and info.height):
        return
    (width, height), (sensor_width, sensor_height) = declared, (info.width, info.height)
    if width > sensor_width or height > sensor_height:
        raise ImageError(
            f"a compressed image declares {width}x{height} pixels, but camera_info is for "
            f"{sensor_width}x{sensor_height}: use the camera_info of these images, or, if the "
            "camera has not changed, check the link for damaged data"
        )


def _same_camera(a: Camera, b: Camera) -> bool:
    """Whether both project all points to the same pixels within SAME_CAMERA_PX.

    A camera none of whose pixels has a ray, because its distortion is absurd, is like no other.
    """
    if (a.size, a.model) != (b.size, b.model):
        return False
    axes = [np.linspace(0, length - 1, 5) for length in b.size]
    x = b.normalize(np.stack(np.meshgrid(*axes), axis=-1))
    points_cam = np.column_stack([x, np.ones(len(x))])[np.isfinite(x).all(axis=1)]
    differences = abs(a.project(points_cam) - b.project(points_cam))
    return len(points_cam) > 0 and bool(np.all(differences < SAME_CAMERA_PX))


def _calibration(info: CameraInfo) -> tuple[Any, ...]:
    """All fields of the message that define the camera, for comparison."""
    roi = info.roi
    return (
        (info.width, info.height, info.binning_x, info.binning_y, info.distortion_model),
        (roi.x_offset, roi.y_offset, roi.width, roi.height),
        (*info.d, *info.k, *info.p),
    )

"""From messages to the state of odometry: calibration, stamps, and when to begin anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from lgc_ros.errors import ImageError
from lgc_ros.features.base import Extractor, Features
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.encoding import image_from_message
from lgc_ros.images.frame import Frame
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.state import OdometryState
from lgc_ros.odometry.visual_odometry import VisualOdometry
from lgc_ros.ros.messages import stamp_ns
from lgc_ros.ros.synchronizer import JUMP_BACK_NS

# Calibrations that differ by less than this, in pixels, are the same: drivers compute them anew
# for each image. Keypoints are ten times less precise, and more.
SAME_CAMERA_PX = 0.01


class PendingImage:
    """An image and its keypoints, found when they are first asked for: they need no other frame.

    Args:
        message: the image.
        extract: finds its keypoints.

    Attributes:
        ms: how long that took.
    """

    def __init__(self, message: Image | CompressedImage, extract: Extractor) -> None:
        self.message, self.extract = message, extract
        self.ms = 0.0

    @cached_property
    def image(self) -> np.ndarray:
        return image_from_message(self.message)

    def features(self) -> Features:
        return self._features

    @cached_property
    def _features(self) -> Features:
        image, start = self.image, perf_counter()
        features = self.extract(image)
        self.ms = 1e3 * (perf_counter() - start)
        return features


@dataclass(frozen=True, eq=False)
class Tracked:
    """A frame, the state after it, and the state before (None at the beginning)."""

    frame: Frame
    state: OdometryState
    last: OdometryState | None


class Tracker:
    """Odometry fed with messages.

    Args:
        options: settings of odometry.
        rectified: whether images are rectified, so that P of camera_info holds.
        on_reset: told the reason when odometry begins anew; what builds on earlier poses ends.
    """

    def __init__(
        self, options: OdometryOptions, rectified: bool, on_reset: Callable[[str], None]
    ) -> None:
        self.odometry = VisualOdometry(options)
        self._rectified = rectified
        self._on_reset = on_reset
        self._calibration: tuple | None = None
        self._camera: Camera | None = None
        self._last: OdometryState | None = None
        self._frames = 0

    def reset(self, reason: str) -> None:
        """Forget the way so far: the next frame is the origin."""
        self.odometry.reset()
        self._last = None
        self._on_reset(reason)

    @property
    def has_begun(self) -> bool:
        """Whether a frame was good enough to begin with; there is no pose before."""
        return bool(self.odometry.map.keyframes)

    @property
    def setup(self) -> dict[str, str]:
        """What does the work, and how well the scale is known."""
        options, filter_ = self.odometry.options, self.odometry.filter
        setup = {"method": options.method, "features": options.features, "device": "cpu"}
        if filter_ is not None:
            setup |= {
                "model": filter_.info.name,
                "engine": filter_.engine,
                "device": str(filter_.device),
            }
        sigma = self.odometry.scale_sigma
        known = "no" if sigma >= 1 else f"to {100 * sigma:.1f} %"
        return setup | {"scale": options.scale.source, "scale_known": known}

    def prepare(self, message: Image | CompressedImage) -> PendingImage:
        """An image to be read and tracked; its keypoints can be found in another thread before."""
        return PendingImage(message, self.odometry.extract)

    def read(self, prepared: PendingImage, camera_info: CameraInfo) -> Frame:
        """The image and its camera, which may be a reason to begin anew.

        Raises:
            LgcError: the image or its calibration cannot be used.
        """
        image = prepared.image
        camera = self._calibrated(camera_info)
        return Frame(self._frames, self._checked_stamp(prepared.message), image, camera)

    def track(self, frame: Frame, T_oc: np.ndarray | None, prepared: PendingImage) -> Tracked:
        """The state after this frame; `T_oc` is the camera's pose in the wheel odometry."""
        if prepared.extract is not self.odometry.extract:  # settings have changed meanwhile
            prepared = self.prepare(prepared.message)
        state, last = self.odometry.process(frame, T_oc, prepared.features), self._last
        state = replace(state, ms=state.ms | {"features": prepared.ms})
        self._last = state
        self._frames += 1
        return Tracked(frame, state, last)

    def _calibrated(self, camera_info: CameraInfo) -> Camera:
        """The camera in use, or a new one if camera_info has changed since that was read."""
        calibration = _calibration(camera_info)
        if calibration == self._calibration:
            return self._camera
        camera = Camera.from_camera_info(camera_info, self._rectified)
        if self._camera is not None:
            if _same_camera(camera, self._camera):
                return self._camera
            self.reset("camera_info has changed")
        self._calibration, self._camera = calibration, camera
        return camera

    def _checked_stamp(self, message: Image | CompressedImage) -> int:
        now_ns = stamp_ns(message.header.stamp)
        if now_ns <= 0:
            raise ImageError("the images have no stamp: let the camera driver set header.stamp")
        if self._last is not None and now_ns <= self._last.stamp_ns:
            back_ns = self._last.stamp_ns - now_ns
            if back_ns <= JUMP_BACK_NS:
                raise ImageError(
                    "an image is not newer than the one before, and is ignored: check that one "
                    "camera alone publishes the topic"
                )
            self.reset(f"stamps jumped back by {back_ns * 1e-9:.3f} s")
        return now_ns


def _same_camera(a: Camera, b: Camera) -> bool:
    """Whether both see all points in the same pixels, but for SAME_CAMERA_PX."""
    if (a.size, a.model) != (b.size, b.model):
        return False
    axes = [np.linspace(0, length - 1, 5) for length in b.size]
    x = b.normalize(np.stack(np.meshgrid(*axes), axis=-1))
    points_cam = np.column_stack([x, np.ones(len(x))])[np.isfinite(x).all(axis=1)]
    return bool(np.all(abs(a.project(points_cam) - b.project(points_cam)) < SAME_CAMERA_PX))


def _calibration(info: CameraInfo) -> tuple[Any, ...]:
    """All of the message that makes the camera, to tell whether it changed."""
    roi = info.roi
    return (
        (info.width, info.height, info.binning_x, info.binning_y, info.distortion_model),
        (roi.x_offset, roi.y_offset, roi.width, roi.height),
        (*info.d, *info.k, *info.p),
    )

"""Input of the scale source: wheel odometry or depth at the time of an image."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from nav_msgs.msg import Odometry
from sensor_msgs.msg import Image

from lgc_ros.errors import ImageError
from lgc_ros.images.encoding import depth_from_message
from lgc_ros.images.frame import Frame
from lgc_ros.images.stamps import stamp_ns
from lgc_ros.sources.trajectory import trajectory_from_samples

# An image waits this long for a message with its own stamp or a later one ...
WAIT_S = 0.2
# ... unless the latest message is older by this much: another clock never catches up.
FAR_BEHIND_NS = 10**9
# Poses further apart than this are not interpolated.
MAX_GAP_NS = 5 * 10**8
# Several seconds of wheel odometry at any usual rate; a few depth images that overtake an image.
POSES, DEPTHS = 200, 5


class _Latest:
    """Buffer of the latest messages of a topic; one thread adds them, another looks them up.

    Attributes:
        length: capacity in messages.
        met_s: when (monotonic seconds) an image last found its counterpart.
        fault: why the latest message is invalid; empty if it is valid.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self.met_s = float("-inf")
        self.fault = ""
        self._samples: deque[tuple[int, Any]] = deque(maxlen=length)
        self._changed = threading.Condition()

    def add(self, message: Any) -> None:
        """Add a message; if its stamp jumps back, drop the earlier messages."""
        now_ns = stamp_ns(message.header.stamp)
        with self._changed:
            if self._samples and now_ns < self._samples[-1][0]:
                self._samples.clear()
            self._samples.append((now_ns, message))
            self._changed.notify()

    def _wait_for(self, now_ns: int, slop_ns: int = 0) -> None:
        """Wait until the buffer reaches the stamp; return early if it never will."""

        def is_over() -> bool:
            behind_ns = now_ns - self._samples[-1][0] if self._samples else FAR_BEHIND_NS
            return not slop_ns < behind_ns < FAR_BEHIND_NS

        with self._changed:
            self._changed.wait_for(is_over, WAIT_S)

    def _messages(self) -> list[tuple[int, Any]]:
        with self._changed:
            return list(self._samples)


class WheelOdometry(_Latest):
    """Wheel odometry, interpolated at the stamps of the images.

    A message that arrives too late for its image may still be in time for a keyframe, so the pose
    is looked up when it is needed.
    """

    name, kind = "odom", Odometry

    def __init__(self) -> None:
        super().__init__(POSES)
        self._missed_ns: int | None = None  # oldest image without a counterpart

    def add(self, message: Odometry) -> None:
        position, quaternion = _pose(message)
        norm = np.linalg.norm(quaternion)
        if not (np.isfinite(position).all() and 0.5 < norm < 2.0):
            self.fault = (
                "the wheel odometry has an invalid pose (NaN, or a quaternion of length 0): check "
                "its publisher"
            )
            return
        self.fault = ""
        super().add(message)

    def measure(
        self, frame: Frame, T_bc: np.ndarray
    ) -> tuple[Frame, Callable[[], np.ndarray | None]]:
        """The frame, and a function that returns the camera pose by wheel odometry.

        It returns None until messages from before and after the image have arrived. `T_bc` is the
        pose of the camera in the base frame.
        """
        self._wait_for(frame.stamp_ns)
        missed_ns = self._missed_ns
        if missed_ns is None or not 0 < frame.stamp_ns - missed_ns < FAR_BEHIND_NS:
            missed_ns = frame.stamp_ns
        self._missed_ns = missed_ns
        if any(self._T_ob(asked_ns) is not None for asked_ns in (frame.stamp_ns, missed_ns)):
            self.met_s, self._missed_ns = time.monotonic(), None
        return frame, partial(self._T_oc, frame.stamp_ns, T_bc)

    def _T_oc(self, stamp_ns: int, T_bc: np.ndarray) -> np.ndarray | None:
        # In a turn, the camera and the base travel different distances.
        T_ob = self._T_ob(stamp_ns)
        return None if T_ob is None else T_ob @ T_bc

    def _T_ob(self, stamp_ns: int) -> np.ndarray | None:
        """The pose interpolated between the messages before and after a stamp."""
        samples = self._messages()
        after = bisect_left(samples, stamp_ns, key=lambda sample: sample[0])
        nearest = samples[max(after - 1, 0) : after + 1]
        if not nearest:
            return None
        positions, quaternions = zip(*(_pose(message) for _, message in nearest), strict=True)
        stamps_ns = [now_ns for now_ns, _ in nearest]
        trajectory = trajectory_from_samples(stamps_ns, positions, quaternions, self.name)
        return trajectory.pose_at(stamp_ns, MAX_GAP_NS)


class DepthImages(_Latest):
    """Depth images registered to the images, with equal stamps up to a slop."""

    name, kind = "depth", Image

    def __init__(self, slop_s: float) -> None:
        super().__init__(DEPTHS)
        self._slop_ns = round(slop_s * 1e9)

    def measure(self, frame: Frame, T_bc: np.ndarray) -> tuple[Frame, None]:
        """The frame with its depth, if one arrived."""
        self._wait_for(frame.stamp_ns, self._slop_ns)
        samples = self._messages()
        apart_ns = {abs(frame.stamp_ns - now_ns): message for now_ns, message in samples}
        nearest_ns = min(apart_ns, default=None)
        if nearest_ns is None or nearest_ns > self._slop_ns:
            return frame, None
        self.met_s = time.monotonic()
        message = apart_ns[nearest_ns]
        self.fault = ""
        try:
            depth = depth_from_message(message)
            if depth.shape != frame.image.shape[:2]:
                raise ImageError(
                    f"the depth image is {message.width}x{message.height} pixels, the image is "
                    f"{frame.image.shape[1]}x{frame.image.shape[0]}: publish depth "
                    "registered to the image"
                )
        except ImageError as error:
            self.fault = str(error)
            return frame, None
        return replace(frame, depth=depth), None


def _pose(message: Odometry) -> tuple[np.ndarray, np.ndarray]:
    """Position and quaternion w x y z."""
    p, q = message.pose.pose.position, message.pose.pose.orientation
    return np.array([p.x, p.y, p.z]), np.array([q.w, q.x, q.y, q.z])


ScaleInput = WheelOdometry | DepthImages


def scale_input(source: str, slop_s: float) -> ScaleInput | None:
    """The input of a scale source; None if it needs no topic."""
    if source == WheelOdometry.name:
        return WheelOdometry()
    return DepthImages(slop_s) if source == DepthImages.name else None

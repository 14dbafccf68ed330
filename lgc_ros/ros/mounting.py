"""Pose of the camera on the robot, from a parameter or TF; never assumed."""

from __future__ import annotations

import threading
import time

import numpy as np
from rclpy.node import Node
from rclpy.time import Time

from lgc_ros.errors import ConfigError
from lgc_ros.ros import compat
from lgc_ros.ros.messages import matrix_of

# Maximum wait for the transform after the first image: another process publishes it, and DDS may
# discover it later.
WAIT_S = 5.0
POLL_S = 0.02


class Mounting:
    """The pose of a camera's optical frame in the base frame, for a camera fixed to the robot.

    Args:
        node: the node that listens to TF, if tf2_ros is installed.
        base_frame: frame of the robot.
        T_bc: (4, 4) camera to base, if set by parameter.
    """

    def __init__(self, node: Node, base_frame: str, T_bc: np.ndarray | None) -> None:
        self._base_frame = base_frame
        self._given = T_bc
        self._found: dict[str, np.ndarray] = {}
        self._wait_until_s: dict[str, float] = {}
        self._closed = False
        self._buffer = self._listener = None
        if T_bc is None and compat.tf2_ros is not None:
            self._buffer = compat.tf2_ros.Buffer()
            self._listener = compat.tf2_ros.TransformListener(self._buffer, node)

    def wait_for(self, camera_frame: str, stopping: threading.Event) -> None:
        """Wait for the transform of a camera frame, at most WAIT_S after its first image.

        Call it from another thread than the one that receives TF, without holding its locks.
        """
        until_s = self._wait_until_s.setdefault(camera_frame, time.monotonic() + WAIT_S)
        while self._is_awaited(camera_frame) and time.monotonic() < until_s:
            if stopping.wait(POLL_S):
                return

    def T_bc(self, camera_frame: str) -> np.ndarray:
        """Camera to base; a transform from TF is kept, because the camera is fixed.

        Raises:
            ConfigError: there is no transform; the message names the frames.
        """
        if self._given is not None:
            return self._given
        if camera_frame == self._base_frame:
            return np.eye(4)
        if camera_frame not in self._found:
            self._found[camera_frame] = self._look_up(camera_frame)
        return self._found[camera_frame]

    def close(self) -> None:
        """Stop listening to TF."""
        self._closed = True
        if self._listener is not None:
            self._listener.unregister()

    def _is_awaited(self, camera_frame: str) -> bool:
        """Whether TF lacks this frame but may still receive it."""
        if self._buffer is None or self._closed or camera_frame in self._found:
            return False
        if camera_frame in ("", self._base_frame):
            return False
        return not self._buffer.can_transform(self._base_frame, camera_frame, Time())

    def _look_up(self, camera_frame: str) -> np.ndarray:
        base_frame = self._base_frame
        give_pose = "set base_to_camera to x y z qx qy qz qw"
        if not camera_frame:
            raise ConfigError(
                "header.frame_id of the images is empty: set it in the camera driver, or "
                f"{give_pose}"
            )
        remedy = (
            f"{give_pose}, or set base_frame to the camera frame to get the motion of the camera"
        )
        missing = f"no transform from base_frame '{base_frame}' to camera frame '{camera_frame}'"
        if self._buffer is None or compat.tf2_ros is None:
            raise ConfigError(f"{missing}, because tf2_ros is not installed: {remedy}")
        try:
            found = self._buffer.lookup_transform(base_frame, camera_frame, Time())
        except compat.tf2_ros.TransformException as error:
            raise ConfigError(
                f"{missing} ({error}): publish it, for example with "
                f"robot_state_publisher or static_transform_publisher, or {remedy}"
            ) from error
        return matrix_of(found.transform)

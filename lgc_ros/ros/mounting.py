"""Where the camera sits on the robot: from a parameter, or from TF; never guessed."""

from __future__ import annotations

import threading
import time

import numpy as np
from rclpy.node import Node
from rclpy.time import Time

from lgc_ros.errors import ConfigError
from lgc_ros.ros import compat
from lgc_ros.ros.messages import matrix_of

# So long may a transform come later than the first image of its camera: another process publishes
# it, and both are found at about the same time.
WAIT_S = 5.0
POLL_S = 0.02


class Mounting:
    """The pose of a camera's optical frame in the base frame, for a camera fixed to the robot.

    Args:
        node: whose TF is listened to, where there is TF.
        base_frame: the robot.
        T_bc: (4, 4) camera to base, if the user gave it.
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
        """Let a transform arrive that is on its way; for WAIT_S at most, counted once per frame.

        To be called in another thread than the one that receives TF, without a lock that it needs.
        """
        until_s = self._wait_until_s.setdefault(camera_frame, time.monotonic() + WAIT_S)
        while self._may_learn(camera_frame) and time.monotonic() < until_s:
            if stopping.wait(POLL_S):
                return

    def T_bc(self, camera_frame: str) -> np.ndarray:
        """Camera to base; what TF said once is kept, since the camera is fixed.

        Raises:
            ConfigError: nobody said where the camera is; the message names the frames.
        """
        if self._given is not None:
            return self._given
        if camera_frame == self._base_frame:
            return np.eye(4)
        if camera_frame not in self._found:
            self._found[camera_frame] = self._ask(camera_frame)
        return self._found[camera_frame]

    def close(self) -> None:
        """Stop listening to TF."""
        self._closed = True
        if self._listener is not None:
            self._listener.unregister()

    def _may_learn(self, camera_frame: str) -> bool:
        """Whether TF does not know this frame, but may yet."""
        if self._buffer is None or self._closed or camera_frame in self._found:
            return False
        if camera_frame in ("", self._base_frame):
            return False
        return not self._buffer.can_transform(self._base_frame, camera_frame, Time())

    def _ask(self, camera_frame: str) -> np.ndarray:
        base_frame = self._base_frame
        give_pose = "set base_to_camera to x y z qx qy qz qw"
        if not camera_frame:
            raise ConfigError(
                "the images name no frame (header.frame_id is empty): let the camera driver set "
                f"it, or {give_pose}"
            )
        remedy = (
            f"{give_pose}, or base_frame to the camera's frame to get the motion of the camera "
            "itself"
        )
        where = f"where '{camera_frame}' (camera) is on '{base_frame}' (base_frame)"
        if self._buffer is None:
            raise ConfigError(f"nobody says {where}, and there is no TF here: {remedy}")
        try:
            found = self._buffer.lookup_transform(base_frame, camera_frame, Time())
        except compat.tf2_ros.TransformException as error:
            raise ConfigError(
                f"TF does not say {where} ({error}): publish it, for example with "
                f"robot_state_publisher or static_transform_publisher, or {remedy}"
            ) from error
        return matrix_of(found.transform)

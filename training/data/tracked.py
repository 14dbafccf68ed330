"""Images of a moving camera whose poses come from a trajectory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from lgc_ros.errors import DatasetError
from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.trajectory import Trajectory
from training.data.scene import PosedImage

StampedImage = tuple[str, int, Callable[[], np.ndarray], Path | None]
"""Name, stamp in ns, loader and file (if it is one) of an image."""


def tracked_images(
    frames: Sequence[StampedImage],
    camera: Camera,
    trajectory: Trajectory,
    max_gap_s: float,
    where: Path,
    T_body_camera: np.ndarray | None = None,
) -> tuple[tuple[PosedImage, ...], np.ndarray]:
    """The frames with a pose, and their numbers (M,) among all frames.

    A pose is known between samples of the trajectory that are at most `max_gap_s` apart.
    `T_body_camera` (4, 4) places the camera on the body whose trajectory is given.
    """
    T_bc = np.eye(4) if T_body_camera is None else T_body_camera
    images, numbers = [], []
    for number, (name, stamp_ns, load, path) in enumerate(frames):
        T_wb = trajectory.pose_at(stamp_ns, round(max_gap_s * 1e9))
        if T_wb is None:
            continue
        T_cw = np.linalg.inv(T_wb @ T_bc)
        images.append(PosedImage(name, camera, T_cw[:3, :3], T_cw[:3, 3], load, path))
        numbers.append(number)
    if not images:
        raise DatasetError(
            f"{where}: none of {len(frames)} images lies between two poses {max_gap_s} s apart or "
            "less: give the trajectory of this recording, with stamps on the same clock"
        )
    return tuple(images), np.array(numbers)

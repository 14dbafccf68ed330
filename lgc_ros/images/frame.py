"""One image of a sequence with its camera, ground-truth pose and depth, where known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lgc_ros.errors import ImageError
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.encoding import decode_compressed


@dataclass(frozen=True, eq=False)
class Frame:
    """An image with its stamp and, where known, its camera, ground-truth pose and depth."""

    index: int
    stamp_ns: int
    image: np.ndarray  # uint8, gray (H, W) or BGR (H, W, 3)
    camera: Camera | None = None
    T_wc: np.ndarray | None = None  # (4, 4) ground truth, camera to world, meters
    depth: np.ndarray | None = None  # (H, W) float32 meters, 0 = unknown
    name: str = ""
    T_oc: np.ndarray | None = None  # (4, 4) camera pose from wheel odometry, meters


def read_image(path: str | Path) -> np.ndarray:
    """Read an image file as uint8, gray (H, W) or BGR (H, W, 3).

    An EXIF rotation flag is not applied, because calibrations refer to the orientation of the
    sensor.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise ImageError(f"image {path} does not exist; check the path") from error
    except OSError as error:
        raise ImageError(f"image {path} cannot be opened: {error.strerror}") from error
    try:
        return decode_compressed(data)
    except ImageError as error:
        raise ImageError(f"{path} is not a readable image: {error}") from error

"""What users may write for `--camera`: a file, numbers, a dataset, or a guess.

camera.yaml              calibration of ROS, OpenCV, Kalibr, ORB-SLAM or EuRoC
camchain.yaml:cam1       another camera of a Kalibr file than the first
fx,fy,cx,cy[,k1,k2,p1,p2[,k3]]
tum-fr1, euroc, kitti-00 cameras of public datasets
fov:70                   horizontal field of view in degrees: a guess
exif                     focal length that a phone wrote into its photo: a guess
"""

from __future__ import annotations

import difflib
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lgc_ros.errors import CameraError
from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.camera_files import pinhole_K, read_camera
from lgc_ros.geometry.camera_presets import PRESETS
from lgc_ros.images.exif import read_focal_length

log = logging.getLogger(__name__)

FORMS = (
    "a calibration file, fx,fy,cx,cy[,k1,k2,p1,p2[,k3]] in pixels, a dataset "
    "(tum-fr1, euroc, kitti-00, ...), or a guess: fov:DEGREES (horizontal) or exif"
)
MAX_FOV_DEG = 170.0
INLINE_COUNTS = (4, 8, 9)
EXIF = "exif"


class SampleImage(NamedTuple):
    """One of the images that a camera is chosen for."""

    size: tuple[int, int]  # width and height in pixels
    path: Path | None = None


LookUpImage = Callable[[], SampleImage]
"""Reads an image; called only if the choice depends on it."""


def choose_camera(choice: str | Path, look_up: LookUpImage, rectified: bool = False) -> Camera:
    """The camera that `--camera` names; guesses are logged as warnings."""
    text = str(choice)
    if Path(choice).exists():
        return read_camera(choice, rectified, lambda: look_up().size)
    if text in PRESETS:
        return PRESETS[text]
    if text == EXIF:
        return _from_exif(look_up())
    if text.startswith("fov:"):
        return _from_field_of_view(text.removeprefix("fov:"), look_up().size)
    if "," in text:
        return _from_numbers(text, look_up().size)
    file, _, name = text.rpartition(":")
    if file and Path(file).exists():
        return read_camera(file, rectified, lambda: look_up().size, name)
    close = difflib.get_close_matches(text, PRESETS, 1)
    hint = f"; did you mean {close[0]}?" if close else f"; give {FORMS}"
    raise CameraError(f"camera file {text}: the file does not exist; check the path{hint}")


def _from_numbers(text: str, size: tuple[int, int]) -> Camera:
    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in INLINE_COUNTS:
        raise CameraError(
            f"--camera {text:.80} is not fx,fy,cx,cy[,k1,k2,p1,p2[,k3]]: give 4, 8 or 9 numbers "
            "separated by commas, without spaces"
        )
    return Camera.from_K(np.array(pinhole_K(*numbers[:4])), *size, numbers[4:])


def _from_field_of_view(text: str, size: tuple[int, int]) -> Camera:
    try:
        degrees = float(text)
    except ValueError:
        degrees = math.nan
    if not 0 < degrees < MAX_FOV_DEG:
        raise CameraError(
            f"--camera fov:{text:.80} must be the horizontal field of view in degrees, more than "
            f"0 and less than {MAX_FOV_DEG:g}"
        )
    focal_px = size[0] / 2 / math.tan(math.radians(degrees) / 2)
    return _guessed(focal_px, size, f"a horizontal field of view of {degrees:g} degrees")


def _from_exif(image: SampleImage) -> Camera:
    if image.path is None:
        raise CameraError(
            "--camera exif needs image files, and this source has none: give the horizontal field "
            "of view instead, such as --camera fov:70"
        )
    focal = read_focal_length(image.path, image.size)
    return _guessed(focal.px, image.size, f"EXIF of {image.path.name}: {focal.origin}")


def _guessed(focal_px: float, size: tuple[int, int], origin: str) -> Camera:
    """A pinhole camera without distortion whose principal point is the center of the image."""
    log.warning(
        "the camera is a GUESS: focal length %.0f px (%s), center as principal point, no lens "
        "distortion. Trajectories bend and angles are off by as much as the guess is. Calibrate "
        "for results you rely on: lgc calibrate VIDEO --board 9x6 --square 0.025",
        focal_px,
        origin,
    )
    width, height = size
    K = np.array(pinhole_K(focal_px, focal_px, (width - 1) / 2, (height - 1) / 2))
    return Camera.from_K(K, width, height)

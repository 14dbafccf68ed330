"""The focal length that a camera or phone wrote into a photo (EXIF)."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from lgc_ros.errors import CameraError

EXIF_IFD = 0x8769
FOCAL_LENGTH_MM = 0x920A
FOCAL_LENGTH_35MM = 0xA405
IMAGE_WIDTH_PX = 0xA002
SENSOR_PX_PER_UNIT = 0xA20E
SENSOR_UNIT = 0xA210
UNITS_MM = {2: 25.4, 3: 10.0}  # inch, centimeter
DIAGONAL_35MM = math.hypot(36.0, 24.0)


class ExifFocalLength(NamedTuple):
    """Focal length in pixels of the image, and how it was found."""

    px: float
    origin: str


def read_focal_length(path: Path, size: tuple[int, int]) -> ExifFocalLength:
    """The focal length in pixels of an image file of this size.

    It follows from the equivalent on 35 mm film, which compares diagonals of image and film, or
    from the focal length and the resolution of the sensor.
    """
    tags = _read_tags(path)
    equivalent_mm = _number(tags, FOCAL_LENGTH_35MM)
    if equivalent_mm:
        px = equivalent_mm * math.hypot(*size) / DIAGONAL_35MM
        return ExifFocalLength(px, f"{equivalent_mm:g} mm on 35 mm film")
    focal_mm, resolution = _number(tags, FOCAL_LENGTH_MM), _number(tags, SENSOR_PX_PER_UNIT)
    unit_mm = UNITS_MM.get(int(_number(tags, SENSOR_UNIT)) or 2)
    if focal_mm and resolution and unit_mm:
        # The sensor has more pixels than an image that was resized.
        shrunk = size[0] / (_number(tags, IMAGE_WIDTH_PX) or size[0])
        px = focal_mm * resolution / unit_mm * shrunk
        return ExifFocalLength(px, f"{focal_mm:g} mm, {resolution / unit_mm:.0f} pixels per mm")
    raise CameraError(
        f"{path} has no focal length in its EXIF data (FocalLengthIn35mmFilm, or FocalLength with "
        "FocalPlaneXResolution): give the horizontal field of view instead, such as "
        "--camera fov:70"
    )


def _read_tags(path: Path) -> dict[int, Any]:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about damaged tags, which then are missing
            with Image.open(path) as image:
                return dict(image.getexif().get_ifd(EXIF_IFD))
    except Exception as error:  # damaged files can raise anything
        raise CameraError(f"the EXIF data of {path} cannot be read ({error})") from error


def _number(tags: dict[int, Any], tag: int) -> float:
    """A positive value of a tag; 0 if it is missing, unknown or damaged."""
    try:
        value = float(tags.get(tag, 0))
    except (TypeError, ValueError, ZeroDivisionError):
        return 0.0
    return value if math.isfinite(value) and value > 0 else 0.0

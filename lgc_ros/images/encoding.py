"""Decode ROS image messages without ROS, for both the node and the bag reader.

Encodings are defined in sensor_msgs/image_encodings.hpp; conversions to eight bits and from Bayer
patterns follow cv_bridge.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import cv2
import numpy as np

from lgc_ros.errors import ImageError
from lgc_ros.images.header import PNG_SIGNATURE, declared_size


class Encoding(NamedTuple):
    """Layout of a pixel and the OpenCV code that converts it to gray or BGR (None: not needed)."""

    dtype: str
    channels: int
    conversion: int | None = None


# OpenCV names a Bayer pattern by pixels 2 and 3 of row 2, ROS by the first four pixels.
_BAYER = {
    "bayer_rggb": cv2.COLOR_BayerBG2BGR,
    "bayer_bggr": cv2.COLOR_BayerRG2BGR,
    "bayer_gbrg": cv2.COLOR_BayerGR2BGR,
    "bayer_grbg": cv2.COLOR_BayerGB2BGR,
}
_COLORS = {
    "mono": (1, None),
    "bgr": (3, None),
    "rgb": (3, cv2.COLOR_RGB2BGR),
    "bgra": (4, cv2.COLOR_BGRA2BGR),
    "rgba": (4, cv2.COLOR_RGBA2BGR),
    **{name: (1, conversion) for name, conversion in _BAYER.items()},
}

IMAGE_ENCODINGS: dict[str, Encoding] = {
    **{f"{name}8": Encoding("u1", *layout) for name, layout in _COLORS.items()},
    **{f"{name}16": Encoding("u2", *layout) for name, layout in _COLORS.items()},
    "8UC1": Encoding("u1", 1),
    "8UC3": Encoding("u1", 3),
    "8UC4": Encoding("u1", 4, cv2.COLOR_BGRA2BGR),
    "yuv422": Encoding("u1", 2, cv2.COLOR_YUV2BGR_UYVY),
    "uyvy": Encoding("u1", 2, cv2.COLOR_YUV2BGR_UYVY),
    "yuv422_yuy2": Encoding("u1", 2, cv2.COLOR_YUV2BGR_YUY2),
    "yuyv": Encoding("u1", 2, cv2.COLOR_YUV2BGR_YUY2),
}
DEPTH_ENCODINGS: dict[str, Encoding] = {
    "16UC1": Encoding("u2", 1),  # millimeters (REP-118)
    "mono16": Encoding("u2", 1),
    "32FC1": Encoding("f4", 1),  # meters
}


def _pixel_limit(text: str) -> int:
    """Value of OPENCV_IO_MAX_IMAGE_PIXELS: a number, perhaps with KB or MB, as OpenCV reads it."""
    suffix = text.lstrip("0123456789")  # cv2 cannot be imported with other values
    return int(text.removesuffix(suffix)) << {"KB": 10, "MB": 20}.get(suffix.upper(), 0)


# The default is set in lgc_ros/__init__.py.
MAX_PIXELS = _pixel_limit(os.environ["OPENCV_IO_MAX_IMAGE_PIXELS"])
PNG_CHUNK_BYTES = 12  # length, type and checksum around the data of each chunk


def decode_image(
    encoding: str, height: int, width: int, step: int, is_bigendian: bool, data: Any
) -> np.ndarray:
    """Pixels of a sensor_msgs/Image as uint8, gray (H, W) or BGR (H, W, 3), not sharing `data`."""
    if encoding not in IMAGE_ENCODINGS:
        hint = "it is a depth encoding, give an image topic" if encoding in DEPTH_ENCODINGS else ""
        raise ImageError(
            f"image encoding '{encoding}' is not supported: "
            + (hint or f"configure the camera driver for one of {', '.join(IMAGE_ENCODINGS)}")
        )
    layout = IMAGE_ENCODINGS[encoding]
    pixels = _pixels(layout, encoding, height, width, step, is_bigendian, data)
    if layout.conversion is not None:
        try:
            pixels = cv2.cvtColor(pixels, layout.conversion)
        except cv2.error as error:
            raise ImageError(
                f"a {width}x{height} image cannot be encoded as {encoding}, which stores pixels "
                "in pairs: check the camera driver"
            ) from error
    return pixels if pixels.dtype == np.uint8 else cv2.convertScaleAbs(pixels, alpha=255 / 65535)


def decode_depth(
    encoding: str, height: int, width: int, step: int, is_bigendian: bool, data: Any
) -> np.ndarray:
    """Depth (H, W) float32 in meters of a sensor_msgs/Image; 0 where unknown."""
    if encoding not in DEPTH_ENCODINGS:
        raise ImageError(
            f"'{encoding}' is not a depth encoding: give a depth topic, encoded as one of "
            f"{', '.join(DEPTH_ENCODINGS)}"
        )
    layout = DEPTH_ENCODINGS[encoding]
    depth = _pixels(layout, encoding, height, width, step, is_bigendian, data)
    if depth.dtype == np.uint16:
        return depth * np.float32(1e-3)
    return np.where(np.isfinite(depth) & (depth > 0), depth, np.float32(0))


def decode_compressed(data: Any) -> np.ndarray:
    """Pixels of JPEG, PNG or similar data as uint8, gray (H, W) or BGR (H, W, 3), as stored.

    An EXIF rotation flag is not applied, because calibrations refer to the orientation of the
    sensor.
    """
    return _decode(data, cv2.IMREAD_ANYCOLOR | cv2.IMREAD_IGNORE_ORIENTATION)


def decode_unchanged(data: Any) -> np.ndarray:
    """Pixels of JPEG, PNG or similar data with the stored bit depth and channels (e.g. depth)."""
    return _decode(data, cv2.IMREAD_UNCHANGED)


def _decode(data: Any, flags: int) -> np.ndarray:
    data = np.frombuffer(data, np.uint8)
    content = data.tobytes()
    size = declared_size(content)
    if size is not None and size[0] * size[1] > MAX_PIXELS:
        raise ImageError(
            f"{data.size} bytes of a compressed image declare {size[0]}x{size[1]} pixels, more "
            f"than the limit of {MAX_PIXELS}: they are damaged, or "
            "OPENCV_IO_MAX_IMAGE_PIXELS must be raised"
        )
    try:
        image = cv2.imdecode(data, flags) if data.size and _png_is_complete(content) else None
    except cv2.error:  # raised for a header that exceeds OpenCV's own limits
        image = None
    if image is None:
        raise ImageError(
            f"{data.size} bytes of a compressed image cannot be decoded: they are damaged or in "
            "an unknown format; send or copy the image again, as JPEG or PNG"
        )
    return image


def _png_is_complete(data: bytes) -> bool:
    """Whether all chunks of a PNG lie within its data.

    OpenCV allocates the declared length of a chunk before it reads the chunk. True for data in
    any other format.
    """
    if not data.startswith(PNG_SIGNATURE):
        return True
    offset = len(PNG_SIGNATURE)
    while offset + 4 <= len(data):
        offset += PNG_CHUNK_BYTES + int.from_bytes(data[offset : offset + 4], "big")
    return offset <= len(data)


def image_from_message(message: Any) -> np.ndarray:
    """Pixels of a sensor_msgs Image or CompressedImage, or any object with their attributes."""
    if hasattr(message, "format"):
        return decode_compressed(message.data)
    return decode_image(*_raw(message))


def depth_from_message(message: Any) -> np.ndarray:
    """Depth (H, W) float32 in meters of a sensor_msgs Image, or any object with its attributes."""
    return decode_depth(*_raw(message))


def _raw(message: Any) -> tuple:
    """Encoding, height, width, step, byte order and data, in the order of the decoders."""
    m = message
    return m.encoding, m.height, m.width, m.step, m.is_bigendian, m.data


def _pixels(
    layout: Encoding,
    encoding: str,
    height: int,
    width: int,
    step: int,
    is_bigendian: bool,
    data: Any,
) -> np.ndarray:
    """A copy of the pixels (H, W) or (H, W, channels) in native byte order, without padding."""
    if height < 1 or width < 1:
        raise ImageError(f"the image is empty ({width}x{height} pixels): check the camera driver")
    dtype = np.dtype(layout.dtype).newbyteorder(">" if is_bigendian else "<")
    pixel_bytes = layout.channels * dtype.itemsize
    row_bytes = width * pixel_bytes
    data = np.frombuffer(data, np.uint8)
    if step < row_bytes or data.size < step * (height - 1) + row_bytes:
        raise ImageError(
            f"a {width}x{height} image in {encoding} has rows of {row_bytes} bytes, but the "
            f"message has step {step} and {data.size} bytes of data: check the camera driver"
        )
    pixels = np.ndarray(
        (height, width, layout.channels), dtype, data, strides=(step, pixel_bytes, dtype.itemsize)
    )
    return (pixels[..., 0] if layout.channels == 1 else pixels).astype(dtype.newbyteorder("="))

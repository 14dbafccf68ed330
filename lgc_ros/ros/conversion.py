"""Fallback for cv_bridge where it is not installed: converts images to messages and back."""

from __future__ import annotations

import re
from typing import Any

import cv2
import numpy as np
from sensor_msgs.msg import CompressedImage, Image

from lgc_ros.errors import ImageError
from lgc_ros.images.encoding import IMAGE_ENCODINGS, Encoding, pixels_of

PASSTHROUGH = "passthrough"

_DEPTHS = {"8U": "u1", "8S": "i1", "16U": "u2", "16S": "i2", "32S": "i4", "32F": "f4", "64F": "f8"}
_DEPTH_OF = {dtype: depth for depth, dtype in _DEPTHS.items()}

# OpenCV's colour conversion codes; the target colour is filled in.
_CONVERSIONS = {
    "mono": "COLOR_GRAY2{}",
    "bgr": "COLOR_BGR2{}",
    "rgb": "COLOR_RGB2{}",
    "bgra": "COLOR_BGRA2{}",
    "rgba": "COLOR_RGBA2{}",
    "bayer_rggb": "COLOR_BayerBG2{}",
    "bayer_bggr": "COLOR_BayerRG2{}",
    "bayer_gbrg": "COLOR_BayerGR2{}",
    "bayer_grbg": "COLOR_BayerGB2{}",
    "yuv422": "COLOR_YUV2{}_UYVY",
    "uyvy": "COLOR_YUV2{}_UYVY",
    "yuv422_yuy2": "COLOR_YUV2{}_YUY2",
    "yuyv": "COLOR_YUV2{}_YUY2",
}
_TARGETS = {"mono": "GRAY", "bgr": "BGR", "rgb": "RGB", "bgra": "BGRA", "rgba": "RGBA"}


class CvBridgeError(TypeError):
    """An image or a message cannot be converted."""


class CvBridge:
    """Converts OpenCV images (H, W) or (H, W, channels) to ROS messages and back.

    Encodings are those of sensor_msgs/image_encodings.hpp, such as 'bgr8', 'mono16' or '32FC1'.
    Images are in native byte order and do not share memory with the message.
    """

    def imgmsg_to_cv2(self, img_msg: Image, desired_encoding: str = PASSTHROUGH) -> np.ndarray:
        """Pixels of an Image, unchanged or converted to the desired encoding."""
        try:
            pixels = pixels_of(
                _layout(img_msg.encoding),
                img_msg.encoding,
                img_msg.height,
                img_msg.width,
                img_msg.step,
                img_msg.is_bigendian,
                img_msg.data,
            )
        except ImageError as error:
            raise CvBridgeError(str(error)) from error
        return _convert(pixels, img_msg.encoding, desired_encoding)

    def compressed_imgmsg_to_cv2(
        self, cmprs_img_msg: CompressedImage, desired_encoding: str = PASSTHROUGH
    ) -> np.ndarray:
        """Pixels of a CompressedImage, as stored or converted to the desired encoding."""
        data = np.frombuffer(cmprs_img_msg.data, np.uint8)
        try:
            pixels = cv2.imdecode(data, cv2.IMREAD_UNCHANGED) if data.size else None
        except cv2.error:  # the header claims more pixels than OpenCV allows
            pixels = None
        if pixels is None:
            raise CvBridgeError(
                f"{data.size} bytes of a compressed image cannot be decoded: they are damaged or "
                f"not of the format '{cmprs_img_msg.format}'"
            )
        colour = {1: "mono", 3: "bgr", 4: "bgra"}[_channels(pixels)]
        return _convert(pixels, f"{colour}{8 * pixels.itemsize}", desired_encoding)

    def cv2_to_imgmsg(
        self, cvim: np.ndarray, encoding: str = PASSTHROUGH, header: Any | None = None
    ) -> Image:
        """An Image with these pixels; 'passthrough' derives the encoding from their type."""
        _check_image(cvim)
        own = f"{_DEPTH_OF[_depth(cvim.dtype)]}C{_channels(cvim)}"
        if encoding == PASSTHROUGH:
            encoding = own
        layout = _layout(encoding)
        if (layout.dtype, layout.channels) != (_depth(cvim.dtype), _channels(cvim)):
            raise CvBridgeError(f"an image of type {own} does not fit the encoding '{encoding}'")
        msg = Image() if header is None else Image(header=header)
        msg.height, msg.width = cvim.shape[:2]
        msg.encoding = encoding
        msg.is_bigendian = int(cvim.dtype.str.startswith(">"))
        msg.step = msg.width * layout.channels * cvim.itemsize
        _fill(msg, cvim)
        return msg

    def cv2_to_compressed_imgmsg(
        self, cvim: np.ndarray, dst_format: str = "jpg"
    ) -> CompressedImage:
        """A CompressedImage of these pixels, in a format given by OpenCV's file extension."""
        _check_image(cvim)
        try:
            encoded, data = cv2.imencode(f".{dst_format}", cvim)
        except cv2.error as error:
            raise CvBridgeError(f"images cannot be encoded as '{dst_format}': {error}") from error
        if not encoded:
            raise CvBridgeError(f"OpenCV cannot encode this image as '{dst_format}'")
        msg = CompressedImage(format=dst_format)
        _fill(msg, data)
        return msg


def _fill(msg: Image | CompressedImage, pixels: np.ndarray) -> None:
    # Assigning to `data` checks byte by byte and is a thousand times slower.
    msg.data.frombytes(np.ascontiguousarray(pixels).view(np.uint8))


def _check_image(image: np.ndarray) -> None:
    if not isinstance(image, np.ndarray):
        raise CvBridgeError(f"an image must be a numpy array, not a {type(image).__name__}")
    if image.ndim not in (2, 3) or not image.size or _depth(image.dtype) not in _DEPTH_OF:
        raise CvBridgeError(
            f"an array of shape {image.shape} and type {image.dtype} is not an image: "
            "give (H, W) or (H, W, channels) in (u)int8, (u)int16, int32, float32 or float64"
        )


def _channels(image: np.ndarray) -> int:
    return 1 if image.ndim == 2 else image.shape[2]


def _depth(dtype: np.dtype) -> str:
    """Kind and size of the values without byte order, such as 'u2'."""
    return dtype.str[1:]


def _layout(encoding: str) -> Encoding:
    if encoding in IMAGE_ENCODINGS:
        return IMAGE_ENCODINGS[encoding]
    generic = re.fullmatch(rf"({'|'.join(_DEPTHS)})(?:C([1-9]\d{{0,4}}))?", encoding)
    if generic is None:
        raise CvBridgeError(
            f"image encoding '{encoding}' is not known: configure the camera driver to use one of "
            f"{', '.join(IMAGE_ENCODINGS)}, or an OpenCV type such as 16UC1 or 32FC1"
        )
    return Encoding(_DEPTHS[generic[1]], int(generic[2] or 1))


def _colour(encoding: str) -> str | None:
    """Colour of the channels regardless of depth ('bgr16' is 'bgr'); None if unspecified."""
    colour = encoding.removesuffix("16").removesuffix("8")
    return colour if colour in _CONVERSIONS else None


def _convert(pixels: np.ndarray, source: str, target: str) -> np.ndarray:
    if target in (PASSTHROUGH, source):
        return pixels
    layout = _layout(target)
    source_colour, target_colour = _colour(source), _colour(target)
    if target_colour is None:
        if _channels(pixels) != layout.channels:
            raise CvBridgeError(f"'{source}' and '{target}' differ in their number of channels")
    elif source_colour is None:
        raise CvBridgeError(
            f"'{source}' cannot be converted to '{target}': it does not define its colours; "
            "configure the camera driver to use an encoding that does, such as 'mono8' or 'bgr8'"
        )
    elif source_colour != target_colour:
        pixels = _recolour(pixels, source, target)
    return _scale_to(pixels, np.dtype(layout.dtype))


def _recolour(pixels: np.ndarray, source: str, target: str) -> np.ndarray:
    name = _CONVERSIONS[_colour(source)].format(_TARGETS.get(_colour(target)))
    if not hasattr(cv2, name):
        raise CvBridgeError(f"'{source}' cannot be converted to '{target}'")
    try:
        return cv2.cvtColor(pixels, getattr(cv2, name))
    except cv2.error as error:
        raise CvBridgeError(f"'{source}' cannot be converted to '{target}': {error}") from error


def _scale_to(pixels: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Convert the value type: 8-bit 255 becomes 16-bit 65535; other types keep their values."""
    if pixels.dtype == dtype:
        return pixels
    scale = {(1, 2): 257, (2, 1): 1 / 257}.get((pixels.itemsize, dtype.itemsize), 1)
    depth = getattr(cv2, f"CV_{_DEPTH_OF[_depth(dtype)]}")
    return cv2.addWeighted(pixels, scale, pixels, 0, 0, dtype=depth)  # rounds and saturates

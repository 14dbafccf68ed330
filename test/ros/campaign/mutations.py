"""Valid messages made invalid, or at least strange, by a seeded generator.

A mutation changes a message in place. Some of the results are still usable (a black image, a
stamp of tomorrow): the node has to cope with those, too.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Mutation = Callable[[np.random.Generator, Any], None]

MAX_INT32, MAX_UINT32 = 2**31 - 1, 2**32 - 1
NOT_A_NUMBER = (float("nan"), float("inf"), float("-inf"))
STRANGE_NUMBERS = (*NOT_A_NUMBER, 0.0, -0.0, -1.0, 1e-300, 1e-9, 1e9, -1e9, 1e300)
STRANGE_SIZES = (0, 1, 2, 3, 7, 159, 161, 1000, 65536, MAX_INT32, MAX_INT32 + 1, MAX_UINT32)
STRANGE_NAMES = (
    "",
    " ",
    "/",
    "no_such_frame",
    "base_link",
    "x" * 1000,
    "Ω\n\t%s{}",
    "map/../odom",
)
ENCODINGS = (
    *("", "foo8", "BGR8", "8UC", "8UC0", "8UC7", "64FC99", "x" * 1000, "Ω", "jpeg"),
    *("mono8", "mono16", "rgb8", "rgba8", "bgra16", "bgr16", "bayer_rggb8", "bayer_gbrg16"),
    *("yuv422", "yuyv", "16UC1", "32FC1", "8UC1", "8UC3", "8UC4"),
)
DEPTH_ENCODINGS = (*ENCODINGS, "16SC1", "64FC1", "32FC2")
FORMATS = ("", "jpeg", "png", "webp", "bgr8; jpeg compressed bgr8", "16UC1; compressedDepth", "Ω")
MODELS = ("", "plumb_bob", "rational_polynomial", "equidistant", "fisheye", "thin_prism", "Ω")


def spoil(rng: np.random.Generator, message: Any, mutations: Sequence[Mutation]) -> None:
    """Apply one to three mutations to a message."""
    for index in rng.choice(len(mutations), rng.integers(1, 4), replace=False):
        mutations[index](rng, message)


def _one_of(rng: np.random.Generator, values: Sequence) -> Any:
    return values[rng.integers(len(values))]


def _set_bytes(message: Any, data: bytes) -> None:
    del message.data[:]
    message.data.frombytes(data)


# Header


def strange_stamp(rng: np.random.Generator, message: Any) -> None:
    """Zero, negative, out of range, of the past or of the future."""
    stamp = message.header.stamp
    sec, nanosec = stamp.sec, stamp.nanosec
    stamp.sec, stamp.nanosec = _one_of(
        rng,
        [
            (0, 0),
            (0, 1),
            (-1, nanosec),
            (-1 - MAX_INT32, 0),
            (MAX_INT32, 10**9 - 1),
            (MAX_INT32, MAX_UINT32),
            (sec, MAX_UINT32),
            (sec, 10**9),
            (sec + 3600, nanosec),
            (sec - 3600, nanosec),
            (sec - 1, nanosec),
            (sec + 1, nanosec),
        ],
    )


def strange_frame(rng: np.random.Generator, message: Any) -> None:
    message.header.frame_id = _one_of(rng, STRANGE_NAMES)


# Images


def strange_encoding(rng: np.random.Generator, message: Any) -> None:
    message.encoding = _one_of(rng, ENCODINGS)


def strange_size(rng: np.random.Generator, message: Any) -> None:
    setattr(message, _one_of(rng, ("width", "height")), _one_of(rng, STRANGE_SIZES))


def any_size(rng: np.random.Generator, message: Any) -> None:
    message.width, message.height = map(int, rng.integers(0, 400, 2))


def strange_step(rng: np.random.Generator, message: Any) -> None:
    message.step = _one_of(rng, (*STRANGE_SIZES, int(rng.integers(2000))))


def less_data(rng: np.random.Generator, message: Any) -> None:
    del message.data[int(rng.integers(len(message.data) + 1)) :]


def no_data(rng: np.random.Generator, message: Any) -> None:
    del message.data[:]


def more_data(rng: np.random.Generator, message: Any) -> None:
    message.data.frombytes(rng.bytes(int(rng.integers(1, 10_000))))


def other_byte_order(rng: np.random.Generator, message: Any) -> None:
    message.is_bigendian = int(rng.integers(1, 256))


def random_data(rng: np.random.Generator, message: Any) -> None:
    _set_bytes(message, rng.bytes(len(message.data)))


def uniform_data(rng: np.random.Generator, message: Any) -> None:
    _set_bytes(message, bytes([_one_of(rng, (0, 1, 127, 255))]) * len(message.data))


HEADER = (strange_stamp, strange_frame)
IMAGE = (
    *HEADER,
    strange_encoding,
    strange_size,
    any_size,
    strange_step,
    less_data,
    no_data,
    more_data,
    other_byte_order,
    random_data,
    uniform_data,
)


# Compressed images


def strange_format(rng: np.random.Generator, message: Any) -> None:
    message.format = _one_of(rng, FORMATS)


def flipped_bytes(rng: np.random.Generator, message: Any) -> None:
    """Some bytes anywhere: headers, tables and pixels of the file."""
    if len(message.data):
        for index in rng.integers(len(message.data), size=rng.integers(1, 20)):
            message.data[int(index)] = int(rng.integers(256))


def flipped_header(rng: np.random.Generator, message: Any) -> None:
    """Some of the first bytes, where a file says what it is and how large."""
    if len(message.data):
        for index in rng.integers(min(len(message.data), 64), size=rng.integers(1, 8)):
            message.data[int(index)] = int(rng.integers(256))


def png_of_size(message: Any, width: int, height: int) -> None:
    """A file of a hundred bytes that claims to hold so many pixels."""
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(bytes(100))),
        (b"IEND", b""),
    ]
    chunks = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    )
    _set_bytes(message, b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


def jpeg_of_size(message: Any, width: int, height: int) -> None:
    """The size in the frame header of a JPEG replaced; other files stay as they are."""
    data = bytes(message.data)
    start = data.find(b"\xff\xc0")
    if start >= 0:
        size = struct.pack(">HH", height, width)
        _set_bytes(message, data[: start + 5] + size + data[start + 9 :])


def png_of_other_size(rng: np.random.Generator, message: Any) -> None:
    png_of_size(message, *map(int, rng.integers(0, 1000, 2)))


def jpeg_of_other_size(rng: np.random.Generator, message: Any) -> None:
    jpeg_of_size(message, *map(int, rng.integers(0, 1000, 2)))


COMPRESSED = (
    *HEADER,
    strange_format,
    flipped_bytes,
    flipped_header,
    png_of_other_size,
    jpeg_of_other_size,
    less_data,
    no_data,
    more_data,
    random_data,
    uniform_data,
)


# Calibration


def _strange_element(rng: np.random.Generator, message: Any, name: str) -> None:
    values = np.array(getattr(message, name), float)
    values[rng.integers(len(values))] = _one_of(rng, STRANGE_NUMBERS)
    setattr(message, name, values)


def strange_k(rng: np.random.Generator, message: Any) -> None:
    _strange_element(rng, message, "k")


def strange_p(rng: np.random.Generator, message: Any) -> None:
    _strange_element(rng, message, "p")


def strange_r(rng: np.random.Generator, message: Any) -> None:
    _strange_element(rng, message, "r")


def uniform_k(rng: np.random.Generator, message: Any) -> None:
    message.k = np.full(9, _one_of(rng, STRANGE_NUMBERS))


def random_k(rng: np.random.Generator, message: Any) -> None:
    message.k = rng.normal(0, 10.0 ** rng.integers(-3, 6), 9)


def other_focal_length(rng: np.random.Generator, message: Any) -> None:
    message.k = np.array(message.k) * np.repeat([rng.uniform(0.1, 3), 1], [6, 3])


def strange_distortion(rng: np.random.Generator, message: Any) -> None:
    """Any number of coefficients, of any size."""
    message.d = rng.normal(0, 10.0 ** rng.integers(-3, 6), rng.integers(0, 20))


def distortion_that_is_no_number(rng: np.random.Generator, message: Any) -> None:
    message.d = [_one_of(rng, NOT_A_NUMBER)] * int(rng.integers(1, 9))


def strange_model(rng: np.random.Generator, message: Any) -> None:
    message.distortion_model = _one_of(rng, MODELS)


def strange_region(rng: np.random.Generator, message: Any) -> None:
    name = _one_of(rng, ("x_offset", "y_offset", "width", "height"))
    setattr(message.roi, name, _one_of(rng, STRANGE_SIZES))


def strange_binning(rng: np.random.Generator, message: Any) -> None:
    setattr(message, _one_of(rng, ("binning_x", "binning_y")), _one_of(rng, STRANGE_SIZES))


CAMERA_INFO = (
    *HEADER,
    strange_size,
    any_size,
    strange_k,
    uniform_k,
    random_k,
    other_focal_length,
    strange_p,
    strange_r,
    strange_distortion,
    distortion_that_is_no_number,
    strange_model,
    strange_region,
    strange_binning,
)


# Wheel odometry


def strange_position(rng: np.random.Generator, message: Any) -> None:
    setattr(message.pose.pose.position, _one_of(rng, "xyz"), _one_of(rng, STRANGE_NUMBERS))


def strange_quaternion(rng: np.random.Generator, message: Any) -> None:
    setattr(message.pose.pose.orientation, _one_of(rng, "xyzw"), _one_of(rng, STRANGE_NUMBERS))


def no_quaternion(rng: np.random.Generator, message: Any) -> None:
    """All zero, or all the same strange number."""
    value = _one_of(rng, (0.0, *STRANGE_NUMBERS))
    for axis in "xyzw":
        setattr(message.pose.pose.orientation, axis, value)


def long_quaternion(rng: np.random.Generator, message: Any) -> None:
    factor = float(10.0 ** rng.uniform(-12, 12))
    for axis in "xyzw":
        orientation = message.pose.pose.orientation
        setattr(orientation, axis, getattr(orientation, axis) * factor)


def jump(rng: np.random.Generator, message: Any) -> None:
    position = message.pose.pose.position
    position.x, position.y, position.z = map(float, rng.normal(0, 10.0 ** rng.integers(0, 9), 3))


def strange_covariance(rng: np.random.Generator, message: Any) -> None:
    message.pose.covariance = np.full(36, _one_of(rng, STRANGE_NUMBERS))


def strange_twist(rng: np.random.Generator, message: Any) -> None:
    setattr(message.twist.twist.linear, _one_of(rng, "xyz"), _one_of(rng, STRANGE_NUMBERS))


def strange_child_frame(rng: np.random.Generator, message: Any) -> None:
    message.child_frame_id = _one_of(rng, STRANGE_NAMES)


ODOM = (
    *HEADER,
    strange_position,
    strange_quaternion,
    no_quaternion,
    long_quaternion,
    jump,
    strange_covariance,
    strange_twist,
    strange_child_frame,
)


# Depth


def strange_depth_encoding(rng: np.random.Generator, message: Any) -> None:
    message.encoding = _one_of(rng, DEPTH_ENCODINGS)


def strange_depths(rng: np.random.Generator, message: Any) -> None:
    """32FC1 with numbers that are no distance."""
    pixels = np.full(len(message.data), _one_of(rng, STRANGE_NUMBERS))
    with np.errstate(over="ignore"):
        _set_bytes(message, pixels.astype(np.float32).tobytes())
    message.encoding, message.step = "32FC1", min(4 * message.width, MAX_UINT32)


DEPTH = (
    *(mutation for mutation in IMAGE if mutation is not strange_encoding),
    strange_depth_encoding,
    strange_depths,
)

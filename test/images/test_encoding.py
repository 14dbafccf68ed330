"""Image messages: every encoding against OpenCV, padding, byte order, invalid sizes."""

import os
import subprocess
import sys
from array import array
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

from lgc_ros.errors import ImageError
from lgc_ros.images.encoding import (
    IMAGE_ENCODINGS,
    decode_compressed,
    decode_depth,
    decode_image,
    image_from_message,
)

HEIGHT, WIDTH = 24, 32


@pytest.mark.parametrize(("value", "pixels"), [("1000", "1000"), ("64MB", str(64 << 20))])
def test_the_limit_of_pixels_is_read_as_opencv_does(value, pixels):
    environment = os.environ | {"OPENCV_IO_MAX_IMAGE_PIXELS": value}
    code = "from lgc_ros.images.encoding import MAX_PIXELS; print(MAX_PIXELS)"
    command = [sys.executable, "-c", code]
    assert subprocess.check_output(command, env=environment, text=True).strip() == pixels


@pytest.fixture
def picture():
    """A smooth BGR picture, so that chroma and Bayer subsampling lose little of it."""
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.float64)
    channels = 60 + 4 * x, 200 - 5 * y, 40 + 2 * x + 3 * y
    return np.stack(channels, -1).astype(np.uint8)


def decode(encoding, pixels, padding=0, big_endian=False, decoder=decode_image):
    """Pack an array like a driver, with padding after each row, and decode it."""
    pixels = pixels.astype(pixels.dtype.newbyteorder(">" if big_endian else "<"))
    rows = np.frombuffer(pixels.tobytes(), np.uint8).reshape(len(pixels), -1)
    rows = np.pad(rows, ((0, 0), (0, padding)), constant_values=77)
    return decoder(encoding, *pixels.shape[:2], rows.shape[1], big_endian, rows.tobytes())


def mosaic(picture, pattern):
    """What a sensor with this 2x2 pattern (of the letters r, g, b, row by row) records."""
    raw = np.empty(picture.shape[:2], np.uint8)
    for place, letter in enumerate(pattern):
        row, column = divmod(place, 2)
        raw[row::2, column::2] = picture[row::2, column::2, "bgr".index(letter)]
    return raw


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize(
    ("encoding", "conversion"),
    [
        ("bgr8", None),
        ("8UC3", None),
        ("rgb8", cv2.COLOR_BGR2RGB),
        ("bgra8", cv2.COLOR_BGR2BGRA),
        ("8UC4", cv2.COLOR_BGR2BGRA),
        ("rgba8", cv2.COLOR_BGR2RGBA),
    ],
)
def test_color_encodings_are_decoded_to_bgr(picture, encoding, conversion, padding):
    sent = picture if conversion is None else cv2.cvtColor(picture, conversion)
    np.testing.assert_array_equal(decode(encoding, sent, padding), picture)


@pytest.mark.parametrize("encoding", ["mono8", "8UC1"])
def test_gray_encodings_are_decoded_to_gray(picture, encoding):
    np.testing.assert_array_equal(decode(encoding, picture[..., 0], padding=5), picture[..., 0])


@pytest.mark.parametrize("big_endian", [False, True])
def test_sixteen_bit_images_are_scaled_to_eight_bits_in_either_byte_order(picture, big_endian):
    gray = decode("mono16", picture[..., 0].astype(np.uint16) * 257, 2, big_endian)
    np.testing.assert_array_equal(gray, picture[..., 0])
    rgb = cv2.cvtColor(picture, cv2.COLOR_BGR2RGB).astype(np.uint16) * 257
    np.testing.assert_array_equal(decode("rgb16", rgb, 2, big_endian), picture)


@pytest.mark.parametrize("pattern", ["rggb", "bggr", "gbrg", "grbg"])
@pytest.mark.parametrize("bits", [8, 16])
def test_bayer_patterns_are_demosaiced_to_the_original_colors(picture, pattern, bits):
    raw = mosaic(picture, pattern)
    sent = raw if bits == 8 else raw.astype(np.uint16) * 257
    image = decode(f"bayer_{pattern}{bits}", sent)
    inside = np.s_[2:-2, 2:-2]
    assert np.abs(image[inside].astype(int) - picture[inside]).max() <= 6


@pytest.mark.parametrize("encoding", ["yuv422", "uyvy", "yuv422_yuy2", "yuyv"])
def test_yuv422_is_decoded_to_the_original_colors(picture, encoding):
    # ITU-R BT.601 in studio range, as cameras send it; U and V of two pixels are shared.
    b, g, r = np.moveaxis(picture.astype(np.float64), -1, 0)
    y = 16 + 0.257 * r + 0.504 * g + 0.098 * b
    u = 128 - 0.148 * r - 0.291 * g + 0.439 * b
    v = 128 + 0.439 * r - 0.368 * g - 0.071 * b
    chroma = np.where(np.arange(WIDTH) % 2 == 0, u, np.roll(v, 1, axis=1))
    pair = (chroma, y) if encoding in ("yuv422", "uyvy") else (y, chroma)
    image = decode(encoding, np.stack(pair, -1).round().astype(np.uint8))
    assert np.abs(image.astype(int) - picture).max() <= 9


def test_the_last_row_may_lack_its_padding(picture):
    step = 3 * WIDTH + 8
    data = np.pad(picture.reshape(HEIGHT, -1), ((0, 0), (0, 8))).tobytes()[:-8]
    np.testing.assert_array_equal(decode_image("bgr8", HEIGHT, WIDTH, step, 0, data), picture)


def test_the_result_does_not_share_memory_with_the_message(picture):
    data = bytearray(picture.tobytes())
    image = decode_image("bgr8", HEIGHT, WIDTH, 3 * WIDTH, 0, data)
    data[:] = bytes(len(data))
    np.testing.assert_array_equal(image, picture)
    assert image.flags.writeable
    assert image.flags.c_contiguous


@pytest.mark.parametrize("container", [bytes, bytearray, memoryview, "array", "numpy"])
def test_data_may_be_any_buffer(picture, container):
    data = picture.tobytes()
    if container == "array":  # what rclpy delivers
        data = array("B", data)
    elif container == "numpy":  # what rosbags delivers
        data = np.frombuffer(data, np.uint8)
    else:
        data = container(data)
    np.testing.assert_array_equal(decode_image("bgr8", HEIGHT, WIDTH, 3 * WIDTH, 0, data), picture)


@pytest.mark.parametrize("big_endian", [False, True])
def test_depth_is_in_meters_and_zero_where_unknown(big_endian):
    millimeters = np.array([[0, 1, 1500], [65535, 20, 300]], np.uint16)
    depth = decode("16UC1", millimeters, 2, big_endian, decode_depth)
    assert depth.dtype == np.float32
    np.testing.assert_allclose(depth, millimeters / 1000, rtol=1e-6)
    meters = np.array([[np.nan, 1.5, np.inf], [-1, 0, 2.25]], np.float32)
    depth = decode("32FC1", meters, 4, big_endian, decode_depth)
    np.testing.assert_array_equal(depth, [[0, 1.5, 0], [0, 0, 2.25]])


def test_the_error_for_an_unsupported_encoding_lists_the_supported_ones():
    with pytest.raises(ImageError, match=r"'bgr7' is not supported: .*mono8.*bayer_rggb8.*yuyv"):
        decode_image("bgr7", 1, 1, 1, 0, b"0")
    with pytest.raises(ImageError, match="'32FC1' is not supported: it is a depth encoding"):
        decode_image("32FC1", 1, 1, 4, 0, b"0000")
    with pytest.raises(ImageError, match=r"'bgr8' is not a depth encoding.*16UC1, mono16, 32FC1"):
        decode_depth("bgr8", 1, 1, 3, 0, b"000")


@pytest.mark.parametrize("encoding", IMAGE_ENCODINGS)
def test_a_message_with_too_little_data_is_refused(encoding):
    with pytest.raises(ImageError, match=r"empty \(0x4 pixels\)"):
        decode_image(encoding, 4, 0, 0, 0, b"")
    with pytest.raises(ImageError, match=r"has step 5 and 40 bytes of data: check the camera"):
        decode_image(encoding, 8, 6, 5, 0, bytes(40))
    with pytest.raises(ImageError, match=r"has step 100 and 100 bytes of data"):
        decode_image(encoding, 8, 6, 100, 0, bytes(100))


def test_yuv422_with_an_odd_width_is_refused():
    with pytest.raises(ImageError, match="a 3x2 image cannot be encoded as yuyv"):
        decode_image("yuyv", 2, 3, 6, 0, bytes(12))


def test_compressed_images_are_decoded_as_stored(picture):
    for image in (picture, picture[..., 0]):
        data = cv2.imencode(".png", image)[1]
        np.testing.assert_array_equal(decode_compressed(data.tobytes()), image)
        message = SimpleNamespace(format="png", data=data)
        np.testing.assert_array_equal(image_from_message(message), image)
    for damaged in (b"", b"no picture", data.tobytes()[:20]):
        with pytest.raises(ImageError, match=rf"{len(damaged)} bytes .*damaged"):
            decode_compressed(damaged)


def test_raw_messages_are_decoded_by_their_fields(picture):
    message = SimpleNamespace(
        encoding="bgr8",
        height=HEIGHT,
        width=WIDTH,
        step=3 * WIDTH,
        is_bigendian=0,
        data=array("B", picture.tobytes()),
    )
    np.testing.assert_array_equal(image_from_message(message), picture)

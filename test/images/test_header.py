"""Image sizes are read from file headers without decoding, and oversized images are refused."""

import os
import resource
import struct
import subprocess
import sys
import textwrap
from binascii import crc32

import cv2
import numpy as np
import pytest

from lgc_ros.errors import ImageError
from lgc_ros.images.encoding import MAX_PIXELS, decode_compressed, decode_unchanged
from lgc_ros.images.header import declared_size

HEIGHT, WIDTH = 120, 160
MAX_GROWTH_KB = 100_000


def encoded(suffix):
    noise = np.random.default_rng(0).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
    flags = [cv2.IMWRITE_WEBP_QUALITY, 90] if suffix == ".webp" else []  # lossy
    return bytearray(cv2.imencode(suffix, noise, flags)[1].tobytes())


def jpeg_declaring(width, height):
    """A valid JPEG of noise whose frame header (SOF0) declares another size."""
    data = encoded(".jpg")
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", height, width)
    return bytes(data)


def png_declaring(width, height):
    data = encoded(".png")
    data[16:24] = struct.pack(">II", width, height)
    data[29:33] = crc32(data[12:29]).to_bytes(4, "big")
    return bytes(data)


def bmp_declaring(width, height):
    data = encoded(".bmp")
    data[18:26] = struct.pack("<ii", width, height)
    return bytes(data)


def pgm_declaring(width, height):
    return b"P5\n# comment\n%d %d\n255\n" % (width, height) + bytes(100)


def tiff_declaring(width, height):
    data = encoded(".tiff")
    order = "<" if data[:2] == b"II" else ">"
    offset = struct.unpack_from(f"{order}I", data, 4)[0]
    for entry in range(offset + 2, len(data) - 12, 12):
        tag = struct.unpack_from(f"{order}H", data, entry)[0]
        if tag in (256, 257):
            side = width if tag == 256 else height
            struct.pack_into(f"{order}HII", data, entry + 2, 4, 1, side)
    return bytes(data)


def webp_declaring(width, height):
    data = encoded(".webp")
    assert data[12:16] == b"VP8 "
    data[26:30] = struct.pack("<HH", width, height)
    return bytes(data)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".bmp", ".ppm", ".tiff", ".webp"])
def test_the_declared_size_is_that_of_the_decoded_image(suffix):
    data = bytes(encoded(suffix))
    height, width = decode_compressed(data).shape[:2]
    assert declared_size(data) == (width, height) == (WIDTH, HEIGHT)


@pytest.mark.parametrize(
    ("suffix", "flags"),
    [
        (".jpg", [cv2.IMWRITE_JPEG_PROGRESSIVE, 1]),
        (".webp", [cv2.IMWRITE_WEBP_QUALITY, 101]),  # lossless
        (".ppm", [cv2.IMWRITE_PXM_BINARY, 0]),
    ],
)
def test_the_size_is_found_in_every_variant_of_a_format(suffix, flags):
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    assert declared_size(cv2.imencode(suffix, image, flags)[1].tobytes()) == (WIDTH, HEIGHT)


def test_a_bitmap_stored_top_to_bottom_has_a_positive_height():
    assert declared_size(bmp_declaring(WIDTH, -HEIGHT)) == (WIDTH, HEIGHT)


def test_the_size_of_an_embedded_thumbnail_is_ignored():
    data = bytes(encoded(".jpg"))
    thumbnail = jpeg_declaring(8, 6)[:20_000]
    segment = b"\xff\xe1" + struct.pack(">H", len(thumbnail) + 2) + thumbnail
    assert declared_size(data[:2] + segment + data[2:]) == (WIDTH, HEIGHT)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".bmp", ".tiff", ".webp"])
def test_a_truncated_header_gives_no_size_instead_of_an_exception(suffix):
    data = bytes(encoded(suffix))
    for length in range(40):
        assert declared_size(data[:length]) in (None, (WIDTH, HEIGHT))
    assert declared_size(b"") is None
    assert declared_size(b"something else entirely") is None


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(jpeg_declaring(30_000, 30_000), id="jpeg"),
        pytest.param(png_declaring(65_535, 65_535), id="png"),
        pytest.param(png_declaring(30_000, 30_000), id="png-below-the-limit-of-opencv"),
        pytest.param(bmp_declaring(20_000, 20_000), id="bmp"),
        pytest.param(pgm_declaring(20_000, 20_000), id="pgm"),
        pytest.param(tiff_declaring(20_000, 20_000), id="tiff"),
        pytest.param(webp_declaring(16_383, 16_383), id="webp"),
    ],
)
@pytest.mark.parametrize("decode", [decode_compressed, decode_unchanged])
def test_a_small_file_that_declares_a_huge_image_is_refused_without_allocating(data, decode):
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ImageError, match=rf"declare \d+x\d+ pixels, more than .* {MAX_PIXELS}"):
        decode(data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < MAX_GROWTH_KB


def test_the_limit_holds_when_opencv_was_imported_first(tmp_path):
    """OpenCV reads its own limit from the environment only when cv2 is imported."""
    (tmp_path / "huge.jpg").write_bytes(jpeg_declaring(30_000, 30_000))
    program = """
        import cv2, resource, sys
        from lgc_ros import read_image
        from lgc_ros.errors import ImageError

        def peak_kb():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        before_kb = peak_kb()  # a child starts with the peak of its parent
        try:
            read_image(sys.argv[1])
        except ImageError as error:
            print(error)
        assert peak_kb() - before_kb < 300_000
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENCV_IO")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), tmp_path / "huge.jpg"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "30000x30000 pixels" in done.stdout


def test_a_limit_set_by_the_user_replaces_the_default(tmp_path):
    (tmp_path / "image.jpg").write_bytes(encoded(".jpg"))
    program = "import cv2, sys; from lgc_ros import read_image; read_image(sys.argv[1])"
    for limit, accepted in ((WIDTH * HEIGHT, True), (WIDTH * HEIGHT - 1, False)):
        done = subprocess.run(
            [sys.executable, "-c", program, tmp_path / "image.jpg"],
            env={**os.environ, "OPENCV_IO_MAX_IMAGE_PIXELS": str(limit)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode == 0) is accepted, done.stderr
        assert accepted or "OPENCV_IO_MAX_IMAGE_PIXELS must be raised" in done.stderr

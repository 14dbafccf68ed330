"""Focal lengths that cameras and phones write into their photos."""

import math

import numpy as np
import pytest

from lgc_ros.errors import CameraError
from lgc_ros.images.exif import read_focal_length

Image = pytest.importorskip("PIL.Image", reason="needs the extra `exif`")
SIZE = (400, 300)


@pytest.fixture
def photo(tmp_path):
    """Writes a JPEG with EXIF tags by number."""

    def write(tags):
        image = Image.fromarray(np.zeros((SIZE[1], SIZE[0], 3), np.uint8))
        exif = Image.Exif()
        exif.get_ifd(0x8769).update(tags)
        image.save(tmp_path / "photo.jpg", exif=exif)
        return tmp_path / "photo.jpg"

    return write


def test_the_35_mm_equivalent_compares_diagonals(photo):
    focal = read_focal_length(photo({0xA405: 26}), SIZE)
    assert focal.px == pytest.approx(26 / math.hypot(36, 24) * 500)
    assert "26 mm" in focal.origin


def test_sensor_resolution_in_pixels_per_inch_or_centimeter(photo):
    # 4 mm on a sensor of 250 pixels per mm, 4000 pixels wide, shrunk to 400 pixels.
    tags = {0x920A: 4.0, 0xA20E: 6350.0, 0xA210: 2, 0xA002: 4000}
    assert read_focal_length(photo(tags), SIZE).px == pytest.approx(100)
    assert read_focal_length(photo({**tags, 0xA20E: 2500.0, 0xA210: 3}), SIZE).px == (
        pytest.approx(100)
    )


@pytest.mark.parametrize("tags", [{}, {0x920A: 4.0}, {0xA405: 0}])
def test_the_error_for_a_photo_without_focal_length_suggests_the_field_of_view(photo, tags):
    with pytest.raises(CameraError, match=r"photo\.jpg .*focal length.*fov:70"):
        read_focal_length(photo(tags), SIZE)


def test_a_damaged_photo_is_an_error_that_names_the_file(tmp_path):
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8\xff\xe1\x00\x10Exif\0\0MM\0*garbage")
    with pytest.raises(CameraError, match=r"photo\.jpg"):
        read_focal_length(tmp_path / "photo.jpg", SIZE)

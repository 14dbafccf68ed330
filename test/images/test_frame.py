"""Reading image files, and the errors for missing and damaged ones."""

import cv2
import numpy as np
import pytest

from lgc_ros.errors import ImageError
from lgc_ros.images.frame import Frame, read_image


def test_color_and_gray_images_keep_their_pixels(tmp_path):
    rng = np.random.default_rng(0)
    for shape in ((7, 5), (7, 5, 3)):
        image = rng.integers(0, 256, shape, np.uint8)
        cv2.imwrite(str(tmp_path / "image.png"), image)
        np.testing.assert_array_equal(read_image(tmp_path / "image.png"), image)


def test_sixteen_bit_and_transparent_images_become_eight_bit_bgr(tmp_path):
    cv2.imwrite(str(tmp_path / "deep.png"), np.full((4, 6), 0x8000, np.uint16))
    deep = read_image(tmp_path / "deep.png")
    assert (deep.dtype, deep.shape) == (np.uint8, (4, 6))
    assert deep[0, 0] == 0x80
    cv2.imwrite(str(tmp_path / "clear.png"), np.full((4, 6, 4), 9, np.uint8))
    assert read_image(tmp_path / "clear.png").shape == (4, 6, 3)


def test_file_names_may_contain_non_ascii_characters(tmp_path):
    cv2.imencode(".png", np.zeros((2, 2), np.uint8))[1].tofile(tmp_path / "größe.png")
    assert read_image(tmp_path / "größe.png").shape == (2, 2)


def test_missing_and_unreadable_images_give_different_errors(tmp_path):
    with pytest.raises(ImageError, match=r"image .*nowhere\.png does not exist; check the path"):
        read_image(tmp_path / "nowhere.png")
    for name, content in (("empty.png", b""), ("text.jpg", b"not an image")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ImageError, match=rf"{name} is not a readable image"):
            read_image(tmp_path / name)
    with pytest.raises(ImageError, match="cannot be opened"):
        read_image(tmp_path)


def test_a_frame_requires_only_an_image_and_its_stamp():
    frame = Frame(index=3, stamp_ns=5, image=np.zeros((2, 2), np.uint8))
    assert frame.camera is None
    assert frame.T_wc is None
    assert frame.depth is None

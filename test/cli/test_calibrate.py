"""`lgc calibrate` on rendered boards with a known camera."""

import cv2
import numpy as np
import pytest
from chessboards import BOARD, CAMERA, board_poses, render_board

from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import read_image
from lgc_ros.visualization.matches import write_image

pytestmark = pytest.mark.slow
OPTIONS = ("--board", "9x6", "--square", BOARD.square_m)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder of photos of the board, and one without it."""
    folder = tmp_path_factory.mktemp("board")
    for i, T_cb in enumerate(board_poses(14, reach=1.2)):
        write_image(folder / f"{i:02d}.png", render_board(T_cb, seed=i))
    write_image(folder / "99.png", np.full((480, 640), 90, np.uint8))
    return folder


def test_photos_of_a_board_give_the_camera_and_a_picture_of_its_errors(lgc, photos, tmp_path):
    out = tmp_path / "camera.yaml"
    code, text = lgc("calibrate", photos, *OPTIONS, "--out", out)
    assert code == 0, text
    camera = Camera.from_yaml(out)
    assert camera.size == CAMERA.size
    np.testing.assert_allclose(camera.K, CAMERA.K, atol=2.5)
    np.testing.assert_allclose(camera.D[:2], CAMERA.D[:2], atol=0.02)
    assert "of 15 images" in text
    assert "stamps" not in text
    assert "reprojection error 0.0" in text or "reprojection error 0.1" in text
    picture = read_image(tmp_path / "camera.png")
    assert picture.shape[1] > 1000
    assert np.ptp(picture) > 200

    code, text = lgc("calibrate", photos, *OPTIONS, "--out", out)
    assert code == 1
    assert "already exists: give --force" in text


def test_a_video_of_a_board_is_calibrated(lgc, photos, tmp_path):
    video = cv2.VideoWriter(
        str(tmp_path / "board.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 10, CAMERA.size
    )
    for path in sorted(photos.glob("*.png"))[:-1]:
        video.write(cv2.cvtColor(read_image(path), cv2.COLOR_GRAY2BGR))
    video.release()
    out = tmp_path / "camera.yaml"
    code, text = lgc("calibrate", tmp_path / "board.avi", *OPTIONS, "--out", out)
    assert code == 0, text
    assert Camera.from_yaml(out).focal == pytest.approx(CAMERA.focal, rel=0.01)


def test_a_board_that_is_never_seen_is_an_error_that_names_the_remedy(lgc, photos, tmp_path):
    code, text = lgc(
        "calibrate", photos, "--board", "7x5", "--square", "0.02", "--out", tmp_path / "c.yaml"
    )
    assert code == 1
    assert "no board with 7x5 inner corners in 15 images" in text
    assert not (tmp_path / "c.yaml").exists()

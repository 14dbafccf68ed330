"""Calibration recovers the camera that rendered or projected the board."""

import numpy as np
import pytest
from chessboards import BOARD, CAMERA, board_poses
from transforms3d.axangles import axangle2mat

from lgc_ros.calibration.chessboard import BoardView
from lgc_ros.calibration.intrinsics import calibrate
from lgc_ros.errors import CameraError
from lgc_ros.geometry.camera import Camera

NOISE_PX = 0.1
K = [[300.0, 0, 321], [0, 302.0, 238], [0, 0, 1]]
CAMERAS = {
    "plumb_bob": CAMERA,
    "rational_polynomial": Camera.from_K(
        K, 640, 480, (0.6, 0.2, 1e-3, -5e-4, 0.05, 0.95, 0.45, 0.08)
    ),
    "equidistant": Camera.from_K(K, 640, 480, (0.02, -0.01, 0.004, -0.001), "equidistant"),
}


def views_of(camera, count=20, noise_px=NOISE_PX):
    rng = np.random.default_rng(3)
    corners = [camera.project(BOARD.points_m @ T[:3, :3].T + T[:3, 3]) for T in board_poses(count)]
    return [
        BoardView(f"{i}.png", c + rng.normal(0, noise_px, c.shape)) for i, c in enumerate(corners)
    ]


@pytest.mark.parametrize("model", CAMERAS)
def test_the_estimate_maps_pixels_as_the_true_camera_does(model):
    camera = CAMERAS[model]
    views = views_of(camera)
    result = calibrate(views, BOARD, camera.size, model)
    assert result.camera.model == model
    assert result.rms_px == pytest.approx(NOISE_PX * np.sqrt(2), rel=0.1)
    # Where corners were seen; the estimate may turn the camera by a little, which is no error.
    pixels = np.concatenate([view.corners_px for view in views])
    rays, true_rays = (
        np.column_stack([c.normalize(pixels), np.ones(len(pixels))])
        for c in (result.camera, camera)
    )
    rays, true_rays = (r / np.linalg.norm(r, axis=1)[:, None] for r in (rays, true_rays))
    U, _, Vt = np.linalg.svd(true_rays.T @ rays)
    error_px = np.linalg.norm(rays @ (U @ Vt).T - true_rays, axis=1) * camera.focal
    assert error_px.max() < 1.0
    assert np.sqrt(np.mean(error_px**2)) < 0.3


def test_standard_deviations_cover_the_error():
    result = calibrate(views_of(CAMERA), BOARD, CAMERA.size)
    errors = np.abs(result.camera.K - CAMERA.K)[[0, 1, 0, 1], [0, 1, 2, 2]]
    assert (errors < 4 * result.sigmas_px).all()
    assert (result.sigmas_px < 1).all()
    assert result.camera.D[4] == 0


def test_a_wrongly_detected_board_is_left_out():
    views = views_of(CAMERA)
    turned = (views[7].corners_px - (320, 240)) @ axangle2mat([0, 0, 1], 0.3)[:2, :2]
    views[7] = BoardView("wrong.png", turned + np.random.default_rng(0).normal(0, 8, turned.shape))
    result = calibrate(views, BOARD, CAMERA.size)
    assert result.left_out == ["wrong.png"]
    assert result.camera.focal == pytest.approx(CAMERA.focal, rel=0.005)


def test_too_few_views_are_refused():
    with pytest.raises(CameraError, match="4 views of the board are too few"):
        calibrate(views_of(CAMERA, 4), BOARD, CAMERA.size)


def test_an_unknown_model_is_refused():
    with pytest.raises(CameraError, match="unknown model 'omni'"):
        calibrate(views_of(CAMERA, 6), BOARD, CAMERA.size, "omni")

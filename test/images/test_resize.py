"""Resized images keep their rays."""

import numpy as np

from lgc_ros.geometry.camera import Camera
from lgc_ros.images.resize import limit_size, resized_camera

K = [[500.0, 0, 330.0], [0, 510.0, 250.0], [0, 0, 1]]
CAMERA = Camera.from_K(K, 640, 480, (-0.2, 0.05, 0.001, 0.002))


def test_the_rays_of_image_corners_stay():
    small = resized_camera(CAMERA, 160, 120)
    corners = np.array([[0, 0], [1, 0], [0.3, 0.7]])
    before = CAMERA.normalize(corners * CAMERA.size - 0.5)
    np.testing.assert_allclose(small.normalize(corners * small.size - 0.5), before, atol=1e-9)


def test_only_larger_images_are_shrunk():
    image = np.zeros((480, 640, 3), np.uint8)
    for max_size in (None, 640, 1000):
        same, camera = limit_size(image, CAMERA, max_size)
        assert same is image
        assert camera is CAMERA
    small, camera = limit_size(image, CAMERA, 320)
    assert small.shape == (240, 320, 3)
    assert camera.size == (320, 240)

"""Smaller images, and their cameras."""

from __future__ import annotations

import cv2
import numpy as np

from lgc_ros.geometry.camera import Camera


def limit_size(
    image: np.ndarray, camera: Camera, max_size_px: int | None
) -> tuple[np.ndarray, Camera]:
    """An image whose longer side has at most so many pixels, and its camera."""
    height, width = image.shape[:2]
    if max_size_px is None or max(width, height) <= max_size_px:
        return image, camera
    factor = max_size_px / max(width, height)
    size = max(1, round(factor * width)), max(1, round(factor * height))
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA), resized_camera(camera, *size)


def resized_camera(camera: Camera, width: int, height: int) -> Camera:
    """The camera of images resized to another number of pixels."""
    scale = np.array([width / camera.width, height / camera.height, 1.0])
    K = scale[:, None] * camera.K
    # Integer coordinates are pixel centers; the image corner is the fixed point of the scaling.
    K[:2, 2] += (scale[:2] - 1) / 2
    return Camera.from_K(K, width, height, camera.D.tolist(), camera.model)

"""A textured image for the extractors."""

import cv2
import numpy as np
import pytest


@pytest.fixture(scope="session")
def image():
    """Blurred noise, textured everywhere, with twice the contrast in the upper left quarter."""
    noise = cv2.GaussianBlur(np.random.default_rng(3).normal(size=(240, 320)), (0, 0), 1.5)
    noise /= noise.std()
    noise[:120, :160] *= 2
    return np.uint8(np.clip(128 + 25 * noise, 0, 255))

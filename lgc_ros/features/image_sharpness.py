"""Directional precision of keypoints under motion blur.

Fast rotation blurs an image along the direction of motion. Keypoints are then two to three times
less precise along the blur than across it. Assuming equal precision biases every estimated motion
toward the direction of the blur, where depth can absorb the residuals.
"""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np

from lgc_ros.features.keypoints import Extractor, Features, to_gray

# Gaussian smoothing before gradients: window and standard deviation.
WINDOW_PX, SMOOTHING_SIGMA_PX = 5, 1.5
# Gradients are sampled around about this many keypoints, weak and strong ones, at these offsets.
SAMPLED_KEYPOINTS = 300
OFFSETS_PX = np.stack(np.meshgrid(*2 * [np.arange(-6, 7, 3)]), axis=-1).reshape(-1, 2)
# Kinds of keypoints at integer pixels: quantization dominates their noise, which is isotropic.
INTEGER_PIXEL_KINDS = ("orb",)
# Upper bound on the ratio of the noise in two directions; larger ones are not credible.
MAX_NOISE_RATIO = 10.0


def with_sharpness(extract: Extractor) -> Extractor:
    """Wrap an extractor so that its features carry the sharpness of their image."""

    def extract_with_sharpness(image: np.ndarray) -> Features:
        features = extract(image)
        if features.kind in INTEGER_PIXEL_KINDS:
            return features
        return replace(features, sharpness=sharpness(image, features.points))

    return extract_with_sharpness


def sharpness(image: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Symmetric (2, 2) matrix of determinant 1 that whitens the position noise of keypoints.

    The position of a keypoint is as precise as the second derivatives there are large. Under blur
    they fall with the square of its length, as does the structure tensor, the mean square of the
    gradients. The result is the structure tensor of the median keypoint, normalized. Without
    texture it is the identity.
    """
    if len(points) == 0:
        return np.eye(2)
    gray = to_gray(image)
    smooth = cv2.GaussianBlur(gray, (WINDOW_PX, WINDOW_PX), SMOOTHING_SIGMA_PX)
    sampled = points[:: 1 + len(points) // SAMPLED_KEYPOINTS, None]
    around = np.round(sampled).astype(int) + OFFSETS_PX
    column, row = np.clip(around, 0, np.array(gray.shape[::-1]) - 1).transpose(2, 0, 1)
    gx, gy = (gradient[row, column].astype(np.float64) for gradient in cv2.spatialGradient(smooth))
    xx, xy, yy = (np.median((a * b).mean(axis=1)) for a, b in ((gx, gx), (gx, gy), (gy, gy)))
    values, vectors = np.linalg.eigh([[xx, xy], [xy, yy]])
    values = np.maximum(values, max(values[1] / MAX_NOISE_RATIO, 1e-9))
    return (vectors * values / np.sqrt(values.prod())) @ vectors.T


def noise_ratio(sharpness: np.ndarray) -> float:
    """Variance of keypoints along the blur, relative to the mean of all directions.

    Args:
        sharpness: as from `sharpness`; the identity without blur.
    """
    least, most = np.linalg.eigvalsh(sharpness)
    return float(most / least)

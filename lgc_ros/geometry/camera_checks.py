"""Signs that a calibration is not that of the camera: unusual values are named, not refused."""

from __future__ import annotations

import numpy as np

from lgc_ros.geometry.camera import Camera

# Distance of the principal point from the image center, as a share of the image size.
MAX_OFF_CENTER = 0.25
# Horizontal field of view in degrees, from telephoto to wide angle.
FIELD_OF_VIEW_DEG = (8.0, 140.0)
MAX_FISHEYE_DEG = 220.0
# Largest ratio of the two focal lengths.
MAX_ASPECT = 1.2
# Share of the image without a ray that is not worth a warning: the outermost corners.
MAX_FOLDED = 0.02
GRID = 40


def camera_warnings(camera: Camera) -> list[str]:
    """Sentences that name the values of a camera which are probably wrong; usually none."""
    return [
        *_principal_point(camera),
        *_focal_length(camera),
        *_distortion(camera),
    ]


def _principal_point(camera: Camera) -> list[str]:
    middle = (np.array(camera.size) - 1) / 2
    point = camera.K[:2, 2]
    if np.all(abs(point - middle) <= MAX_OFF_CENTER * np.array(camera.size)):
        return []
    return [
        f"the principal point (cx {point[0]:.1f}, cy {point[1]:.1f}) is far from the center "
        f"({middle[0]:.1f}, {middle[1]:.1f}) of the {camera.width}x{camera.height} image: check "
        "that the calibration belongs to images of this size"
    ]


def _focal_length(camera: Camera) -> list[str]:
    fx, fy = camera.K[0, 0], camera.K[1, 1]
    low, high = FIELD_OF_VIEW_DEG
    if camera.model == "equidistant":
        high, view_deg = MAX_FISHEYE_DEG, float(np.degrees(camera.width / fx))
    else:
        view_deg = float(np.degrees(2 * np.arctan(camera.width / (2 * fx))))
    warnings = []
    if not low <= view_deg <= high:
        warnings.append(
            f"the focal length fx {fx:.1f} px gives a horizontal field of view of {view_deg:.1f} "
            f"degrees over {camera.width} px: check its unit (pixels) and the image size"
        )
    if max(fx, fy) > MAX_ASPECT * min(fx, fy):
        warnings.append(
            f"the focal lengths fx {fx:.1f} and fy {fy:.1f} px differ by more than "
            f"{100 * (MAX_ASPECT - 1):.0f} %: check them"
        )
    return warnings


def _distortion(camera: Camera) -> list[str]:
    """Pixels that no ray maps to, because the polynomial of the distortion turns around."""
    x, y = (np.linspace(0, size - 1, GRID) for size in camera.size)
    pixels = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    folded = float(np.isnan(camera.normalize(pixels)).any(axis=1).mean())
    if folded <= MAX_FOLDED:
        return []
    values = ", ".join(f"{value:g}" for value in camera.D)
    return [
        f"the distortion ({camera.model}: {values}) folds the image: {100 * folded:.0f} % of its "
        "pixels have no ray, and keypoints there are not used; check distortion_model and its "
        "coefficients"
    ]

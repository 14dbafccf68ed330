"""Camera models: pixels to undistorted normalized coordinates and back.

Normalized coordinates are `(x/z, y/z)` in the camera frame (x right, y down, z forward); integer
pixel coordinates are pixel centers, as in OpenCV. Raw images need the camera matrix K and the
distortion D; rectified images need the projection matrix P and no distortion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from lgc_ros.errors import CameraError
from lgc_ros.runtime.output_files import write_file

# Valid numbers of coefficients per model; shorter vectors are padded with zeros.
COEFFICIENTS = {
    "pinhole": (0,),
    "plumb_bob": (0, 4, 5),
    "rational_polynomial": (0, 8, 12, 14),
    "equidistant": (0, 4),
}
ALIASES = {"fisheye": "equidistant", "none": "pinhole"}

DISTORTION = "the distortion (distortion_coefficients, D)"
CALIBRATE = (
    "calibrate it with `lgc calibrate` or ROS's cameracalibrator, and give the camera_info YAML "
    "to the camera driver (camera_info_url) or to this program"
)

# Limit for damaged files; no sensor has more pixels in a row.
MAX_SIDE_PX = 100_000
# Newton's method stops below CONVERGED; below REACHED its result is accepted. 1e-9 in normalized
# coordinates is about a millionth of a pixel.
MAX_ITERATIONS = 30
CONVERGED = 1e-13
REACHED = 1e-9
# Iterations for the radial correction, which is small.
CORRECTION_ITERATIONS = 6


@dataclass(frozen=True, eq=False)
class Camera:
    """Intrinsics of one image stream, at the size in which the images are delivered.

    Attributes:
        radial: what the calibration leaves of the radial distortion. Undistorted normalized
            coordinates are multiplied by ``1 + radial * r²``. Files have no place for it.
    """

    K: np.ndarray  # (3, 3) float64, pixels
    width: int
    height: int
    model: str = "pinhole"  # a key of COEFFICIENTS
    D: np.ndarray = field(default_factory=lambda: np.empty(0))  # in OpenCV's order, for `model`
    radial: float = 0.0

    def __post_init__(self) -> None:
        if self.model not in COEFFICIENTS:
            raise CameraError(
                f"unknown distortion_model '{self.model}'; use one of {', '.join(COEFFICIENTS)}"
            )
        K = _matrix(self.K, (3, 3), "the camera matrix (camera_matrix, K)")
        if K[0, 0] == 0:
            raise CameraError(f"the camera is not calibrated (K[0] is 0): {CALIBRATE}")
        if K[0, 0] < 0 or K[1, 1] <= 0:
            raise CameraError(
                f"the camera matrix (camera_matrix, K) has focal lengths {K[0, 0]:g} and "
                f"{K[1, 1]:g}; both must be positive: {CALIBRATE}"
            )
        if K[1, 0] != 0 or np.any(K[2] != (0, 0, 1)):
            raise CameraError(
                "the camera matrix (camera_matrix, K) must have the rows fx 0 cx, 0 fy cy, 0 0 1, "
                f"but is {K.ravel().tolist()}"
            )
        if not (MAX_SIDE_PX >= self.width > 0 and MAX_SIDE_PX >= self.height > 0):
            raise CameraError(
                f"the image size {self.width}x{self.height} (image_width, image_height) must be "
                f"positive and at most {MAX_SIDE_PX}; take it from the images"
            )
        D = _coefficients(self.D, self.model)
        for array in (K, D):
            array.setflags(write=False)
        object.__setattr__(self, "K", K)
        object.__setattr__(self, "D", D)
        object.__setattr__(self, "width", int(self.width))
        object.__setattr__(self, "height", int(self.height))

    @classmethod
    def from_K(
        cls,
        K: np.ndarray,
        width: int,
        height: int,
        D: Sequence[float] = (),
        model: str | None = None,
    ) -> Camera:
        """Build from the camera matrix; by default the length of D selects the model."""
        coefficients = _vector(D, DISTORTION)
        return cls(K, width, height, _model_name(model, coefficients), coefficients)

    @classmethod
    def from_yaml(cls, path: str | Path, rectified: bool = False) -> Camera:
        """Read a calibration file of ROS, OpenCV, Kalibr, ORB-SLAM or EuRoC."""
        from lgc_ros.geometry.camera_files import read_camera  # which imports this module

        return read_camera(path, rectified)

    @classmethod
    def from_camera_info(cls, info: Any, rectified: bool = False) -> Camera:
        """Read a sensor_msgs/CameraInfo message, or any object with its attributes.

        K and P are those of the full-resolution image; the delivered image is cut to the region of
        interest, then binned (REP-104). Binning merges whole pixels, so with integer pixel centers
        a coordinate u becomes (u + 0.5) / binning - 0.5. `roi.do_rectify` is ignored: as in
        image_geometry, raw and rectified images have the same offset and size.
        """
        if rectified:
            K, D, model = rectified_K(info.p), (), "pinhole"
        else:
            K = _matrix(info.k, (3, 3), "the camera matrix K of camera_info")
            D, model = info.d, info.distortion_model
        roi = info.roi
        width, height = roi.width or info.width, roi.height or info.height
        binning_x, binning_y = max(info.binning_x, 1), max(info.binning_y, 1)
        cut = np.array([[1, 0, -roi.x_offset], [0, 1, -roi.y_offset], [0, 0, 1]])
        scale_x, scale_y = 1 / binning_x, 1 / binning_y
        binned = np.array(
            [[scale_x, 0, (scale_x - 1) / 2], [0, scale_y, (scale_y - 1) / 2], [0, 0, 1]]
        )
        return cls.from_K(binned @ cut @ K, width // binning_x, height // binning_y, D, model)

    def to_yaml(self, path: str | Path, name: str = "camera") -> None:
        """Write a ROS camera_info file, readable by `from_yaml` and ROS drivers."""
        P = np.column_stack([self.K, np.zeros(3)])
        info = {
            "image_width": self.width,
            "image_height": self.height,
            "camera_name": name,
            "camera_matrix": _yaml_matrix(self.K),
            # ROS has no model without distortion; plumb_bob with zeros is equivalent.
            "distortion_model": "plumb_bob" if self.model == "pinhole" else self.model,
            "distortion_coefficients": _yaml_matrix(
                (np.zeros(5) if self.model == "pinhole" else self.D)[None]
            ),
            "rectification_matrix": _yaml_matrix(np.eye(3)),
            "projection_matrix": _yaml_matrix(P),
        }
        write_file(Path(path), yaml.safe_dump(info, sort_keys=False, default_flow_style=None))

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the image in pixels."""
        return self.width, self.height

    @property
    def focal(self) -> float:
        """Mean focal length in pixels; a threshold in pixels divided by it is normalized."""
        return float(self.K[0, 0] + self.K[1, 1]) / 2

    @property
    def has_distortion(self) -> bool:
        """Whether straight lines appear curved; an equidistant lens curves them even if D is 0."""
        return self.model == "equidistant" or bool(np.any(self.D))

    def normalize(self, points_px: np.ndarray) -> np.ndarray:
        """Undistorted normalized coordinates (N, 2) of pixels (N, 2).

        A pixel that no ray in front of the camera maps to under the distortion model gives NaN.
        """
        points_px = np.asarray(points_px, np.float64).reshape(-1, 2)
        y = (points_px[:, 1] - self.K[1, 2]) / self.K[1, 1]
        x = (points_px[:, 0] - self.K[0, 2] - self.K[0, 1] * y) / self.K[0, 0]
        if self.model == "equidistant":
            x, y = _undistort_equidistant(x, y, self.D)
        elif self.has_distortion:
            x, y = _undistort_polynomial(x, y, self.D)
        x1 = np.column_stack([x, y])
        return x1 * (1 + self.radial * _squared(x1)) if self.radial else x1

    def project(self, points_cam: np.ndarray) -> np.ndarray:
        """Pixels (N, 2) of points (N, 3) in the camera frame; NaN for points not in front."""
        points_cam = np.asarray(points_cam, np.float64).reshape(-1, 3)
        z = np.where(points_cam[:, 2] > 0, points_cam[:, 2], np.nan)
        x, y = points_cam[:, 0] / z, points_cam[:, 1] / z
        if self.radial:
            x, y = _without_correction(np.column_stack([x, y]), self.radial).T
        if self.model == "equidistant":
            x, y = _distort_equidistant(x, y, self.D)
        elif self.has_distortion:
            x, y = _tilt(*_distort_polynomial(x, y, self.D)[:2], _tilt_matrix(self.D))
        return np.column_stack([x, y, np.ones_like(x)]) @ self.K[:2].T

    def check_image(self, image: np.ndarray, name: str = "the image") -> None:
        """Raise CameraError unless the image has the size this camera was calibrated for."""
        height, width = image.shape[:2]
        if (width, height) != self.size:
            raise CameraError(
                f"{name} is {width}x{height} pixels but the camera is calibrated for "
                f"{self.width}x{self.height}; use the camera file of these images, or images "
                "that are neither resized nor cropped"
            )


def _squared(x: np.ndarray) -> np.ndarray:
    """(N, 1) squared distances from the optical axis."""
    return (x * x).sum(axis=1, keepdims=True)


def _without_correction(x: np.ndarray, radial: float) -> np.ndarray:
    """Invert the correction ``u (1 + radial |u|²) = x`` by Newton's method for |u| / |x|."""
    slope, share = radial * _squared(x), np.ones((len(x), 1))
    with np.errstate(all="ignore"):
        for _ in range(CORRECTION_ITERATIONS):
            share = share - (share + slope * share**3 - 1) / (1 + 3 * slope * share**2)
        valid = abs(share + slope * share**3 - 1) < REACHED
    return np.where(valid, share, np.nan) * x


def _distort_polynomial(
    x: np.ndarray, y: np.ndarray, D: np.ndarray
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
    """OpenCV's rational, tangential and thin-prism distortion, and its row-major Jacobian."""
    k1, k2, p1, p2, k3, k4, k5, k6, s1, s2, s3, s4, _, _ = _padded(D, 14)
    r2 = x * x + y * y
    numerator = 1 + r2 * (k1 + r2 * (k2 + r2 * k3))
    denominator = 1 + r2 * (k4 + r2 * (k5 + r2 * k6))
    radial = numerator / denominator
    slope = k1 + r2 * (2 * k2 + r2 * 3 * k3) - radial * (k4 + r2 * (2 * k5 + r2 * 3 * k6))
    slope = 2 * slope / denominator
    xy = x * y
    prism_x, prism_y = 2 * (s1 + 2 * s2 * r2), 2 * (s3 + 2 * s4 * r2)
    cross = xy * slope + 2 * (p1 * x + p2 * y)
    return (
        x * radial + 2 * p1 * xy + p2 * (r2 + 2 * x * x) + r2 * (s1 + s2 * r2),
        y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * xy + r2 * (s3 + s4 * r2),
        (
            radial + x * x * slope + 2 * p1 * y + 6 * p2 * x + x * prism_x,
            cross + y * prism_x,
            cross + x * prism_y,
            radial + y * y * slope + 6 * p1 * y + 2 * p2 * x + y * prism_y,
        ),
    )


def _undistort_polynomial(
    x_distorted: np.ndarray, y_distorted: np.ndarray, D: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Invert `_distort_polynomial` by Newton's method, starting at the distorted point.

    From there Newton's method converges monotonically for the radial part of common lenses; the
    fixed-point iteration of OpenCV does not for strong distortion.
    """
    x_distorted, y_distorted = _tilt(x_distorted, y_distorted, np.linalg.inv(_tilt_matrix(D)))
    x, y = x_distorted, y_distorted
    with np.errstate(all="ignore"):
        for _ in range(MAX_ITERATIONS):
            x_now, y_now, (a, b, c, d) = _distort_polynomial(x, y, D)
            dx, dy, determinant = x_distorted - x_now, y_distorted - y_now, a * d - b * c
            error = np.maximum(abs(dx), abs(dy))
            if np.all(error < CONVERGED):
                break
            x = x + (d * dx - b * dy) / determinant
            y = y + (a * dy - c * dx) / determinant
        # Where the Jacobian is not positive definite, the model folds over: no ray maps there.
        invalid = ~((error < REACHED) & (determinant > 0) & (a + d > 0))
    return np.where(invalid, np.nan, x), np.where(invalid, np.nan, y)


def _distort_equidistant(
    x: np.ndarray, y: np.ndarray, D: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Fisheye: image radius proportional to the angle from the optical axis, not its tangent."""
    radius = np.hypot(x, y)
    theta = np.arctan(radius)
    scale = np.divide(
        _theta_polynomial(theta, D)[0], radius, out=np.ones_like(radius), where=radius > 0
    )
    return x * scale, y * scale


def _undistort_equidistant(
    x: np.ndarray, y: np.ndarray, D: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Invert `_distort_equidistant`: Newton's method for the angle."""
    radius = np.hypot(x, y)
    theta = radius
    with np.errstate(all="ignore"):
        for _ in range(MAX_ITERATIONS):
            value, slope = _theta_polynomial(theta, D)
            error = radius - value
            if np.all(abs(error) < CONVERGED):
                break
            theta = theta + error / slope
        valid = (abs(error) < REACHED) & (slope > 0) & (theta < np.pi / 2)
        scale = np.where(radius > 0, np.tan(theta) / radius, 1.0)
    scale = np.where(valid, scale, np.nan)
    return x * scale, y * scale


def _theta_polynomial(theta: np.ndarray, D: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """theta (1 + k1 theta^2 + k2 theta^4 + ...) and its derivative."""
    k1, k2, k3, k4 = _padded(D, 4)
    t = theta * theta
    value = theta * (1 + t * (k1 + t * (k2 + t * (k3 + t * k4))))
    return value, 1 + t * (3 * k1 + t * (5 * k2 + t * (7 * k3 + t * 9 * k4)))


def _tilt_matrix(D: np.ndarray) -> np.ndarray:
    """Homography of a sensor tilted by the last two of 14 coefficients, in radians."""
    tilt_x, tilt_y = _padded(D, 14)[12:]
    cx, sx, cy, sy = np.cos(tilt_x), np.sin(tilt_x), np.cos(tilt_y), np.sin(tilt_y)
    R = np.array([[cy, 0, -sy], [0, 1, 0], [sy, 0, cy]]) @ [[1, 0, 0], [0, cx, sx], [0, -sx, cx]]
    return np.array([[R[2, 2], 0, -R[0, 2]], [0, R[2, 2], -R[1, 2]], [0, 0, 1]]) @ R


def _tilt(x: np.ndarray, y: np.ndarray, H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    tilted = H @ np.stack([x, y, np.ones_like(x)])
    return tilted[0] / tilted[2], tilted[1] / tilted[2]


def _padded(D: np.ndarray, size: int) -> np.ndarray:
    return np.pad(D, (0, size - len(D)))


def _model_name(model: str | None, D: np.ndarray) -> str:
    if model is not None and not isinstance(model, str):
        raise CameraError(f"distortion_model is {model!r:.80}, but must be a string")
    model = ALIASES.get(model or "", model)
    if model:
        return model
    if D.size == 0:
        return "pinhole"
    return "plumb_bob" if D.size <= 5 else "rational_polynomial"


def _coefficients(values: Sequence[float] | np.ndarray, model: str) -> np.ndarray:
    """Check the coefficients; trailing zeros are dropped, because some drivers add them."""
    D = _vector(values, DISTORTION)
    allowed = COEFFICIENTS[model]
    if not np.any(D[allowed[-1] :]):
        D = D[: allowed[-1]]
    if D.size not in allowed:
        raise CameraError(
            f"distortion model {model} has {D.size} coefficients (distortion_coefficients, D) but "
            f"takes {' or '.join(map(str, allowed))}; correct distortion_model or D"
        )
    return D


def _vector(values: Any, what: str) -> np.ndarray:
    try:
        array = np.array(values, np.float64).ravel()
    except (TypeError, ValueError, OverflowError) as error:
        raise CameraError(f"{what} must contain numbers only, but is {values!r:.80}") from error
    if not np.all(np.isfinite(array)):
        raise CameraError(f"{what} contains NaN or infinity: {array.tolist()}; {CALIBRATE}")
    return array


def _matrix(values: Any, shape: tuple[int, int], what: str) -> np.ndarray:
    array = _vector(values, what)
    if array.size != shape[0] * shape[1]:
        raise CameraError(f"{what} has {array.size} numbers instead of {shape[0]}x{shape[1]}")
    return array.reshape(shape)


def rectified_K(P: Any) -> np.ndarray:
    """The camera matrix (3, 3) of rectified images, from the projection matrix P (3, 4)."""
    P = _matrix(P, (3, 4), "the projection matrix (projection_matrix, P)")
    if P[0, 0] == 0:
        raise CameraError(
            "the camera has no rectification (projection_matrix, P[0] is 0): use the raw images, "
            f"or {CALIBRATE}"
        )
    return P[:, :3]


def _yaml_matrix(matrix: np.ndarray) -> dict[str, Any]:
    rows, cols = matrix.shape
    return {"rows": rows, "cols": cols, "data": matrix.ravel().tolist()}

"""The camera that explains the corners of a chessboard in several views best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from lgc_ros.calibration.chessboard import Board, BoardView
from lgc_ros.errors import CameraError
from lgc_ros.geometry.camera import Camera

MODELS = ("plumb_bob", "rational_polynomial", "equidistant")
MIN_VIEWS = 5
# A view with a larger error than this multiple of the median, and this many pixels, was detected
# wrongly: it is left out.
OUTLIER_FACTOR, OUTLIER_PX = 4.0, 0.3


@dataclass(frozen=True, eq=False)
class Calibration:
    """An estimated camera and its errors.

    Attributes:
        camera: the estimate.
        views: the views used.
        residuals_px: per view, (N, 2) detected minus predicted corners.
        sigmas_px: standard deviations of fx, fy, cx and cy; None if OpenCV does not
            estimate them (equidistant).
        left_out: names of views whose board was detected wrongly.
    """

    camera: Camera
    views: list[BoardView]
    residuals_px: list[np.ndarray]
    sigmas_px: np.ndarray | None
    left_out: list[str]

    @property
    def rms_px(self) -> float:
        """Root mean square distance between detected and predicted corners."""
        return _rms(np.concatenate(self.residuals_px))

    @property
    def view_rms_px(self) -> np.ndarray:
        """The same, per view."""
        return np.array([_rms(residuals) for residuals in self.residuals_px])

    @property
    def coverage(self) -> float:
        """Fraction of the width and height of the image that corners were seen in, multiplied."""
        corners = np.concatenate([view.corners_px for view in self.views])
        return float(np.prod(np.ptp(corners, axis=0) / self.camera.size))


def calibrate(
    views: Sequence[BoardView], board: Board, size: tuple[int, int], model: str = "plumb_bob"
) -> Calibration:
    """Estimate a camera from views of a board; wrongly detected boards are left out.

    Models are those of ROS: plumb_bob (k1, k2, p1, p2; k3 is 0, as in ROS's cameracalibrator),
    rational_polynomial for wide lenses, equidistant for fisheyes.
    """
    if model not in MODELS:
        raise CameraError(f"unknown model '{model}'; use one of {', '.join(MODELS)}")
    left_out: list[str] = []
    views = list(views)
    while True:
        if len(views) < MIN_VIEWS:
            raise CameraError(
                f"{len(views)} views of the board are too few, at least {MIN_VIEWS} are needed: "
                "show it at different distances, tilted, and in all corners of the image"
            )
        result = _estimate(views, board, size, model)
        limit = max(OUTLIER_FACTOR * float(np.median(result.view_rms_px)), OUTLIER_PX)
        bad = {i for i, rms in enumerate(result.view_rms_px) if rms > limit}
        if not bad:
            return Calibration(
                result.camera, views, result.residuals_px, result.sigmas_px, left_out
            )
        left_out += [views[i].name for i in sorted(bad)]
        views = [view for i, view in enumerate(views) if i not in bad]


def _estimate(
    views: list[BoardView], board: Board, size: tuple[int, int], model: str
) -> Calibration:
    # Fisheyes take numbers of 64 bits only, other cameras of 32 bits only.
    dtype = np.float64 if model == "equidistant" else np.float32
    corners = [view.corners_px.astype(dtype)[None] for view in views]
    boards = [board.points_m.astype(dtype)[None]] * len(views)
    # The type stubs of OpenCV do not know that intrinsics without a guess are None.
    try:
        if model == "equidistant":
            named = cv2 if hasattr(cv2, "CALIB_FIX_SKEW") else cv2.fisheye  # before OpenCV 5
            flags = named.CALIB_RECOMPUTE_EXTRINSIC | named.CALIB_FIX_SKEW
            _, K, D, rotations, translations = cv2.fisheye.calibrate(  # type: ignore[call-overload]
                boards, corners, size, None, None, flags=flags
            )
            sigmas = None
        else:
            flags = cv2.CALIB_FIX_K3 if model == "plumb_bob" else cv2.CALIB_RATIONAL_MODEL
            _, K, D, rotations, translations, deviations, *_ = cv2.calibrateCameraExtended(  # type: ignore[call-overload]
                boards, corners, size, None, None, flags=flags
            )
            sigmas = deviations.ravel()[:4]
    except cv2.error as error:
        raise CameraError(
            f"no camera explains these views ({' '.join(str(error.err).split())}): check --board, "
            "and show the board tilted and at different distances"
        ) from error
    D = D.ravel()[: {"plumb_bob": 5, "rational_polynomial": 8, "equidistant": 4}[model]]
    camera = Camera.from_K(K, *size, D, model)
    residuals = [
        view.corners_px - camera.project(board.points_m @ cv2.Rodrigues(r)[0].T + t.ravel())
        for view, r, t in zip(views, rotations, translations, strict=True)
    ]
    return Calibration(camera, views, residuals, sigmas, [])


def _rms(residuals_px: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.sum(residuals_px**2, axis=1))))

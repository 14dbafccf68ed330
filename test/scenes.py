"""Random two-view scenes with known truth, shared by the tests of geometry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from transforms3d.axangles import axangle2mat

from lgc_ros.geometry import epipolar as geometry
from lgc_ros.matching.correspondences import Correspondences

FOCAL_PX = 500.0
SIZE_PX = (640, 480)
SURFACE_R_10 = axangle2mat([0.2, 1.0, 0.1], np.radians(12))
SURFACE_T_10 = np.array([-0.9, 0.1, 0.3]) / np.linalg.norm([-0.9, 0.1, 0.3])


@dataclass(frozen=True, eq=False)
class TwoViewScene:
    """Normalized matches of a pose, and the points (camera 0) they come from."""

    R_10: np.ndarray
    t_10: np.ndarray
    X0: np.ndarray
    x0: np.ndarray
    x1: np.ndarray

    @property
    def E_10(self) -> np.ndarray:
        return geometry.essential_from_pose(self.R_10, self.t_10)


def random_scene(seed: int = 0, points: int = 60, noise_px: float = 0.0) -> TwoViewScene:
    """Points 2 to 8 units ahead, seen by two cameras about one unit apart."""
    rng = np.random.default_rng(seed)
    R_10 = axangle2mat(rng.standard_normal(3), rng.uniform(0.05, 0.4))
    t_10 = rng.standard_normal(3)
    t_10 /= np.linalg.norm(t_10)
    X0 = rng.uniform([-1.5, -1.5, 2.5], [1.5, 1.5, 8.0], (points, 3))
    X1 = X0 @ R_10.T + t_10
    keep = X1[:, 2] > 0.5
    X0, X1 = X0[keep], X1[keep]
    noise = rng.normal(0, noise_px / FOCAL_PX, (2, len(X0), 2))
    return TwoViewScene(
        R_10, t_10, X0, X0[:, :2] / X0[:, 2:] + noise[0], X1[:, :2] / X1[:, 2:] + noise[1]
    )


def as_correspondences(
    x0: np.ndarray, x1: np.ndarray, scores: np.ndarray | None = None
) -> Correspondences:
    """Normalized matches as two 640x480 cameras of focal length 500 px would give them."""
    center = np.array(SIZE_PX) / 2
    return Correspondences(
        x0=x0,
        x1=x1,
        p0=x0 * FOCAL_PX + center,
        p1=x1 * FOCAL_PX + center,
        size0=SIZE_PX,
        size1=SIZE_PX,
        focal=FOCAL_PX,
        ratio=np.full(len(x0), 0.7, np.float32),
        mutual=np.ones(len(x0), bool),
        zoom=np.zeros(len(x0)),
        roll=np.zeros(len(x0)),
        scores=scores,
    )


def surface_matches(count=800, outliers=0.0, noise_px=0.0, seed=0, scores=False, relief=1.0):
    """Matches on a curved surface, dense enough for GMS, and the mask of the true ones.

    The pose is SURFACE_R_10, SURFACE_T_10. With `relief` 0 the surface is a plane.
    """
    rng = np.random.default_rng(seed)
    x0 = rng.uniform([-0.6, -0.45], [0.6, 0.45], (count, 2))
    depth = 3 + relief * (np.sin(3 * x0[:, 0]) + np.cos(4 * x0[:, 1]))
    X1 = geometry.homogeneous(x0) * depth[:, None] @ SURFACE_R_10.T + SURFACE_T_10
    x1 = X1[:, :2] / X1[:, 2:]
    noise = rng.normal(0, noise_px / FOCAL_PX, (2, count, 2))
    outlier = rng.permutation(count) < outliers * count
    x1[outlier] = rng.uniform([-0.6, -0.45], [0.6, 0.45], (outlier.sum(), 2))
    quality = np.where(outlier, rng.beta(2, 2, count), rng.beta(5, 1, count)) if scores else None
    return as_correspondences(x0 + noise[0], x1 + noise[1], quality), ~outlier


def surface_pose_error_deg(estimate):
    """Larger of the rotation and translation errors of an estimate from `surface_matches`."""
    return max(
        geometry.rotation_error_deg(estimate.R_10, SURFACE_R_10),
        geometry.translation_error_deg(estimate.t_10, SURFACE_T_10, signed=True),
    )

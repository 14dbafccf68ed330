"""Random two-view scenes with known truth, shared by the tests of geometry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from transforms3d.axangles import axangle2mat

from lgc_ros.geometry import epipolar as geometry
from lgc_ros.matching.correspondences import Correspondences

FOCAL_PX = 500.0
SIZE_PX = (640, 480)


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
    centre = np.array(SIZE_PX) / 2
    return Correspondences(
        x0=x0,
        x1=x1,
        p0=x0 * FOCAL_PX + centre,
        p1=x1 * FOCAL_PX + centre,
        size0=SIZE_PX,
        size1=SIZE_PX,
        focal=FOCAL_PX,
        ratio=np.full(len(x0), 0.7, np.float32),
        mutual=np.ones(len(x0), bool),
        zoom=np.zeros(len(x0)),
        roll=np.zeros(len(x0)),
        scores=scores,
    )

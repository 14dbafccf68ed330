"""A pose is refined from what it sees, whatever else is among the points."""

import numpy as np
import pytest
from transforms3d.axangles import axangle2mat

from lgc_ros.geometry import rotation_error_deg
from lgc_ros.refinement import refine_pose

SIGMA = 1e-3


def view(seed=0, count=60):
    """Points ahead of a camera, what it sees of them, and its pose."""
    rng = np.random.default_rng(seed)
    points = rng.uniform([-2, -2, 3], [2, 2, 8], (count, 3))
    R_cw, t_cw = axangle2mat(rng.standard_normal(3), 0.2), np.array([0.1, -0.2, 0.3])
    cam = points @ R_cw.T + t_cw
    return points, cam[:, :2] / cam[:, 2:] + SIGMA * rng.standard_normal((count, 2)), R_cw, t_cw


@pytest.mark.parametrize("uncertain", [False, True])
def test_a_pose_is_found_from_nearby(uncertain):
    points, observed, R_cw, t_cw = view()
    covariances = np.tile(1e-4 * np.eye(3), (len(points), 1, 1)) if uncertain else None
    start = axangle2mat([0, 1, 0], 0.05) @ R_cw, t_cw + 0.1
    refined = refine_pose(*start, points, observed, SIGMA, covariances)
    assert rotation_error_deg(refined.R_cw, R_cw) < 0.3
    assert np.linalg.norm(refined.t_cw - t_cw) < 0.02


@pytest.mark.parametrize("depth", [-3.0, -0.3, 1e-7, 1e-5])
def test_points_beside_or_behind_the_camera_do_no_harm(depth):
    """A landmark of uncertain depth that the camera has passed is no reason to fail."""
    points, observed, R_cw, t_cw = view()
    passed = (np.array([200, 200, depth]) - t_cw) @ R_cw
    points, observed = np.vstack([points, passed]), np.vstack([observed, [0.2, 0.1]])
    covariances = np.tile(1e-4 * np.eye(3), (len(points), 1, 1))
    covariances[-1] = 50 * np.eye(3)
    refined = refine_pose(R_cw, t_cw, points, observed, SIGMA, covariances)
    assert rotation_error_deg(refined.R_cw, R_cw) < 0.3
    assert np.linalg.norm(refined.t_cw - t_cw) < 0.02
    assert np.isfinite(refined.covariance).all()

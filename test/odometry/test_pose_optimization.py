"""Poses are refined from what they see, whatever else is among the points."""

import numpy as np
import pytest
from transforms3d.axangles import axangle2mat

from lgc_ros.geometry.epipolar import rotation_error_deg
from lgc_ros.odometry.pose_optimization import (
    CAUCHY_SIGMAS,
    fit_rotation,
    refine_far_pose,
    refine_pose,
    rotation_from_vector,
)

SIGMA = 1e-3
# Noise of one size along a slanted direction and of another across.
WHITENING = np.array([[1.5, 0.4], [0.4, 0.8]]) / SIGMA


def view(seed=0, count=60):
    """Points ahead of a camera, what it sees of them, and its pose."""
    rng = np.random.default_rng(seed)
    points = rng.uniform([-2, -2, 3], [2, 2, 8], (count, 3))
    R_cw, t_cw = axangle2mat(rng.standard_normal(3), 0.2), np.array([0.1, -0.2, 0.3])
    cam = points @ R_cw.T + t_cw
    return points, cam[:, :2] / cam[:, 2:] + noise(rng, count), R_cw, t_cw


def noise(rng, count):
    return rng.standard_normal((count, 2)) @ np.linalg.inv(WHITENING).T


@pytest.mark.parametrize("uncertain", [False, True])
def test_a_pose_is_found_from_nearby(uncertain):
    points, observed, R_cw, t_cw = view()
    covariances = np.tile(1e-4 * np.eye(3), (len(points), 1, 1)) if uncertain else None
    start = axangle2mat([0, 1, 0], 0.05) @ R_cw, t_cw + 0.1
    refined = refine_pose(*start, points, observed, WHITENING, covariances)
    assert rotation_error_deg(refined.R_cw, R_cw) < 0.3
    assert np.linalg.norm(refined.t_cw - t_cw) < 0.02


@pytest.mark.parametrize("seed", range(10))
def test_a_far_pose_is_found_although_wrong_matches_support_the_guess(seed):
    """Patches that are searched for around a guess far off are often mistaken for others there."""
    points, observed, R_cw, t_cw = view(seed, 120)
    start = axangle2mat([0, 1, 0.2], 0.07) @ R_cw, t_cw + 0.2
    mistaken = points[:30] @ start[0].T + start[1]
    offsets = np.random.default_rng(seed).uniform(-0.02, 0.02, (30, 2))
    observed[:30] = mistaken[:, :2] / mistaken[:, 2:] + offsets
    refined = refine_far_pose(*start, points, observed, WHITENING, np.zeros((120, 3, 3)))
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
    refined = refine_pose(R_cw, t_cw, points, observed, WHITENING, covariances)
    assert rotation_error_deg(refined.R_cw, R_cw) < 0.3
    assert np.linalg.norm(refined.t_cw - t_cw) < 0.02
    assert np.isfinite(refined.covariance).all()


@pytest.mark.parametrize("depth", [-3.0, -0.3, 1e-7])
def test_points_behind_the_camera_do_not_support_a_pose(depth):
    """However uncertain they are: they cannot have been seen."""
    points, observed, R_cw, t_cw = view()
    cam = points @ R_cw.T + t_cw
    cam[:, 2] = depth * cam[:, 2] / cam[:, 2].max()
    behind = (cam - t_cw) @ R_cw
    covariances = np.tile(50 * np.eye(3), (len(points), 1, 1))
    refined = refine_pose(R_cw, t_cw, behind, observed, WHITENING, covariances)
    assert np.isinf(refined.distance).all()


@pytest.mark.parametrize("hold_center", [False, True])
def test_every_step_away_from_a_refined_pose_costs_more(hold_center):
    points, observed, R_cw, t_cw = view()
    observed[:5] += 0.1  # outliers
    refined = refine_pose(R_cw, t_cw, points, observed, WHITENING, hold_center=hold_center)
    # The step that is the last one is small, not nothing.
    refined = refine_pose(
        refined.R_cw, refined.t_cw, points, observed, WHITENING, hold_center=hold_center
    )

    def cost(step):
        turn = rotation_from_vector(step[:3])
        points_cam = points @ (turn @ refined.R_cw).T + turn @ refined.t_cw + step[3:]
        offset = (points_cam[:, :2] / points_cam[:, 2:] - observed) @ WHITENING.T
        return np.log1p((offset**2).sum(axis=1) / CAUCHY_SIGMAS**2).sum()

    free = 3 if hold_center else 6
    for step in 1e-4 * np.eye(6)[:free]:
        assert cost(step) > cost(np.zeros(6))
        assert cost(-step) > cost(np.zeros(6))
    if hold_center:
        np.testing.assert_allclose(refined.R_cw.T @ refined.t_cw, R_cw.T @ t_cw, atol=1e-12)


def test_a_refined_pose_scatters_as_its_covariance_says():
    """Uncertain points add to the noise of the image, as far as they lie across the ray."""
    points, observed, R_cw, t_cw = view()
    exact = points @ R_cw.T + t_cw
    exact = exact[:, :2] / exact[:, 2:]
    rng = np.random.default_rng(1)
    spread = np.diag([0.005, 0.01, 0.05])
    squares = []
    for _ in range(100):
        noisy = points + rng.standard_normal(points.shape) @ spread
        observed = exact + noise(rng, len(exact))
        covariances = np.tile(spread**2, (len(points), 1, 1))
        refined = refine_pose(R_cw, t_cw, noisy, observed, WHITENING, covariances)
        turn = refined.R_cw @ R_cw.T
        omega = np.array([turn[2, 1], turn[0, 2], turn[1, 0]])
        error = np.concatenate([omega, refined.t_cw - turn @ t_cw])
        squares.append(error @ np.linalg.solve(refined.covariance, error))
    # Six unknowns; the covariance is on the safe side, as the loss does not count every residual.
    assert 3 < np.mean(squares) < 6


@pytest.mark.parametrize("angle", [0.0, 1e-12, 1e-7, 1e-3, 1.0, 3.0])
def test_a_rotation_is_about_its_vector_by_its_length(angle):
    axis = np.array([2.0, -1.0, 2.0]) / 3
    expected = axangle2mat(axis, angle)
    np.testing.assert_allclose(rotation_from_vector(angle * axis), expected, atol=1e-15)


def test_a_rotation_is_fitted_among_wrong_matches_that_agree_with_each_other():
    """Those of a repeated texture are all shifted alike."""
    rng = np.random.default_rng(2)
    rays0 = rng.uniform([-0.5, -0.5, 1], [0.5, 0.5, 1], (200, 3))
    R_10 = axangle2mat([0.2, 1, 0.1], 0.8)
    rays1 = rays0 @ R_10.T
    rays1[:80] = rays1[:80] @ axangle2mat([0.2, 1, 0.1], 0.25).T
    x0, x1 = rays0[:, :2], rays1[:, :2] / rays1[:, 2:]
    found, left_rad = fit_rotation(x0, x1, SIGMA)
    np.testing.assert_allclose(found, R_10, atol=1e-4)
    assert (left_rad[:80] > 0.1).all()


def test_a_rotation_is_fitted_among_wrong_matches_and_leaves_the_parallax():
    rng = np.random.default_rng(2)
    rays0 = rng.uniform([-0.5, -0.5, 1], [0.5, 0.5, 1], (200, 3))
    R_10 = axangle2mat([0.2, 1, 0.1], 0.3)
    rays1 = rays0 @ R_10.T
    x0, x1 = rays0[:, :2], rays1[:, :2] / rays1[:, 2:]
    x1[:40] += rng.uniform(-0.5, 0.5, (40, 2))
    found, left_rad = fit_rotation(x0, x1, SIGMA)
    np.testing.assert_allclose(found, R_10, atol=1e-4)
    seen = np.column_stack([x1, np.ones(200)])
    cosine = (seen * rays1).sum(axis=1)
    cosine /= np.linalg.norm(seen, axis=1) * np.linalg.norm(rays1, axis=1)
    np.testing.assert_allclose(left_rad, np.arccos(np.minimum(cosine, 1)), atol=2e-4)

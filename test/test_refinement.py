"""Poses and bundles are refined from what they see, whatever else is among the points."""

from dataclasses import replace

import numpy as np
import pytest
from transforms3d.axangles import axangle2mat

from lgc_ros.geometry import rotation_error_deg
from lgc_ros.refinement import (
    Bundle,
    adjust_bundle,
    bundle_distances,
    refine_pose,
    rotation_from_vector,
)

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


def bundle_of(rng, views=5, points=40, fixed=2, noise=0.0):
    """Cameras side by side that all see most of some points, and the truth."""
    world = rng.uniform((-2, -1, 4), (2, 1, 8), (points, 3))
    R_cw = np.array([rotation_from_vector(rng.normal(0, 0.05, 3)) for _ in range(views)])
    t_cw = np.array([(-0.4 * k, 0.02 * k, 0.1 * k) for k in range(views)])
    view, point = np.nonzero(rng.random((views, points)) < 0.8)
    points_cam = np.einsum("oij,oj->oi", R_cw[view], world[point]) + t_cw[view]
    observed = points_cam[:, :2] / points_cam[:, 2:] + rng.normal(0, noise, (len(view), 2))
    return Bundle(
        R_cw,
        t_cw,
        np.arange(views) < fixed,
        world,
        view,
        point,
        observed,
        np.full(len(view), SIGMA),
    )


def disturbed(bundle, rng):
    R_cw, t_cw = bundle.R_cw.copy(), bundle.t_cw.copy()
    for k in np.flatnonzero(~bundle.fixed):
        R_cw[k] = rotation_from_vector(rng.normal(0, 0.01, 3)) @ R_cw[k]
        t_cw[k] += rng.normal(0, 0.02, 3)
    points = bundle.points + rng.normal(0, 0.05, bundle.points.shape)
    return replace(bundle, R_cw=R_cw, t_cw=t_cw, points=points)


@pytest.mark.parametrize("fixed", [2, 5])
def test_a_disturbed_bundle_comes_back(fixed):
    rng = np.random.default_rng(3)
    truth = bundle_of(rng, fixed=fixed)
    start = disturbed(truth, rng)
    R_cw, t_cw, points, _ = adjust_bundle(start, 30)
    np.testing.assert_array_equal(R_cw[truth.fixed], truth.R_cw[truth.fixed])
    np.testing.assert_allclose(R_cw, truth.R_cw, atol=1e-4)
    np.testing.assert_allclose(t_cw, truth.t_cw, atol=1e-3)
    np.testing.assert_allclose(points, truth.points, atol=5e-3)
    assert bundle_distances(replace(truth, R_cw=R_cw, t_cw=t_cw, points=points)).max() < 0.5


def test_a_wrong_observation_does_not_bend_a_bundle():
    rng = np.random.default_rng(4)
    truth = bundle_of(rng, noise=1e-4)
    truth.observed[7] += 0.2
    R_cw, t_cw, points, _ = adjust_bundle(disturbed(truth, rng), 30)
    np.testing.assert_allclose(t_cw, truth.t_cw, atol=2e-3)
    far = bundle_distances(replace(truth, R_cw=R_cw, t_cw=t_cw, points=points)) > 8
    np.testing.assert_array_equal(np.flatnonzero(far), [7])


def test_points_of_a_bundle_scatter_as_their_covariances_say():
    rng = np.random.default_rng(5)
    truth = bundle_of(rng, fixed=5)
    squares = []
    for _ in range(30):
        noisy = replace(
            truth, observed=truth.observed + rng.normal(0, SIGMA, truth.observed.shape)
        )
        _, _, points, covariances = adjust_bundle(noisy, 20)
        error = points - truth.points
        squares.append(np.einsum("ni,nij,nj->n", error, np.linalg.inv(covariances), error))
    assert np.mean(squares) == pytest.approx(3, rel=0.25)

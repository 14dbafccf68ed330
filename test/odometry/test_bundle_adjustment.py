"""Bundles are refined from what their views see, whatever else is among the observations."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

from lgc_ros.odometry.bundle_adjustment import (
    Bundle,
    adjust_bundle,
    bundle_distances,
    observed_noise,
    shared_shift,
)
from lgc_ros.odometry.pose_optimization import CAUCHY_SIGMAS, rotation_from_vector

SIGMA = 1e-3
EQUAL = np.eye(2) / SIGMA
# Noise of one size along a slanted direction and of another across.
SLANTED = np.array([[1.5, 0.4], [0.4, 0.8]]) / SIGMA


def drawn(rng, sigma, count, whitening=SLANTED):
    """Offsets of that standard deviation, on average over the directions."""
    return sigma / SIGMA * rng.standard_normal((count, 2)) @ np.linalg.inv(whitening).T


def bundle_of(rng, views=5, points=40, fixed=2, noise=0.0, whitening=SLANTED):
    """Cameras side by side that all see most of some points, and the truth."""
    world = rng.uniform((-2, -1, 4), (2, 1, 8), (points, 3))
    R_cw = np.array([rotation_from_vector(rng.normal(0, 0.05, 3)) for _ in range(views)])
    t_cw = np.array([(-0.4 * k, 0.02 * k, 0.1 * k) for k in range(views)])
    view, point = np.nonzero(rng.random((views, points)) < 0.8)
    points_cam = np.einsum("oij,oj->oi", R_cw[view], world[point]) + t_cw[view]
    observed = points_cam[:, :2] / points_cam[:, 2:] + drawn(rng, noise, len(view), whitening)
    return Bundle(
        R_cw,
        t_cw,
        np.arange(views) < fixed,
        world,
        view,
        point,
        observed,
        np.tile(whitening, (views, 1, 1)),
    )


def disturbed(bundle, rng):
    R_cw, t_cw = bundle.R_cw.copy(), bundle.t_cw.copy()
    for k in np.flatnonzero(~bundle.fixed):
        R_cw[k] = rotation_from_vector(rng.normal(0, 0.01, 3)) @ R_cw[k]
        t_cw[k] += rng.normal(0, 0.02, 3)
    points = bundle.points + rng.normal(0, 0.05, bundle.points.shape)
    return replace(bundle, R_cw=R_cw, t_cw=t_cw, points=points)


@pytest.mark.parametrize("fixed", [2, 5])
def test_a_perturbed_bundle_converges_to_the_truth(fixed):
    rng = np.random.default_rng(3)
    truth = bundle_of(rng, fixed=fixed)
    start = disturbed(truth, rng)
    R_cw, t_cw, points, _ = adjust_bundle(start, 30)
    np.testing.assert_array_equal(R_cw[truth.fixed], truth.R_cw[truth.fixed])
    np.testing.assert_allclose(R_cw, truth.R_cw, atol=1e-4)
    np.testing.assert_allclose(t_cw, truth.t_cw, atol=1e-3)
    np.testing.assert_allclose(points, truth.points, atol=5e-3)
    assert bundle_distances(replace(truth, R_cw=R_cw, t_cw=t_cw, points=points)).max() < 0.5


def cost_of(bundle):
    return np.log1p(bundle_distances(bundle) ** 2 / CAUCHY_SIGMAS**2).sum()


@pytest.mark.parametrize(("whitening", "repeats"), [(EQUAL, 3), (SLANTED, 10)])
def test_every_step_away_from_an_adjusted_bundle_costs_more(whitening, repeats):
    rng = np.random.default_rng(6)
    bundle = disturbed(bundle_of(rng, noise=SIGMA, whitening=whitening), rng)
    for _ in range(repeats):
        R_cw, t_cw, points, _ = adjust_bundle(bundle, 30)
        bundle = replace(bundle, R_cw=R_cw, t_cw=t_cw, points=points)
    least = cost_of(bundle)
    steps = 1e-3 * np.vstack([np.eye(3), -np.eye(3)])
    for step in steps:
        for k in np.flatnonzero(~bundle.fixed):
            turned, moved = R_cw.copy(), t_cw.copy()
            turned[k] = rotation_from_vector(step) @ R_cw[k]
            moved[k] += step
            assert cost_of(replace(bundle, R_cw=turned)) > least
            assert cost_of(replace(bundle, t_cw=moved)) > least
        for p in range(len(points)):
            moved = points.copy()
            moved[p] += step
            assert cost_of(replace(bundle, points=moved)) > least


def adjusted_by_scipy(bundle):
    """The same problem, stated independently: rotation vectors, SciPy's Cauchy loss."""
    free = np.flatnonzero(~bundle.fixed)
    size = 6 * len(free)

    def unpacked(x):
        poses = x[:size].reshape(-1, 6)
        R_cw, t_cw = bundle.R_cw.copy(), bundle.t_cw.copy()
        R_cw[free] = Rotation.from_rotvec(poses[:, :3]).as_matrix()
        t_cw[free] = poses[:, 3:]
        return R_cw, t_cw, x[size:].reshape(-1, 3)

    def offsets(x):
        R_cw, t_cw, points = unpacked(x)
        points_cam = Rotation.from_matrix(R_cw[bundle.view]).apply(points[bundle.point])
        points_cam += t_cw[bundle.view]
        offset = points_cam[:, :2] / points_cam[:, 2:] - bundle.observed
        return np.einsum("oij,oj->oi", bundle.whitening[bundle.view], offset)

    def robust(x):
        """Residuals whose squares add up to the Cauchy loss of both coordinates together."""
        offset = offsets(x)
        squared = np.maximum((offset**2).sum(axis=1, keepdims=True) / CAUCHY_SIGMAS**2, 1e-12)
        return (offset * np.sqrt(np.log1p(squared) / squared)).ravel()

    rotations = Rotation.from_matrix(bundle.R_cw[free]).as_rotvec()
    start = np.concatenate(
        [np.hstack([rotations, bundle.t_cw[free]]).ravel(), bundle.points.ravel()]
    )
    return unpacked(least_squares(robust, start, x_scale="jac", max_nfev=60).x)


@pytest.mark.slow
@pytest.mark.parametrize("outliers", [0, 6])
def test_bundle_adjustment_agrees_with_scipy_least_squares(outliers):
    rng = np.random.default_rng(11)
    bundle = bundle_of(rng, views=4, points=25, noise=SIGMA)
    bundle.observed[:outliers] += 0.05
    bundle = disturbed(bundle, rng)
    expected = adjusted_by_scipy(bundle)
    for _ in range(10):  # each call stops at a small gain; repeated, they converge
        R_cw, t_cw, points, _ = adjust_bundle(bundle, 30)
        bundle = replace(bundle, R_cw=R_cw, t_cw=t_cw, points=points)
    for value, oracle in zip((R_cw, t_cw, points), expected, strict=True):
        np.testing.assert_allclose(value, oracle, atol=1e-3)  # far below the noise


def test_the_order_of_observations_does_not_matter():
    rng = np.random.default_rng(7)
    bundle = disturbed(bundle_of(rng, noise=SIGMA), rng)
    order = rng.permutation(len(bundle.view))
    names = ("view", "point", "observed")
    shuffled = replace(bundle, **{name: getattr(bundle, name)[order] for name in names})
    for a, b in zip(adjust_bundle(bundle), adjust_bundle(shuffled), strict=True):
        np.testing.assert_array_equal(a, b)


def test_points_behind_a_camera_have_infinite_distance():
    bundle = bundle_of(np.random.default_rng(8))
    bundle.points[3] = (0, 0, -5)
    behind = np.isinf(bundle_distances(bundle))
    np.testing.assert_array_equal(behind, bundle.point == 3)


def test_one_outlier_does_not_distort_a_bundle():
    rng = np.random.default_rng(4)
    truth = bundle_of(rng, noise=1e-4, whitening=EQUAL)
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
        noisy = replace(truth, observed=truth.observed + drawn(rng, SIGMA, len(truth.observed)))
        _, _, points, covariances = adjust_bundle(noisy, 20)
        error = points - truth.points
        squares.append(np.einsum("ni,nij,nj->n", error, np.linalg.inv(covariances), error))
    assert np.mean(squares) == pytest.approx(3, rel=0.25)


@pytest.mark.parametrize("factor", [0.3, 1.0, 3.0])
def test_the_noise_of_observations_is_estimated_despite_outliers(factor):
    rng = np.random.default_rng(6)
    bundle = bundle_of(rng, points=300, noise=factor * SIGMA)
    bundle.observed[::50] += 0.1
    R_cw, t_cw, points, _ = adjust_bundle(bundle, 30)
    distances = bundle_distances(replace(bundle, R_cw=R_cw, t_cw=t_cw, points=points))
    assert observed_noise(distances, bundle.point) == pytest.approx(factor, rel=0.15)


def test_precise_observations_have_more_weight():
    """Views blurred along one direction, adjusted with and without knowing it."""
    rng = np.random.default_rng(8)
    truth = bundle_of(rng)
    blurred, equal = (
        np.tile(np.diag([1 / ratio, ratio]) / SIGMA, (len(truth.R_cw), 1, 1)) for ratio in (3, 1)
    )
    errors = {"known": [], "equal": []}
    for _ in range(20):
        noise = rng.standard_normal(truth.observed.shape) @ np.linalg.inv(blurred[0])
        for name, whitening in (("known", blurred), ("equal", equal)):
            seen = replace(truth, observed=truth.observed + noise, whitening=whitening)
            _, t_cw, _, _ = adjust_bundle(seen, 30)
            errors[name].append(np.square(t_cw - truth.t_cw).sum())
    assert np.mean(errors["known"]) < 0.7 * np.mean(errors["equal"])


def test_a_shift_that_all_observations_share_is_found_with_its_uncertainty():
    """Against SciPy's least squares over views, points and the shift together."""
    rng = np.random.default_rng(8)
    truth = bundle_of(rng, fixed=2, noise=0.2 * SIGMA, whitening=EQUAL)
    direction = truth.observed * np.square(truth.observed).sum(axis=1, keepdims=True)
    observed = truth.observed - 0.01 * direction
    bundle, found = replace(truth, observed=observed), 0.0
    for _ in range(3):
        R_cw, t_cw, points, _ = adjust_bundle(bundle, 30)
        bundle = replace(bundle, R_cw=R_cw, t_cw=t_cw, points=points)
        step, sigma = shared_shift(bundle, direction)
        found += step
        bundle = replace(bundle, observed=observed + found * direction)
    free = np.flatnonzero(~truth.fixed)

    def residuals(unknowns):
        views, shift = unknowns[: 6 * len(free)].reshape(-1, 6), unknowns[-1]
        R_cw, t_cw = bundle.R_cw.copy(), bundle.t_cw.copy()
        R_cw[free] = Rotation.from_rotvec(views[:, :3]).as_matrix() @ R_cw[free]
        t_cw[free] += views[:, 3:]
        points = unknowns[6 * len(free) : -1].reshape(-1, 3)
        points_cam = np.einsum("oij,oj->oi", R_cw[bundle.view], points[bundle.point])
        points_cam += t_cw[bundle.view]
        predicted = points_cam[:, :2] / points_cam[:, 2:]
        return ((observed + shift * direction - predicted) / SIGMA).ravel()

    start = np.concatenate([np.zeros(6 * len(free)), bundle.points.ravel(), [found]])
    solved = least_squares(residuals, start, loss="cauchy", f_scale=CAUCHY_SIGMAS)
    assert found == pytest.approx(solved.x[-1], abs=0.1 * sigma)
    variance = np.linalg.inv(solved.jac.T @ solved.jac)[-1, -1]
    assert sigma == pytest.approx(np.sqrt(variance), rel=0.05)
    assert abs(found - 0.01) < 4 * sigma


def test_a_shift_that_nothing_determines_is_infinitely_uncertain():
    bundle = bundle_of(np.random.default_rng(9), views=1, points=5, fixed=0)
    step, sigma = shared_shift(bundle, np.ones_like(bundle.observed))
    assert step == 0 or sigma > 1

"""Essential matrices in the space of the best 8-point solutions."""

import numpy as np
import pytest
from scenes import SURFACE_R_10, SURFACE_T_10, random_scene, surface_matches

from lgc_ros.geometry.epipolar import essential_from_pose, weighted_eight_point
from lgc_ros.geometry.five_point import (
    UNKNOWNS,
    essential_matrices_in,
    five_point_solutions,
)


def distance(E, E_true):
    """Distance of unit-norm matrices, whatever their sign."""
    E_true = E_true / np.linalg.norm(E_true)
    return min(np.linalg.norm(E - E_true), np.linalg.norm(E + E_true))


def nearest(solutions, E_true):
    return min(distance(E, E_true) for E in solutions)


@pytest.mark.parametrize("seed", range(10))
def test_all_solutions_are_essential_matrices(seed):
    basis = np.random.default_rng(seed).standard_normal((UNKNOWNS, 3, 3))
    solutions = essential_matrices_in(basis)
    assert len(solutions) <= 10
    for E in solutions:
        np.testing.assert_allclose(
            np.linalg.svd(E)[1], np.array([1, 1, 0]) / np.sqrt(2), atol=1e-6
        )
        residual = np.linalg.lstsq(basis.reshape(UNKNOWNS, 9).T, E.ravel(), rcond=None)[1]
        assert residual < 1e-12


@pytest.mark.parametrize("seed", range(10))
def test_the_essential_matrix_in_a_space_is_found(seed):
    rng = np.random.default_rng(seed)
    E_true = random_scene(seed).E_10
    mix = rng.standard_normal((UNKNOWNS, UNKNOWNS))
    basis = np.stack([E_true, *rng.standard_normal((UNKNOWNS - 1, 3, 3))])
    solutions = essential_matrices_in(np.einsum("ab,bij->aij", mix, basis))
    assert nearest(solutions, E_true) < 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_a_plane_that_the_8_point_algorithm_cannot_solve(seed):
    matches, _ = surface_matches(100, noise_px=0.1, seed=seed, relief=0.0)
    E_true = essential_from_pose(SURFACE_R_10, SURFACE_T_10)
    weights = np.ones(100)
    linear = weighted_eight_point(matches.x0, matches.x1, weights, conditioned=True)
    assert distance(linear, E_true) > 0.2
    assert nearest(five_point_solutions(matches.x0, matches.x1, weights), E_true) < 0.05


@pytest.mark.parametrize("seed", range(5))
def test_outliers_of_small_weight_have_little_influence(seed):
    matches, is_true = surface_matches(200, outliers=0.2, seed=seed)
    weights = np.where(is_true, 1.0, 1e-9)
    solutions = five_point_solutions(matches.x0, matches.x1, weights)
    assert nearest(solutions, essential_from_pose(SURFACE_R_10, SURFACE_T_10)) < 1e-3


def test_eight_matches_are_required():
    scene = random_scene(0, 60)
    with pytest.raises(ValueError, match="needs 8 correspondences"):
        five_point_solutions(scene.x0[:7], scene.x1[:7], np.ones(7))


def test_a_space_of_essential_matrices_has_no_isolated_solutions():
    basis = np.zeros((UNKNOWNS, 3, 3))
    assert essential_matrices_in(basis).shape == (0, 3, 3)

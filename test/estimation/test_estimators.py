"""The contract of all estimators: the true pose or None, and never a crash."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import FOCAL_PX, as_correspondences, surface_matches, surface_pose_error_deg

from lgc_ros.errors import ConfigError
from lgc_ros.estimation.estimators import (
    BACKENDS,
    ESTIMATORS,
    MAX_ITERATIONS,
    ROBUST_ESTIMATORS,
    EstimatorOptions,
)
from lgc_ros.geometry import epipolar as geometry

OPTIONS = EstimatorOptions()
every_estimator = pytest.mark.parametrize("name", ESTIMATORS)
every_robust_estimator = pytest.mark.parametrize("name", ROBUST_ESTIMATORS)


def permuted(matches, seed=1):
    order = np.random.default_rng(seed).permutation(len(matches))
    return matches.subset(order), order


@every_estimator
def test_exact_matches_give_the_exact_pose(name):
    matches, _ = surface_matches()
    estimate = ESTIMATORS[name](matches, OPTIONS)
    assert surface_pose_error_deg(estimate) < 0.01
    assert estimate.inliers.all()


@every_robust_estimator
@pytest.mark.parametrize("scores", [False, True], ids=["unranked", "ranked"])
def test_half_of_the_matches_may_be_outliers(name, scores):
    matches, is_inlier = surface_matches(2000, outliers=0.5, scores=scores)
    estimate = ESTIMATORS[name](matches, OPTIONS)
    assert surface_pose_error_deg(estimate) < 1.0
    assert estimate.inliers[is_inlier].mean() > 0.95
    assert estimate.inliers[~is_inlier].mean() < 0.05


@every_estimator
def test_estimate_is_a_rotation_a_unit_translation_and_their_essential_matrix(name):
    matches, _ = surface_matches(300, outliers=0.2, noise_px=1.0)
    estimate = ESTIMATORS[name](matches, OPTIONS)
    np.testing.assert_allclose(estimate.R_10 @ estimate.R_10.T, np.eye(3), atol=1e-9)
    assert np.linalg.det(estimate.R_10) == pytest.approx(1)
    assert np.linalg.norm(estimate.t_10) == pytest.approx(1)
    np.testing.assert_allclose(
        estimate.E_10, geometry.essential_from_pose(estimate.R_10, estimate.t_10), atol=1e-9
    )


@every_estimator
def test_inliers_are_the_matches_within_the_threshold(name):
    matches, _ = surface_matches(outliers=0.2, noise_px=0.5)
    for threshold_px in (0.5, 2.0):
        estimate = ESTIMATORS[name](matches, EstimatorOptions(threshold_px=threshold_px))
        distance = geometry.sampson_distance(estimate.E_10, matches.x0, matches.x1)
        expected = np.sqrt(distance) * FOCAL_PX < threshold_px
        np.testing.assert_array_equal(estimate.inliers, expected)


@every_estimator
@pytest.mark.parametrize("scores", [False, True], ids=["unranked", "ranked"])
def test_result_does_not_depend_on_earlier_calls_or_global_seeds(name, scores):
    matches, _ = surface_matches(400, outliers=0.3, noise_px=0.3, scores=scores)
    first = ESTIMATORS[name](matches, OPTIONS)
    cv2.setRNGSeed(77)
    np.random.seed(77)  # noqa: NPY002
    ESTIMATORS[name](surface_matches(200, seed=5)[0], EstimatorOptions(seed=3))
    second = ESTIMATORS[name](matches, OPTIONS)
    np.testing.assert_array_equal(first.R_10, second.R_10)
    np.testing.assert_array_equal(first.t_10, second.t_10)
    np.testing.assert_array_equal(first.inliers, second.inliers)


@every_robust_estimator
def test_permuting_the_matches_permutes_the_inliers(name):
    matches, _ = surface_matches(2000, outliers=0.4)
    shuffled, order = permuted(matches)
    inliers = ESTIMATORS[name](matches, OPTIONS).inliers
    shuffled_inliers = ESTIMATORS[name](shuffled, OPTIONS).inliers
    # An outlier close to the threshold may depend on the last digits of the pose.
    assert np.count_nonzero(shuffled_inliers != inliers[order]) <= 2


@every_estimator
def test_order_of_ranked_matches_does_not_change_the_result(name):
    matches, _ = surface_matches(outliers=0.3, noise_px=0.5, scores=True)
    shuffled, order = permuted(matches)
    estimate = ESTIMATORS[name](matches, OPTIONS)
    shuffled_estimate = ESTIMATORS[name](shuffled, OPTIONS)
    np.testing.assert_array_equal(shuffled_estimate.R_10, estimate.R_10)
    np.testing.assert_array_equal(shuffled_estimate.inliers, estimate.inliers[order])


@pytest.mark.parametrize("name", ["poselib", "magsac", "usac"])
def test_sampling_the_best_scores_first_needs_few_samples(name):
    options = EstimatorOptions(max_iterations=40)
    unranked, is_inlier = surface_matches(1000, outliers=0.85, seed=2)
    ranked = as_correspondences(
        unranked.x0, unranked.x1, scores=is_inlier + 0.01 * unranked.x0[:, 0]
    )
    estimate = ESTIMATORS[name](ranked, options)
    assert surface_pose_error_deg(estimate) < 1
    blind = ESTIMATORS[name](unranked, options)
    assert blind is None or surface_pose_error_deg(blind) > 5


@every_estimator
def test_non_finite_matches_are_ignored_and_never_inliers(name):
    matches, _ = surface_matches()
    matches.x0[::7] = np.nan
    matches.x1[::11, 1] = np.inf
    usable = np.isfinite(matches.x0).all(1) & np.isfinite(matches.x1).all(1)
    estimate = ESTIMATORS[name](matches, OPTIONS)
    assert surface_pose_error_deg(estimate) < 0.01
    np.testing.assert_array_equal(estimate.inliers, usable)


@every_estimator
@pytest.mark.parametrize("count", [0, 1, 4])
def test_fewer_than_five_matches_give_no_pose(name, count):
    matches, _ = surface_matches(count)
    assert ESTIMATORS[name](matches, OPTIONS) is None


@every_estimator
@pytest.mark.parametrize("count", [5, 8, 300])
def test_repetitions_of_one_match_give_no_pose(name, count):
    same = np.full((count, 2), 0.1)
    assert ESTIMATORS[name](as_correspondences(same, same + 0.05), OPTIONS) is None
    spread, _ = surface_matches(count)
    assert ESTIMATORS[name](as_correspondences(spread.x0, same), OPTIONS) is None


def degenerate_points(kind, count, rng):
    """Matches that determine no pose, or no unique one."""
    x0, x1 = rng.uniform(-0.5, 0.5, (2, count, 2))
    line = np.linspace(-0.5, 0.5, count)[:, None] * np.array([1.0, 0.5])
    few = rng.integers(0, 3, (count, 2)) / 3
    return {
        "unrelated": (x0, x1),
        "no motion": (x0, x0),
        "a line": (line, line + 0.05),
        "a line to random points": (line, x1),
        "few distinct points": (few, few + 0.1),
        "duplicates": (np.repeat(x0, 2, axis=0), np.repeat(x0 + 0.1, 2, axis=0)),
        "an affine plane": (x0, 0.9 * x0),
        "huge": (1e12 * x0, 1e12 * x1),
        "tiny": (1e-12 * x0, 1e-12 * x1),
    }[kind]


KINDS = ["unrelated", "no motion", "a line", "a line to random points", "few distinct points"]
KINDS += ["duplicates", "an affine plane", "huge", "tiny"]


@every_estimator
@given(
    kind=st.sampled_from(KINDS),
    count=st.sampled_from([5, 6, 7, 8, 9, 20]),
    seed=st.integers(0, 1000),
    ranked=st.booleans(),
)
def test_degenerate_matches_give_no_pose_or_a_valid_one(name, kind, count, seed, ranked):
    rng = np.random.default_rng(seed)
    x0, x1 = degenerate_points(kind, count, rng)
    matches = as_correspondences(x0, x1, rng.random(len(x0)) if ranked else None)
    estimate = ESTIMATORS[name](matches, EstimatorOptions(max_iterations=100))
    if estimate is not None:
        assert np.linalg.det(estimate.R_10) == pytest.approx(1)
        assert np.linalg.norm(estimate.t_10) == pytest.approx(1)
        assert estimate.inliers.shape == (len(matches),)


@pytest.mark.parametrize(
    "wrong",
    [
        {"threshold_px": 0},
        {"threshold_px": float("nan")},
        {"confidence": 1.0},
        {"max_iterations": 0},
        {"seed": -1},
    ],
)
def test_error_names_the_option_that_is_out_of_range(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        EstimatorOptions(**wrong)


def test_every_backend_has_a_default_sampling_limit():
    assert MAX_ITERATIONS.keys() == BACKENDS.keys()

"""Every estimator, held to the same contract: the true pose, or None, and never a crash."""

import cv2
import numpy as np
import poselib
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import FOCAL_PX, as_correspondences
from transforms3d.axangles import axangle2mat

from lgc_ros.errors import ConfigError, LgcError
from lgc_ros.estimation import estimators
from lgc_ros.estimation.estimators import (
    EIGHT_POINT,
    ESTIMATORS,
    POSELIB_LOSS_PX,
    REFINED_EIGHT_POINT,
    ROBUST_ESTIMATORS,
    EstimatorOptions,
)
from lgc_ros.estimation.mlesac import mlesac
from lgc_ros.geometry import epipolar as geometry

OPTIONS = EstimatorOptions()
R_10 = axangle2mat([0.2, 1.0, 0.1], np.radians(12))
t_10 = np.array([-0.9, 0.1, 0.3]) / np.linalg.norm([-0.9, 0.1, 0.3])

every_estimator = pytest.mark.parametrize("name", ESTIMATORS)
every_eight_point = pytest.mark.parametrize("name", [EIGHT_POINT, REFINED_EIGHT_POINT])
every_robust_estimator = pytest.mark.parametrize("name", ROBUST_ESTIMATORS)


def surface_matches(count=800, outliers=0.0, noise_px=0.0, seed=0, scores=False, relief=1.0):
    """Matches on a curved surface, as dense and as coherent as GMS needs them; truth mask.

    Without relief the surface is a plane.
    """
    rng = np.random.default_rng(seed)
    x0 = rng.uniform([-0.6, -0.45], [0.6, 0.45], (count, 2))
    depth = 3 + relief * (np.sin(3 * x0[:, 0]) + np.cos(4 * x0[:, 1]))
    X1 = geometry.homogeneous(x0) * depth[:, None] @ R_10.T + t_10
    x1 = X1[:, :2] / X1[:, 2:]
    noise = rng.normal(0, noise_px / FOCAL_PX, (2, count, 2))
    wrong = rng.permutation(count) < outliers * count
    x1[wrong] = rng.uniform([-0.6, -0.45], [0.6, 0.45], (wrong.sum(), 2))
    quality = np.where(wrong, rng.beta(2, 2, count), rng.beta(5, 1, count)) if scores else None
    return as_correspondences(x0 + noise[0], x1 + noise[1], quality), ~wrong


def pose_error_deg(estimate):
    return max(
        geometry.rotation_error_deg(estimate.R_10, R_10),
        geometry.translation_error_deg(estimate.t_10, t_10, signed=True),
    )


def permuted(matches, seed=1):
    order = np.random.default_rng(seed).permutation(len(matches))
    return matches.subset(order), order


@every_estimator
def test_exact_matches_give_the_exact_pose(name):
    matches, _ = surface_matches()
    estimate = ESTIMATORS[name](matches, OPTIONS)
    assert pose_error_deg(estimate) < 0.01
    assert estimate.inliers.all()


@every_robust_estimator
@pytest.mark.parametrize("scores", [False, True], ids=["unranked", "ranked"])
def test_half_of_the_matches_may_be_wrong(name, scores):
    matches, right = surface_matches(2000, outliers=0.5, scores=scores)
    estimate = ESTIMATORS[name](matches, OPTIONS)
    assert pose_error_deg(estimate) < 1.0
    assert estimate.inliers[right].mean() > 0.95
    assert estimate.inliers[~right].mean() < 0.05


@every_estimator
def test_a_pose_is_a_rotation_a_unit_translation_and_their_essential_matrix(name):
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
def test_the_same_input_gives_the_same_output_whatever_ran_before(name, scores):
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
    # A chance near miss of a wrong match may depend on the last digits of the pose.
    assert np.count_nonzero(shuffled_inliers != inliers[order]) <= 2


@every_estimator
def test_the_order_of_scored_matches_does_not_matter_at_all(name):
    matches, _ = surface_matches(outliers=0.3, noise_px=0.5, scores=True)
    shuffled, order = permuted(matches)
    estimate = ESTIMATORS[name](matches, OPTIONS)
    shuffled_estimate = ESTIMATORS[name](shuffled, OPTIONS)
    np.testing.assert_array_equal(shuffled_estimate.R_10, estimate.R_10)
    np.testing.assert_array_equal(shuffled_estimate.inliers, estimate.inliers[order])


@pytest.mark.parametrize("name", ["poselib", "magsac", "usac"])
def test_best_scores_first_finds_the_pose_with_few_samples(name):
    options = EstimatorOptions(max_iterations=40)
    unranked, right = surface_matches(1000, outliers=0.85, seed=2)
    ranked = as_correspondences(unranked.x0, unranked.x1, scores=right + 0.01 * unranked.x0[:, 0])
    estimate = ESTIMATORS[name](ranked, options)
    assert pose_error_deg(estimate) < 1
    blind = ESTIMATORS[name](unranked, options)
    assert blind is None or pose_error_deg(blind) > 5


@every_estimator
def test_matches_that_are_not_finite_are_no_inliers_and_do_no_harm(name):
    matches, _ = surface_matches()
    matches.x0[::7] = np.nan
    matches.x1[::11, 1] = np.inf
    usable = np.isfinite(matches.x0).all(1) & np.isfinite(matches.x1).all(1)
    estimate = ESTIMATORS[name](matches, OPTIONS)
    assert pose_error_deg(estimate) < 0.01
    np.testing.assert_array_equal(estimate.inliers, usable)


@every_estimator
@pytest.mark.parametrize("count", [0, 1, 4])
def test_too_few_matches_give_no_model(name, count):
    matches, _ = surface_matches(count)
    assert ESTIMATORS[name](matches, OPTIONS) is None


@every_estimator
@pytest.mark.parametrize("count", [5, 8, 300])
def test_the_same_match_over_and_over_gives_no_model(name, count):
    same = np.full((count, 2), 0.1)
    assert ESTIMATORS[name](as_correspondences(same, same + 0.05), OPTIONS) is None
    spread, _ = surface_matches(count)
    assert ESTIMATORS[name](as_correspondences(spread.x0, same), OPTIONS) is None


def degenerate_points(kind, count, rng):
    """Matches from which no pose, or no single one, follows."""
    x0, x1 = rng.uniform(-0.5, 0.5, (2, count, 2))
    line = np.linspace(-0.5, 0.5, count)[:, None] * np.array([1.0, 0.5])
    few = rng.integers(0, 3, (count, 2)) / 3
    return {
        "unrelated": (x0, x1),
        "no motion": (x0, x0),
        "a line": (line, line + 0.05),
        "a line to anywhere": (line, x1),
        "few distinct points": (few, few + 0.1),
        "duplicates": (np.repeat(x0, 2, axis=0), np.repeat(x0 + 0.1, 2, axis=0)),
        "an affine plane": (x0, 0.9 * x0),
        "huge": (1e12 * x0, 1e12 * x1),
        "tiny": (1e-12 * x0, 1e-12 * x1),
    }[kind]


KINDS = ["unrelated", "no motion", "a line", "a line to anywhere", "few distinct points"]
KINDS += ["duplicates", "an affine plane", "huge", "tiny"]


@every_estimator
@given(
    kind=st.sampled_from(KINDS),
    count=st.sampled_from([5, 6, 7, 8, 9, 20]),
    seed=st.integers(0, 1000),
    ranked=st.booleans(),
)
def test_degenerate_input_gives_none_or_a_proper_pose(name, kind, count, seed, ranked):
    rng = np.random.default_rng(seed)
    x0, x1 = degenerate_points(kind, count, rng)
    matches = as_correspondences(x0, x1, rng.random(len(x0)) if ranked else None)
    estimate = ESTIMATORS[name](matches, EstimatorOptions(max_iterations=100))
    if estimate is not None:
        assert np.linalg.det(estimate.R_10) == pytest.approx(1)
        assert np.linalg.norm(estimate.t_10) == pytest.approx(1)
        assert estimate.inliers.shape == (len(matches),)


@pytest.mark.parametrize("name", ["ransac", "lmeds"])
def test_of_the_solutions_for_five_matches_one_that_is_in_front_is_taken(name):
    matches, _ = surface_matches(5)
    stacked, _ = cv2.findEssentialMat(matches.x0, matches.x1, np.eye(3))
    assert len(stacked) > 3
    estimate = ESTIMATORS[name](matches, OPTIONS)
    depth0, depth1 = geometry.ray_depths(estimate.R_10, estimate.t_10, matches.x0, matches.x1)
    assert (depth0 > 0).all()
    assert (depth1 > 0).all()
    assert estimate.inliers.all()


@every_eight_point
def test_eight_point_weights_are_the_scores(name):
    matches, right = surface_matches(outliers=0.5)
    certain = as_correspondences(matches.x0, matches.x1, right.astype(np.float32))
    estimate = ESTIMATORS[name](certain, OPTIONS)
    assert pose_error_deg(estimate) < 0.01
    assert estimate.inliers[right].all()
    assert pose_error_deg(ESTIMATORS[name](matches, OPTIONS)) > 0.05


@every_eight_point
def test_eight_point_needs_eight_matches_with_weight(name):
    matches, _ = surface_matches(20)
    weights = np.r_[np.ones(7), np.zeros(13)]
    assert ESTIMATORS[name](as_correspondences(matches.x0, matches.x1, weights), OPTIONS) is None


def best_pose(matches):
    """PoseLib's optimum next to the truth."""
    pose = poselib.CameraPose()
    pose.R, pose.t = R_10, t_10
    camera = {"model": "SIMPLE_PINHOLE", "width": 1, "height": 1, "params": [FOCAL_PX, 0, 0]}
    loss = {"loss_type": "CAUCHY", "loss_scale": POSELIB_LOSS_PX}
    pixels = matches.x0 * FOCAL_PX, matches.x1 * FOCAL_PX
    return poselib.refine_relative_pose(*pixels, pose, camera, camera, loss)[0]


def assert_same_pose(estimate, expected):
    assert geometry.rotation_error_deg(estimate.R_10, expected.R) < 1e-3
    assert geometry.translation_error_deg(estimate.t_10, expected.t, signed=True) < 1e-3


@pytest.mark.parametrize("seed", range(5))
def test_refinement_makes_up_for_wrong_matches_of_little_weight(seed):
    matches, right = surface_matches(outliers=0.3, noise_px=0.5, seed=seed)
    weighted = as_correspondences(matches.x0, matches.x1, np.where(right, 0.99, 0.02))
    assert pose_error_deg(ESTIMATORS[EIGHT_POINT](weighted, OPTIONS)) > 2
    estimate = ESTIMATORS[REFINED_EIGHT_POINT](weighted, OPTIONS)
    assert pose_error_deg(estimate) < 0.5
    assert_same_pose(estimate, best_pose(matches))


@pytest.mark.parametrize("seed", range(5))
def test_refinement_makes_up_for_a_surface_that_is_nearly_flat(seed):
    matches, _ = surface_matches(300, noise_px=0.5, seed=seed, relief=0.03)
    assert pose_error_deg(ESTIMATORS[EIGHT_POINT](matches, OPTIONS)) > 2
    estimate = ESTIMATORS[REFINED_EIGHT_POINT](matches, OPTIONS)
    assert pose_error_deg(estimate) < 2
    assert_same_pose(estimate, best_pose(matches))


@pytest.mark.parametrize("seed", range(5))
def test_refinement_explains_more_of_a_plane_than_the_eight_point(seed):
    matches, _ = surface_matches(300, noise_px=0.5, seed=seed, relief=0.0)
    plain, refined = (
        ESTIMATORS[name](matches, OPTIONS) for name in (EIGHT_POINT, REFINED_EIGHT_POINT)
    )
    assert refined.inliers.sum() > 2 * plain.inliers.sum()


def test_gms_without_opencv_contrib_names_the_package(monkeypatch):
    monkeypatch.delattr(estimators.cv2, "xfeatures2d")
    with pytest.raises(LgcError, match="opencv-contrib-python"):
        ESTIMATORS["gms"](surface_matches()[0], OPTIONS)


def test_gms_keeps_coherent_matches_only():
    matches, right = surface_matches(2000, outliers=0.5)
    kept = estimators._gms_survivors(matches)
    assert right[kept].mean() > 0.9
    assert len(kept) > 0.5 * right.sum()


def test_mlesac_tells_inliers_by_their_posterior():
    matches, right = surface_matches(outliers=0.4, noise_px=0.5)
    R, _, posterior = mlesac(
        matches.x0,
        matches.x1,
        sigma=0.5 / FOCAL_PX,
        window=800 / FOCAL_PX,
        confidence=0.999,
        max_iterations=1000,
        seed=0,
    )
    assert geometry.rotation_error_deg(R, R_10) < 0.5
    # Torr and Zisserman's gamma is the mean posterior: the fraction of inliers.
    assert posterior.mean() == pytest.approx(0.6, abs=0.03)
    assert posterior[right].mean() > 0.95
    assert posterior[~right].mean() < 0.05


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
def test_options_out_of_range_are_named(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        EstimatorOptions(**wrong)

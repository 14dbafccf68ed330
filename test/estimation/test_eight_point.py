"""The weighted 8-point algorithm, closed form and refined."""

import numpy as np
import poselib
import pytest
from scenes import (
    FOCAL_PX,
    SURFACE_R_10,
    SURFACE_T_10,
    as_correspondences,
    surface_matches,
    surface_pose_error_deg,
)

from lgc_ros.estimation.estimators import (
    EIGHT_POINT,
    ESTIMATORS,
    REFINED_EIGHT_POINT,
    EstimatorOptions,
)
from lgc_ros.estimation.poselib import LOSS_PX
from lgc_ros.geometry import epipolar as geometry

OPTIONS = EstimatorOptions()

every_eight_point = pytest.mark.parametrize("name", [EIGHT_POINT, REFINED_EIGHT_POINT])


@every_eight_point
def test_scores_are_the_weights(name):
    matches, is_inlier = surface_matches(outliers=0.5)
    certain = as_correspondences(matches.x0, matches.x1, is_inlier.astype(np.float32))
    estimate = ESTIMATORS[name](certain, OPTIONS)
    assert surface_pose_error_deg(estimate) < 0.01
    assert estimate.inliers[is_inlier].all()
    assert surface_pose_error_deg(ESTIMATORS[name](matches, OPTIONS)) > 0.05


@every_eight_point
def test_eight_matches_with_positive_weight_are_required(name):
    matches, _ = surface_matches(20)
    weights = np.r_[np.ones(7), np.zeros(13)]
    assert ESTIMATORS[name](as_correspondences(matches.x0, matches.x1, weights), OPTIONS) is None


def best_pose(matches):
    """PoseLib's local optimum at the true pose."""
    pose = poselib.CameraPose()
    pose.R, pose.t = SURFACE_R_10, SURFACE_T_10
    camera = {"model": "SIMPLE_PINHOLE", "width": 1, "height": 1, "params": [FOCAL_PX, 0, 0]}
    loss = {"loss_type": "CAUCHY", "loss_scale": LOSS_PX}
    pixels = matches.x0 * FOCAL_PX, matches.x1 * FOCAL_PX
    return poselib.refine_relative_pose(*pixels, pose, camera, camera, loss)[0]


def assert_same_pose(estimate, expected):
    assert geometry.rotation_error_deg(estimate.R_10, expected.R) < 1e-3
    assert geometry.translation_error_deg(estimate.t_10, expected.t, signed=True) < 1e-3


@pytest.mark.parametrize("seed", range(5))
def test_refinement_recovers_from_outliers_of_small_weight(seed):
    matches, is_inlier = surface_matches(outliers=0.3, noise_px=0.5, seed=seed)
    weighted = as_correspondences(matches.x0, matches.x1, np.where(is_inlier, 0.99, 0.02))
    assert surface_pose_error_deg(ESTIMATORS[EIGHT_POINT](weighted, OPTIONS)) > 2
    estimate = ESTIMATORS[REFINED_EIGHT_POINT](weighted, OPTIONS)
    assert surface_pose_error_deg(estimate) < 0.5
    assert_same_pose(estimate, best_pose(matches))


@pytest.mark.parametrize("seed", range(5))
def test_refinement_starts_from_the_best_matches_where_the_others_are_mostly_outliers(seed):
    matches, is_inlier = surface_matches(400, outliers=0.5, noise_px=0.5, seed=seed)
    scores = np.where(is_inlier, 0.9, 0.8) + 0.05 * np.random.default_rng(seed).random(400)
    ranked = as_correspondences(matches.x0, matches.x1, scores)
    assert surface_pose_error_deg(ESTIMATORS[EIGHT_POINT](ranked, OPTIONS)) > 10
    assert surface_pose_error_deg(ESTIMATORS[REFINED_EIGHT_POINT](ranked, OPTIONS)) < 2


@pytest.mark.parametrize("seed", range(5))
def test_refinement_recovers_from_a_nearly_planar_surface(seed):
    matches, _ = surface_matches(300, noise_px=0.5, seed=seed, relief=0.03)
    assert surface_pose_error_deg(ESTIMATORS[EIGHT_POINT](matches, OPTIONS)) > 2
    estimate = ESTIMATORS[REFINED_EIGHT_POINT](matches, OPTIONS)
    assert surface_pose_error_deg(estimate) < 2
    assert_same_pose(estimate, best_pose(matches))


@pytest.mark.parametrize("seed", range(5))
def test_refinement_finds_more_inliers_on_a_plane(seed):
    matches, _ = surface_matches(300, noise_px=0.5, seed=seed, relief=0.0)
    plain, refined = (
        ESTIMATORS[name](matches, OPTIONS) for name in (EIGHT_POINT, REFINED_EIGHT_POINT)
    )
    assert refined.inliers.sum() > 2 * plain.inliers.sum()

"""The mixture likelihood of MLESAC."""

import numpy as np
import pytest
from scenes import FOCAL_PX, SURFACE_R_10, SURFACE_T_10, surface_matches

from lgc_ros.estimation.estimators import ESTIMATORS, EstimatorOptions
from lgc_ros.estimation.mlesac import MixtureLikelihood
from lgc_ros.geometry import epipolar as geometry


class TruePose:
    R, t = SURFACE_R_10, SURFACE_T_10


def test_posterior_separates_inliers_from_outliers():
    matches, is_inlier = surface_matches(outliers=0.4, noise_px=0.5)
    likelihood = MixtureLikelihood(
        matches.x0, matches.x1, sigma=0.5 / FOCAL_PX, window=800 / FOCAL_PX
    )
    posterior = likelihood.posterior(TruePose)
    assert posterior[is_inlier].mean() > 0.95
    assert posterior[~is_inlier].mean() < 0.05
    # Torr and Zisserman's gamma is the mean posterior: the fraction of inliers.
    _, (gamma,) = likelihood.evaluate([TruePose])
    assert gamma == pytest.approx(0.6, abs=0.03)
    assert posterior.mean() == pytest.approx(gamma, abs=0.01)


def test_the_true_pose_is_more_likely_than_a_rotated_one():
    matches, _ = surface_matches(outliers=0.4, noise_px=0.5)
    likelihood = MixtureLikelihood(matches.x0, matches.x1, 0.5 / FOCAL_PX, 800 / FOCAL_PX)

    class RotatedPose:
        R, t = np.eye(3), SURFACE_T_10

    (true_cost, rotated_cost), _ = likelihood.evaluate([TruePose, RotatedPose])
    assert true_cost < rotated_cost


def test_noisy_matches_with_outliers_give_the_pose():
    matches, _ = surface_matches(outliers=0.4, noise_px=0.5)
    estimate = ESTIMATORS["mlesac"](matches, EstimatorOptions(max_iterations=1000))
    assert geometry.rotation_error_deg(estimate.R_10, SURFACE_R_10) < 0.5

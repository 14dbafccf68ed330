"""What is particular to OpenCV's estimators."""

import cv2
import numpy as np
import pytest
from scenes import surface_matches

from lgc_ros.estimation.estimators import ESTIMATORS, EstimatorOptions
from lgc_ros.geometry import epipolar as geometry


@pytest.mark.parametrize("name", ["ransac", "lmeds"])
def test_of_several_solutions_for_five_matches_one_in_front_of_both_cameras_is_chosen(name):
    matches, _ = surface_matches(5)
    stacked, _ = cv2.findEssentialMat(matches.x0, matches.x1, np.eye(3))
    assert len(stacked) > 3
    estimate = ESTIMATORS[name](matches, EstimatorOptions())
    depth0, depth1 = geometry.ray_depths(estimate.R_10, estimate.t_10, matches.x0, matches.x1)
    assert (depth0 > 0).all()
    assert (depth1 > 0).all()
    assert estimate.inliers.all()

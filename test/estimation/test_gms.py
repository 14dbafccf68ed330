"""Grid-based motion statistics."""

import cv2
import pytest
from scenes import surface_matches

from lgc_ros.errors import LgcError
from lgc_ros.estimation.estimators import ESTIMATORS, EstimatorOptions
from lgc_ros.estimation.gms import consistent_matches


def test_error_without_opencv_contrib_names_the_package(monkeypatch):
    monkeypatch.delattr(cv2, "xfeatures2d")
    with pytest.raises(LgcError, match="opencv-contrib-python"):
        ESTIMATORS["gms"](surface_matches()[0], EstimatorOptions())


def test_most_kept_matches_are_inliers():
    matches, is_inlier = surface_matches(2000, outliers=0.5)
    kept = consistent_matches(matches)
    assert is_inlier[kept].mean() > 0.9
    assert len(kept) > 0.5 * is_inlier.sum()

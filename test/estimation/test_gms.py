"""Grid-based motion statistics."""

from dataclasses import replace

import cv2
import numpy as np
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


def test_points_outside_the_stated_image_size_are_harmless():
    """OpenCV writes beyond its grid for them, which crashed evaluations on dumps of KITTI."""
    matches, is_inlier = surface_matches(2000, outliers=0.5)
    sizes = [tuple(int(v) + 1 for v in points.max(axis=0)) for points in (matches.p0, matches.p1)]
    fitting = replace(matches, size0=sizes[0], size1=sizes[1])
    half = replace(
        matches, **{f"size{i}": (w // 2 + 1, h // 2 + 1) for i, (w, h) in enumerate(sizes)}
    )
    np.testing.assert_array_equal(consistent_matches(half), consistent_matches(fitting))
    outside = replace(matches, p0=matches.p0 - 50)
    assert len(consistent_matches(outside)) > 0
    far = replace(matches, p0=np.vstack([matches.p0[:-1], [[1e12, -1e12]]]))
    kept = consistent_matches(far)
    assert is_inlier[kept].mean() > 0.9
    assert len(kept) > 0.5 * is_inlier.sum()


def test_no_matches_are_no_error():
    matches, _ = surface_matches(2000, outliers=0.5)
    assert len(consistent_matches(matches.subset(np.zeros(2000, bool)))) == 0

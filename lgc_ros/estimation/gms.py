"""Grid-based motion statistics (Bian et al. 2017) before RANSAC."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import cv2
import numpy as np

from lgc_ros.errors import LgcError
from lgc_ros.estimation.opencv import ransac
from lgc_ros.geometry.epipolar import FIVE_POINT_MINIMUM
from lgc_ros.matching.correspondences import Correspondences

if TYPE_CHECKING:
    from lgc_ros.estimation.estimators import Pose, Problem

# OpenCV's default of 6 suits 10000 ORB features; 2000 matches have fewer supporting neighbors.
THRESHOLD_FACTOR = 3.0
# Image sizes are guesses for dumps of training pairs, which know the principal point only: twice
# that. Points even farther outside are moved to the border.
MAX_GROWTH = 2


def gms(problem: Problem) -> Pose | None:
    """RANSAC on the matches whose neighbors move consistently with them."""
    consistent = problem.matches.subset(consistent_matches(problem.matches))
    survivors = replace(problem, matches=consistent)
    if not survivors.has_distinct_points(FIVE_POINT_MINIMUM):
        return None
    return ransac(survivors)


def consistent_matches(c: Correspondences) -> np.ndarray:
    """Indices of the matches that GMS keeps."""
    if not hasattr(cv2, "xfeatures2d") or not hasattr(cv2.xfeatures2d, "matchGMS"):
        raise LgcError(
            "gms needs OpenCV's contrib modules, which this OpenCV was built without: install "
            "opencv-contrib-python-headless (or opencv-contrib-python) instead of opencv-python, "
            "or choose another method"
        )
    if len(c) == 0:
        return np.empty(0, np.int64)
    matches = [cv2.DMatch(i, i, 0.0) for i in range(len(c))]
    (size0, keypoints0), (size1, keypoints1) = _image(c.size0, c.p0), _image(c.size1, c.p1)
    kept = cv2.xfeatures2d.matchGMS(
        size0,
        size1,
        keypoints0,
        keypoints1,
        matches,
        withRotation=True,
        withScale=True,
        thresholdFactor=THRESHOLD_FACTOR,
    )
    return np.array([match.queryIdx for match in kept], dtype=np.int64)


def _image(
    size: tuple[int, int], points: np.ndarray
) -> tuple[tuple[int, int], list[cv2.KeyPoint]]:
    """A size (width, height) that contains all points, and these as keypoints.

    OpenCV writes beyond its grid for points outside the image.
    """
    points = np.clip(points, 0, MAX_GROWTH * np.array(size))
    width, height = np.maximum(size, np.floor(points.max(axis=0)) + 1).astype(int)
    return (int(width), int(height)), [cv2.KeyPoint(float(x), float(y), 1.0) for x, y in points]

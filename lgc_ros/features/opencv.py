"""Extractors of OpenCV: SIFT, RootSIFT, ORB and AKAZE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np

from lgc_ros.errors import FeatureError
from lgc_ros.features.keypoints import (
    Extractor,
    Features,
    descriptor_dtype,
    features_from_rows,
    strongest_spread,
    to_gray,
)

# OpenCV's type stubs lack the functions that create detectors.
_cv2: Any = cv2
# So low that nearly every image yields the requested number, as the paper's 2000.
SIFT_CONTRAST_THRESHOLD = 1e-5
# ORB requires a limit; no image has this many corners.
ORB_UNLIMITED = 100_000


def sift(max_keypoints: int, spread: bool) -> Extractor:
    return _extractor("sift", _create_sift, max_keypoints, spread)


def rootsift(max_keypoints: int, spread: bool) -> Extractor:
    """SIFT whose Euclidean distances are Hellinger distances of the histograms."""
    return _extractor("rootsift", _create_sift, max_keypoints, spread, _square_root)


def orb(max_keypoints: int, spread: bool) -> Extractor:
    def create(count: int) -> Any:
        return _cv2.ORB_create(nfeatures=count or ORB_UNLIMITED)

    return _extractor("orb", create, max_keypoints, spread)


def akaze(max_keypoints: int, spread: bool) -> Extractor:
    """AKAZE; older OpenCV cannot limit its number of keypoints, so the rest is cut afterwards."""
    # OpenCV 5 moved it to the contrib modules.
    module: Any = cv2 if hasattr(cv2, "AKAZE_create") else getattr(cv2, "xfeatures2d", None)
    if not hasattr(module, "AKAZE_create"):
        raise FeatureError(
            f"OpenCV {cv2.__version__} is built without AKAZE; install "
            "opencv-contrib-python-headless instead of opencv-python, or use another extractor"
        )
    return _extractor("akaze", lambda count: module.AKAZE_create(), max_keypoints, spread)


def _create_sift(count: int) -> Any:
    return _cv2.SIFT_create(nfeatures=count, contrastThreshold=SIFT_CONTRAST_THRESHOLD)


def _square_root(descriptors: np.ndarray) -> np.ndarray:
    """Square roots of the L1-normalized histograms (Arandjelović and Zisserman 2012)."""
    total = descriptors.sum(axis=1, keepdims=True)
    return np.sqrt(descriptors / np.maximum(total, np.finfo(np.float32).tiny))


def _extractor(
    kind: str,
    create: Callable[[int], Any],
    max_keypoints: int,
    spread: bool,
    transform: Callable[[np.ndarray], np.ndarray] = lambda descriptors: descriptors,
) -> Extractor:
    """Wrap an OpenCV detector; `create` makes it for a number of keypoints (0: no limit)."""
    detector = create(0 if spread else max_keypoints)

    def detect_spread(gray: np.ndarray) -> tuple[Sequence[cv2.KeyPoint], np.ndarray | None]:
        found = detector.detect(gray)
        rows = _rows(found)
        order = _by_response(rows)
        chosen = strongest_spread(rows[order, :2], max_keypoints, gray.shape[::-1])
        return detector.compute(gray, [found[i] for i in order[chosen]])

    def extract(image: np.ndarray) -> Features:
        gray = to_gray(image)
        try:
            if spread:
                keypoints, descriptors = detect_spread(gray)
            else:
                keypoints, descriptors = detector.detectAndCompute(gray, None)
        except cv2.error as error:
            raise FeatureError(
                f"OpenCV cannot extract {kind} features from an image of "
                f"{gray.shape[1]}x{gray.shape[0]} pixels ({error.err}); use a larger image"
            ) from error
        if descriptors is None:
            descriptors = np.empty((0, detector.descriptorSize()), descriptor_dtype(kind))
        rows = _rows(keypoints)
        order = _by_response(rows)[:max_keypoints]
        return features_from_rows(kind, rows[order], transform(descriptors[order]))

    return extract


def _rows(keypoints: Sequence[cv2.KeyPoint]) -> np.ndarray:
    rows = [(*k.pt, k.size, k.angle, k.response) for k in keypoints]
    return np.array(rows, np.float32).reshape(-1, 5)


def _by_response(rows: np.ndarray) -> np.ndarray:
    """Strongest first, in an order independent of OpenCV's threads and version."""
    x, y, size, angle, response = rows.T
    return np.lexsort((angle, size, x, y, -response))

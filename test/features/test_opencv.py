"""OpenCV's extractors give OpenCV's features."""

import cv2
import numpy as np
import pytest

from lgc_ros.errors import FeatureError
from lgc_ros.features.base import make_extractor


def test_the_strongest_keypoints_are_kept(image):
    few, many = make_extractor("sift", 50)(image), make_extractor("sift", 100)(image)
    np.testing.assert_array_equal(few.responses, many.responses[:50])


def test_sift_equals_opencv_with_a_low_contrast_threshold(image):
    sift = cv2.SIFT_create(nfeatures=200, contrastThreshold=1e-5)
    keypoints, descriptors = sift.detectAndCompute(image, None)
    expected = {(*k.pt, k.angle): d for k, d in zip(keypoints, descriptors, strict=True)}
    features = make_extractor("sift", 200)(image)
    for point, angle, descriptor in zip(
        features.points, features.angles, features.descriptors, strict=True
    ):
        np.testing.assert_array_equal(descriptor, expected[(*point.tolist(), float(angle))])


def test_rootsift_distances_are_hellinger_distances(image):
    sift, root = (make_extractor(name, 20)(image) for name in ("sift", "rootsift"))
    np.testing.assert_array_equal(sift.points, root.points)
    np.testing.assert_allclose(np.linalg.norm(root.descriptors, axis=1), 1, rtol=1e-5)
    p, q = (d / d.sum() for d in sift.descriptors[:2].astype(float))
    hellinger_squared = 2 - 2 * np.sqrt(p * q).sum()
    distance = np.linalg.norm(root.descriptors[0] - root.descriptors[1])
    assert distance**2 == pytest.approx(hellinger_squared, abs=1e-5)


def test_error_for_a_tiny_image_names_its_size():
    with pytest.raises(FeatureError, match=r"500x1 pixels.*larger"):
        make_extractor("orb")(np.zeros((1, 500), np.uint8))


def test_error_without_akaze_names_the_opencv_package_that_has_it(monkeypatch):
    monkeypatch.delattr(cv2, "AKAZE_create", raising=False)
    monkeypatch.delattr(cv2, "xfeatures2d", raising=False)
    with pytest.raises(FeatureError, match="opencv-contrib-python-headless"):
        make_extractor("akaze")

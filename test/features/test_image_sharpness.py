"""Image sharpness predicts the directional precision of keypoints under motion blur."""

import cv2
import numpy as np
import pytest

from lgc_ros.features.base import make_extractor
from lgc_ros.features.image_sharpness import sharpness, with_sharpness


def texture(seed=0, size=(240, 320)):
    """Isotropic texture."""
    noise = np.random.default_rng(seed).standard_normal(size).astype(np.float32)
    return cv2.normalize(cv2.GaussianBlur(noise, (0, 0), 2.0), None, 0, 255, cv2.NORM_MINMAX)


def unit(direction_deg):
    return np.array([np.cos(np.radians(direction_deg)), np.sin(np.radians(direction_deg))])


def blurred(image, direction_deg, length_px=15):
    """The image of a camera that rotates during the exposure."""
    kernel = np.zeros((length_px, length_px), np.float32)
    middle = (length_px // 2, length_px // 2)
    reach = length_px / 2 * unit(direction_deg)
    ends = [tuple(np.round(middle + sign * reach).astype(int).tolist()) for sign in (-1, 1)]
    cv2.line(kernel, *ends, 1.0)
    return cv2.filter2D(image, -1, kernel / kernel.sum())


def detected(image):
    return image.astype(np.uint8), make_extractor("sift", 500)(image.astype(np.uint8)).points


def test_isotropic_texture_has_isotropic_sharpness():
    np.testing.assert_allclose(sharpness(*detected(texture())), np.eye(2), atol=0.15)


@pytest.mark.parametrize("direction_deg", [0, 45, 90, 135])
def test_sharpness_is_lowest_along_the_blur(direction_deg):
    found = sharpness(*detected(blurred(texture(), direction_deg)))
    np.testing.assert_allclose(found, found.T)
    assert np.linalg.det(found) == pytest.approx(1)
    values, vectors = np.linalg.eigh(found)
    assert values[1] / values[0] > 2
    assert abs(vectors[:, 0] @ unit(direction_deg)) > np.cos(np.radians(10))


def test_sharpness_predicts_the_noise_of_repeated_detections():
    """The same blurred view is detected twice, with different sensor noise."""
    rng = np.random.default_rng(1)
    offsets, images = [], []
    for seed in range(6):
        clean = blurred(texture(seed), 0)
        first, second = (
            detected(np.clip(clean + rng.normal(0, 3, clean.shape), 0, 255)) for _ in range(2)
        )
        distance = np.linalg.norm(first[1][:, None] - second[1], axis=2)
        same = distance.argmin(axis=1)
        near = distance.min(axis=1) < 4
        offsets.append((second[1][same] - first[1])[near])
        images.append(first)
    noise_px = np.median(np.abs(np.concatenate(offsets)), axis=0)
    ratios = [found[1, 1] / found[0, 0] for found in (sharpness(*image) for image in images)]
    assert noise_px[0] / noise_px[1] == pytest.approx(np.median(ratios), rel=0.5)
    assert noise_px[0] / noise_px[1] > 1.5


@pytest.mark.parametrize("points", [np.zeros((0, 2)), np.array([[5.0, 5.0], [319.6, 239.7]])])
def test_without_texture_or_keypoints_sharpness_is_the_identity(points):
    np.testing.assert_allclose(sharpness(np.full((240, 320), 90, np.uint8), points), np.eye(2))


def test_with_sharpness_adds_sharpness_and_changes_nothing_else():
    image = np.dstack(3 * [texture().astype(np.uint8)])
    plain = make_extractor("sift", 300)
    features, measured = plain(image), with_sharpness(plain)(image)
    np.testing.assert_array_equal(measured.points, features.points)
    np.testing.assert_array_equal(features.sharpness, np.eye(2))
    np.testing.assert_allclose(measured.sharpness, sharpness(image, features.points))
    some = measured.subset(np.arange(10))
    np.testing.assert_array_equal(some.sharpness, measured.sharpness)


def test_keypoints_on_integer_pixels_have_isotropic_noise_under_any_blur():
    image = blurred(texture(), 0).astype(np.uint8)
    features = with_sharpness(make_extractor("orb", 300))(image)
    np.testing.assert_array_equal(features.sharpness, np.eye(2))

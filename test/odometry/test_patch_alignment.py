"""Patches are found to a fraction of a pixel, deformed as predicted, or not at all."""

import cv2
import numpy as np
import pytest

from lgc_ros.odometry.patch_alignment import align_patches, image_pyramid

SIZE = 200
POINTS = np.array([[60.0, 70.0], [120.0, 90.0], [100.0, 130.0], [75.0, 118.0]])
IDENTITY = np.tile(np.eye(2), (len(POINTS), 1, 1))


@pytest.fixture(scope="module")
def texture():
    rng = np.random.default_rng(0)
    noise = rng.uniform(0, 255, (SIZE, SIZE)).astype(np.float32)
    smooth = cv2.GaussianBlur(noise, (0, 0), 2.5)
    return cv2.normalize(smooth, None, 0, 255, cv2.NORM_MINMAX)


def warped(texture, A, shift, gain=1.0, offset=0.0):
    """The texture mapped by x -> A x + shift."""
    M = np.column_stack([A, shift])
    image = cv2.warpAffine(texture, M, (SIZE, SIZE), flags=cv2.INTER_CUBIC, borderValue=128)
    return np.clip(gain * image + offset, 0, 255).astype(np.uint8)


def found(texture, image, guesses, warps=IDENTITY, coarsest=3):
    template = image_pyramid(texture.astype(np.uint8))
    return align_patches(template, POINTS, image_pyramid(image), guesses, warps, coarsest)


@pytest.mark.parametrize("shift", [(0.0, 0.0), (0.37, -0.81), (6.2, 4.4), (-14.3, 9.6)])
def test_a_shift_is_found_to_a_tenth_of_a_pixel(texture, shift):
    image = warped(texture, np.eye(2), np.array(shift))
    pixels, ok = found(texture, image, POINTS)
    assert ok.all()
    np.testing.assert_allclose(pixels, POINTS + shift, atol=0.1)


def test_a_change_of_brightness_does_not_matter(texture):
    shift = np.array([1.3, 2.6])
    image = warped(texture, np.eye(2), shift, gain=0.8, offset=25)
    pixels, ok = found(texture, image, POINTS)
    assert ok.all()
    np.testing.assert_allclose(pixels, POINTS + shift, atol=0.1)


def test_a_patch_that_is_deformed_as_predicted_is_found(texture):
    A = 1.3 * cv2.getRotationMatrix2D((0, 0), 20, 1)[:, :2]
    center = np.full(2, SIZE / 2)
    shift = center - A @ center
    image = warped(texture, A, shift)
    true = POINTS @ A.T + shift
    warps = np.tile(A, (len(POINTS), 1, 1))
    pixels, ok = found(texture, image, true + 1.5, warps, coarsest=1)
    assert ok.all()
    np.testing.assert_allclose(pixels, true, atol=0.15)
    unwarped, _ = found(texture, image, true + 1.5, coarsest=1)
    assert np.linalg.norm(unwarped - true, axis=1).mean() > 0.3


def test_another_texture_is_not_taken_for_the_patch(texture):
    template = image_pyramid(texture.astype(np.uint8))
    other = image_pyramid(np.ascontiguousarray(texture.astype(np.uint8)[::-1, ::-1]))
    points = np.stack(np.meshgrid(*2 * [np.arange(30.0, 170.0, 10)]), axis=-1).reshape(-1, 2)
    _, ok = align_patches(
        template, points, other, points, np.tile(np.eye(2), (len(points), 1, 1)), 0
    )
    assert ok.mean() < 0.2


def test_an_image_without_texture_shows_nothing(texture):
    assert not found(texture, np.full((SIZE, SIZE), 128, np.uint8), POINTS)[1].any()


def test_points_without_a_guess_and_at_the_border_are_not_found(texture):
    image = warped(texture, np.eye(2), np.zeros(2))
    guesses = POINTS.copy()
    guesses[0], guesses[1] = np.nan, (2.0, 2.0)
    pixels, ok = found(texture, image, guesses, coarsest=0)
    assert ok.tolist() == [False, False, True, True]
    np.testing.assert_allclose(pixels[2:], POINTS[2:], atol=0.05)

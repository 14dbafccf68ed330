"""Guided matching finds what is where it should be, and says nothing where there is doubt."""

import numpy as np
import pytest

from lgc_ros.matching.guided import NOT_FOUND, match_guided


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def scene(rng, count=200, kind=np.float32):
    """Keypoints all over a unit square, each with a look of its own."""
    points = rng.random((count, 2))
    if kind == np.uint8:
        return points, rng.integers(0, 256, (count, 32), dtype=np.uint8)
    return points, rng.integers(0, 256, (count, 128)).astype(np.float32)


@pytest.mark.parametrize("kind", [np.float32, np.uint8])
def test_everything_is_found_near_its_place(rng, kind):
    points, looks = scene(rng, kind=kind)
    order = rng.permutation(len(points))
    places = points[order] + rng.uniform(-0.01, 0.01, points.shape)
    found = match_guided(places, looks[order], points, looks, 0.02, max_distance=np.inf)
    assert np.array_equal(found, order)


def test_nothing_is_found_beyond_the_radius(rng):
    points, looks = scene(rng)
    far = points + np.array([0.0, 0.021])
    found = match_guided(far, looks, points, looks, 0.02, max_distance=1.0)
    assert (found == NOT_FOUND).all()


def test_what_looks_different_is_not_taken(rng):
    points, looks = scene(rng)
    _, others = scene(rng)
    least = np.linalg.norm(looks[:, None] - others[None], axis=2).min()
    found = match_guided(points, others, points, looks, 1e-6, max_distance=0.9 * least)
    assert (found == NOT_FOUND).all()
    found = match_guided(points, others, points, looks, 1e-6, max_distance=np.inf)
    assert np.array_equal(found, np.arange(len(points)))


def test_two_that_look_alike_nearby_leave_doubt():
    points = np.array([[0.5, 0.5], [0.51, 0.5], [0.9, 0.5]])
    looks = np.array([[10.0, 0.0], [0.0, 10.0], [10.0, 0.0]], np.float32)
    between = np.array([[6.0, 5.0]], np.float32)
    place = np.array([[0.505, 0.5]])
    assert match_guided(place, between, points, looks, 0.02, 100.0).tolist() == [NOT_FOUND]
    assert match_guided(place, looks[:1], points, looks, 0.02, 100.0).tolist() == [0]


def test_a_keypoint_answers_to_the_place_it_is_most_like():
    points = np.array([[0.5, 0.5]])
    looks = np.array([[10.0, 0.0]], np.float32)
    places = np.array([[0.5, 0.49], [0.5, 0.51], [0.51, 0.5]])
    expected = np.array([[13.0, 0.0], [11.0, 0.0], [12.0, 0.0]], np.float32)
    found = match_guided(places, expected, points, looks, 0.02, 100.0)
    assert found.tolist() == [NOT_FOUND, 0, NOT_FOUND]


def test_nothing_to_look_for_or_nowhere_to_look(rng):
    points, looks = scene(rng, count=3)
    nothing, no_looks = np.empty((0, 2)), looks[:0]
    assert match_guided(nothing, no_looks, points, looks, 0.1, 1.0).shape == (0,)
    found = match_guided(points, looks, nothing, no_looks, 0.1, 1.0)
    assert found.tolist() == 3 * [NOT_FOUND]

"""Guided matching finds points near their predicted positions and rejects ambiguous ones."""

import numpy as np
import pytest

from lgc_ros.matching.guided import NOT_FOUND, match_guided


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def scene(rng, count=200, kind=np.float32):
    """Keypoints in the unit square with distinct descriptors."""
    points = rng.random((count, 2))
    if kind == np.uint8:
        return points, rng.integers(0, 256, (count, 32), dtype=np.uint8)
    return points, rng.integers(0, 256, (count, 128)).astype(np.float32)


@pytest.mark.parametrize("kind", [np.float32, np.uint8])
def test_every_point_is_found_near_its_predicted_position(rng, kind):
    points, descriptors = scene(rng, kind=kind)
    order = rng.permutation(len(points))
    targets = points[order] + rng.uniform(-0.01, 0.01, points.shape)
    found = match_guided(
        targets, descriptors[order], points, descriptors, 0.02, max_distance=np.inf
    )
    assert np.array_equal(found, order)


def test_nothing_is_found_beyond_the_radius(rng):
    points, descriptors = scene(rng)
    far = points + np.array([0.0, 0.021])
    found = match_guided(far, descriptors, points, descriptors, 0.02, max_distance=1.0)
    assert (found == NOT_FOUND).all()


def test_keypoints_with_distant_descriptors_are_rejected(rng):
    points, descriptors = scene(rng)
    _, others = scene(rng)
    least = np.linalg.norm(descriptors[:, None] - others[None], axis=2).min()
    found = match_guided(points, others, points, descriptors, 1e-6, max_distance=0.9 * least)
    assert (found == NOT_FOUND).all()
    found = match_guided(points, others, points, descriptors, 1e-6, max_distance=np.inf)
    assert np.array_equal(found, np.arange(len(points)))


def test_two_similar_candidates_are_ambiguous():
    points = np.array([[0.5, 0.5], [0.51, 0.5], [0.9, 0.5]])
    descriptors = np.array([[10.0, 0.0], [0.0, 10.0], [10.0, 0.0]], np.float32)
    between = np.array([[6.0, 5.0]], np.float32)
    target = np.array([[0.505, 0.5]])
    assert match_guided(target, between, points, descriptors, 0.02, 100.0).tolist() == [NOT_FOUND]
    assert match_guided(target, descriptors[:1], points, descriptors, 0.02, 100.0).tolist() == [0]


def test_a_keypoint_is_assigned_to_the_most_similar_target():
    points = np.array([[0.5, 0.5]])
    descriptors = np.array([[10.0, 0.0]], np.float32)
    targets = np.array([[0.5, 0.49], [0.5, 0.51], [0.51, 0.5]])
    expected = np.array([[13.0, 0.0], [11.0, 0.0], [12.0, 0.0]], np.float32)
    found = match_guided(targets, expected, points, descriptors, 0.02, 100.0)
    assert found.tolist() == [NOT_FOUND, 0, NOT_FOUND]


def test_no_targets_or_no_keypoints_give_no_matches(rng):
    points, descriptors = scene(rng, count=3)
    empty, no_descriptors = np.empty((0, 2)), descriptors[:0]
    assert match_guided(empty, no_descriptors, points, descriptors, 0.1, 1.0).shape == (0,)
    found = match_guided(points, descriptors, empty, no_descriptors, 0.1, 1.0)
    assert found.tolist() == 3 * [NOT_FOUND]

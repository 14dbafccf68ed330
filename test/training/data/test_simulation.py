"""Simulated pairs obey the geometry they claim, in all their variety."""

import numpy as np
import pytest

from lgc_ros.geometry import epipolar as geometry
from training.data.keypoint_frames import rotation_change
from training.data.simulation import random_camera, random_motion, simulate_pair

MATCHES = 300


@pytest.fixture(scope="module")
def pairs():
    return [simulate_pair(np.random.default_rng(seed), MATCHES) for seed in range(120)]


def test_the_same_seed_gives_the_same_pair():
    first, again = (simulate_pair(np.random.default_rng(3), MATCHES) for _ in range(2))
    for name, value in vars(first).items():
        np.testing.assert_array_equal(value, getattr(again, name))
    other = simulate_pair(np.random.default_rng(4), MATCHES)
    assert not np.array_equal(first.xs, other.xs)


def test_pairs_are_whole_and_finite(pairs):
    for pair in pairs:
        assert pair.xs.shape == (MATCHES, 4)
        for value in vars(pair).values():
            assert value.dtype == np.float32
            assert np.isfinite(value).all()
        assert ((pair.ratio >= 0) & (pair.ratio <= 1)).all()
        assert set(np.unique(pair.mutual)) <= {0.0, 1.0}


def test_labels_are_distances_to_the_true_epipolar_lines(pairs):
    for pair in pairs:
        R_10, t_10 = pair.R_10.astype(float), pair.t_10.astype(float)
        np.testing.assert_allclose(R_10 @ R_10.T, np.eye(3), atol=1e-5)
        assert np.linalg.det(R_10) == pytest.approx(1, abs=1e-5)
        assert np.linalg.norm(t_10) == pytest.approx(1, abs=1e-5)
        E, x = geometry.essential_from_pose(R_10, t_10), pair.xs.astype(float)
        expected = geometry.symmetric_epipolar_distance(E, x[:, :2], x[:, 2:])
        np.testing.assert_allclose(pair.ys, expected, rtol=1e-2, atol=1e-8)


def test_matches_lie_in_both_images(pairs):
    for pair in pairs:
        for x, K in ((pair.xs[:, :2], pair.K0), (pair.xs[:, 2:], pair.K1)):
            pixels = x * K[0, 0] + K[:2, 2]
            size = 2 * K[:2, 2]
            # Noise may move a keypoint at the border a little way out.
            assert (pixels > -30).all()
            assert (pixels < size + 30).all()


def test_inlier_ratios_span_two_to_seventy_percent(pairs):
    ratios = np.array([(pair.ys < 1e-4).mean() for pair in pairs])
    assert ratios.min() < 0.1
    assert ratios.max() > 0.5
    # Outliers may lie on the true epipolar line by chance.
    assert ratios.max() < 0.9
    for pair in pairs:
        assert (pair.ys < 1e-4).sum() >= 8


def test_true_matches_are_more_distinctive_than_outliers(pairs):
    right = np.concatenate([pair.ys < 1e-4 for pair in pairs])
    ratio = np.concatenate([pair.ratio for pair in pairs])
    mutual = np.concatenate([pair.mutual for pair in pairs])
    assert np.median(ratio[right]) < np.median(ratio[~right]) - 0.05
    assert mutual[right].mean() > mutual[~right].mean() + 0.2
    distance = np.concatenate([pair.descriptor_distance for pair in pairs])
    assert 0 <= distance.min() < np.median(distance[right]) < np.median(distance[~right]) < 1


def test_keypoints_of_true_matches_rotate_with_the_camera(pairs):
    def spread(angles):
        return 1 - np.abs(np.exp(1j * angles).mean())

    right, wrong, zoomed = [], [], []
    for pair in pairs:
        turn = rotation_change(pair.R_10.astype(float), pair.xs[:, :2].astype(float))[1]
        good = pair.ys < 1e-5
        right.append(spread(pair.roll[good] - turn[good]))
        wrong.append(spread(pair.roll[~good] - turn[~good]))
        zoomed.append(pair.zoom[good].std() < pair.zoom[~good].std())
    assert np.median(right) < 0.15
    assert np.median(wrong) > 0.4
    assert np.mean(zoomed) > 0.9


class Chooses:
    """A generator that always chooses one kind of motion."""

    def __init__(self, kind, seed):
        self._rng, self._kind = np.random.default_rng(seed), kind

    def choice(self, options, *args, **kwargs):
        chosen = self._rng.choice(options, *args, **kwargs)
        return self._kind if self._kind in options else chosen

    def __getattr__(self, name):
        return getattr(self._rng, name)


@pytest.mark.parametrize("kind", ["orbit", "forward", "sideways", "free", "rotation"])
def test_every_kind_of_motion_is_a_pose_with_a_baseline(kind):
    for seed in range(50):
        R_10, t_10 = random_motion(Chooses(kind, seed))
        np.testing.assert_allclose(R_10 @ R_10.T, np.eye(3), atol=1e-9)
        assert np.linalg.norm(t_10) > 1e-3
        if kind == "rotation":
            assert np.linalg.norm(t_10) <= 0.05 + 1e-9


def test_cameras_have_common_fields_of_view():
    for seed in range(50):
        view = random_camera(np.random.default_rng(seed))
        assert 28 <= 2 * np.degrees(np.arctan(view.half_width)) <= 95
        assert 600 <= 2 * view.half_width * view.focal_px <= 1300

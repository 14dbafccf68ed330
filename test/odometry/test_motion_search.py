"""Which motion explains the first views, where points lie in a plane and where they do not."""

import numpy as np
import pytest
from scenes import FOCAL_PX
from transforms3d.axangles import axangle2mat

from lgc_ros.geometry.epipolar import rotation_error_deg, translation_error_deg
from lgc_ros.odometry.motion_search import ReferenceMatches, find_motion

THRESHOLD = 1.0 / FOCAL_PX
POINTS = 400


def in_a_plane(rng):
    """On a floor that is seen at a slant."""
    x, z = rng.uniform(-1, 1, POINTS), rng.uniform(2, 5, POINTS)
    return np.column_stack([x, 1.2 - 0.1 * z, z])


def in_a_room(rng):
    return rng.uniform([-1, -1, 2], [1, 1, 6], (POINTS, 3))


def pose(k):
    """World to the camera that has moved k steps: aside and ahead, turning."""
    return axangle2mat([0.1, 1, 0], 0.02 * k), 0.06 * k * np.array([0.8, 0.1, -0.6])


def views(points, steps, wrong=0, seed=0):
    """Normalized keypoints of the first camera, and what later ones see of them."""
    rng = np.random.default_rng(seed)
    index = np.arange(len(points))

    def seen(R, t):
        cam = points @ R.T + t
        x = cam[:, :2] / cam[:, 2:] + rng.normal(0, 0.2 / FOCAL_PX, (len(points), 2))
        x[:wrong] = rng.uniform(-0.5, 0.5, (wrong, 2))
        return x

    sights = [ReferenceMatches(index, index, seen(*pose(k))) for k in steps]
    return seen(*pose(0)), sights


def is_true(motion, k):
    R, t = pose(k)
    return (
        rotation_error_deg(motion.R_10, R) < 0.5
        and translation_error_deg(motion.t_10, t, signed=True) < 3
    )


@pytest.mark.parametrize("wrong", [0, 80])
def test_a_room_allows_one_motion(wrong):
    x0, sights = views(in_a_room(np.random.default_rng(1)), [6], wrong)
    motion, clear = find_motion(x0, [], sights[0], *pose(6), THRESHOLD)
    assert clear
    assert is_true(motion, 6)


def test_two_views_of_a_plane_allow_two_motions():
    x0, sights = views(in_a_plane(np.random.default_rng(2)), [3])
    _, clear = find_motion(x0, [], sights[0], *pose(3), THRESHOLD)
    assert not clear


@pytest.mark.parametrize("wrong", [0, 80])
@pytest.mark.parametrize("guess", [pose(9), (np.eye(3), np.array([0.0, 1.0, 0.0]))])
def test_views_between_resolve_the_ambiguity_from_any_guess(guess, wrong):
    x0, (*between, last) = views(in_a_plane(np.random.default_rng(3)), [3, 6, 9], wrong)
    motion, clear = find_motion(x0, between, last, *guess, THRESHOLD)
    assert clear
    assert is_true(motion, 9)


def test_agreeing_matches_are_separated_from_outliers():
    x0, (last,) = views(in_a_room(np.random.default_rng(4)), [6], wrong=80)
    motion, _ = find_motion(x0, [], last, *pose(6), THRESHOLD)
    agree = motion.inliers(x0, last.x, THRESHOLD)
    assert agree[80:].mean() > 0.95
    assert agree[:80].mean() < 0.2

"""Camera trajectories: smooth, and true to their names."""

from itertools import pairwise

import cv2
import numpy as np
import pytest

from lgc_ros.sources.synthetic import SyntheticSource
from lgc_ros.synthetic.motion import TRAJECTORIES


def poses(world, trajectory, frames=60, **options):
    source = SyntheticSource(trajectory, frames, world=world, **options)
    return np.stack([source.T_wc(k) for k in range(frames)])


@pytest.mark.parametrize("trajectory", TRAJECTORIES)
def test_poses_are_rigid_and_smooth(world, trajectory):
    T = poses(world, trajectory, frames=200)
    R, center = T[:, :3, :3], T[:, :3, 3]
    np.testing.assert_allclose(
        R @ R.transpose(0, 2, 1), np.broadcast_to(np.eye(3), R.shape), atol=1e-12
    )
    assert np.linalg.det(R).min() > 0
    steps = np.linalg.norm(np.diff(center, axis=0), axis=1)
    turns = np.degrees([np.linalg.norm(cv2.Rodrigues(a.T @ b)[0]) for a, b in pairwise(R)])
    assert steps.max() < 0.15
    assert turns.max() < 5


def test_a_walk_has_about_the_given_speed(world):
    center = poses(world, "walk", frames=101, rate_hz=20, speed_mps=0.8)[:, :3, 3]
    length_m = np.linalg.norm(np.diff(center, axis=0), axis=1).sum()
    assert length_m == pytest.approx(5 * 0.8, rel=0.15)


def test_a_loop_ends_where_it_starts(world):
    T = poses(world, "loop")
    np.testing.assert_allclose(T[0], T[-1], atol=1e-9)
    assert np.linalg.norm(T[:, :2, 3] - T[0, :2, 3], axis=1).max() > 2


def test_pure_rotation_keeps_the_camera_center(world):
    T = poses(world, "rotation")
    assert (T[:, :3, 3] == T[0, :3, 3]).all()
    turned = np.degrees(np.linalg.norm(cv2.Rodrigues(T[0, :3, :3].T @ T[-1, :3, :3])[0]))
    assert turned > 45


def test_a_camera_at_rest_sees_the_same_image(world, small_camera):
    first, *_, last = SyntheticSource("standstill", 5, camera=small_camera, world=world)
    assert (first.T_wc == last.T_wc).all()
    assert first.image.tobytes() == last.image.tobytes()

"""Alignment of trajectories whose worlds differ in origin, orientation and scale."""

from dataclasses import replace

import numpy as np
import pytest
from sequences import winding_trajectory
from transforms3d.axangles import axangle2mat

from lgc_ros.geometry.alignment import align_poses, align_straight_paths, align_trajectories

R = axangle2mat([0.3, -1, 0.4], 1.9)
T = np.array([4.0, -2.0, 0.7])
SCALE = 2.5


def in_world_a(T_b):
    T_a = T_b.copy()
    T_a[:, :3, :3] = R @ T_b[:, :3, :3]
    T_a[:, :3, 3] = SCALE * T_b[:, :3, 3] @ R.T + T
    return T_a


def test_the_similarity_is_recovered():
    T_b = winding_trajectory().T_wc
    found = align_poses(T_b, in_world_a(T_b))
    assert found.scale == pytest.approx(SCALE)
    np.testing.assert_allclose(found.R, R, atol=1e-9)
    np.testing.assert_allclose(found(T_b[:, :3, 3]), in_world_a(T_b)[:, :3, 3], atol=1e-9)


def test_a_straight_line_and_two_poses_suffice():
    T_b = np.tile(np.eye(4), (2, 1, 1))
    T_b[1, 2, 3] = 1.0
    found = align_poses(T_b, in_world_a(T_b))
    np.testing.assert_allclose(found.R, R, atol=1e-9)
    assert found.scale == pytest.approx(SCALE)


def test_positions_along_a_line_are_brought_together_although_orientations_disagree():
    """The rotation between the worlds is that of the positions, but for the one about the line."""
    T_b = np.tile(np.eye(4), (10, 1, 1))
    T_b[:, 2, 3] = np.linspace(0, 3, 10)
    T_a = in_world_a(T_b)
    tilted = T_b.copy()
    tilted[:, :3, :3] = axangle2mat([1, 0, 0], 0.1)
    found = align_straight_paths(tilted, T_a)
    np.testing.assert_allclose(found(T_b[:, :3, 3]), T_a[:, :3, 3], atol=1e-9)
    assert found.scale == pytest.approx(SCALE)
    assert align_straight_paths(tilted, T_a, with_scale=False).scale == 1.0
    np.testing.assert_allclose(align_straight_paths(T_b, T_a).R, R, atol=1e-5)


def test_without_motion_the_scale_is_one():
    T_b = np.tile(np.eye(4), (3, 1, 1))
    assert align_poses(T_b, in_world_a(T_b)).scale == 1.0


def test_trajectories_are_aligned_by_the_poses_of_equal_stamps():
    b = winding_trajectory()
    a = replace(b, T_wc=in_world_a(b.T_wc)).without(np.arange(len(b)) % 3 == 0)
    found = align_trajectories(b, a)
    np.testing.assert_allclose(found.of_poses(b.T_wc), in_world_a(b.T_wc), atol=1e-9)
    assert align_trajectories(b, replace(a, stamps_ns=a.stamps_ns + 1)) is None

"""Interpolation between samples and gaps; SciPy is the oracle."""

import numpy as np
import pytest

from lgc_ros.geometry.trajectory import Trajectory
from lgc_ros.sources.trajectory import trajectory_from_samples

IDENTITY = [1, 0, 0, 0]


def test_interpolated_poses_agree_with_scipy():
    transform = pytest.importorskip("scipy.spatial.transform")
    rng = np.random.default_rng(0)
    stamps_ns = 10**18 + np.cumsum(rng.integers(1, 10**8, 20))
    rotations = transform.Rotation.random(20, random_state=1)
    positions = rng.normal(size=(20, 3))
    wxyz = rotations.as_quat()[:, [3, 0, 1, 2]] * rng.choice([-3, 3], (20, 1))
    shuffled = rng.permutation(20)
    trajectory = trajectory_from_samples(
        stamps_ns[shuffled], positions[shuffled], wxyz[shuffled], "test"
    )
    seconds = (stamps_ns - stamps_ns[0]) * 1e-9
    slerp = transform.Slerp(seconds, rotations)
    for stamp_ns in [*stamps_ns, *rng.integers(stamps_ns[0], stamps_ns[-1], 50)]:
        T_wc = trajectory.pose_at(int(stamp_ns))
        time = (stamp_ns - stamps_ns[0]) * 1e-9
        np.testing.assert_allclose(T_wc[:3, :3], slerp(time).as_matrix(), atol=1e-9)
        linear = [np.interp(time, seconds, positions[:, axis]) for axis in range(3)]
        np.testing.assert_allclose(T_wc[:3, 3], linear, atol=1e-9)
        np.testing.assert_array_equal(T_wc[3], [0, 0, 0, 1])


def test_poses_are_unknown_outside_the_samples_and_in_gaps():
    stamps_ns = np.array([0, 50, 100, 400, 450]) * 10**6
    trajectory = trajectory_from_samples(stamps_ns, np.zeros((5, 3)), [IDENTITY] * 5, "test")
    known = [ms for ms in range(-10, 470, 10) if trajectory.pose_at(ms * 10**6) is not None]
    assert known == [*range(0, 110, 10), *range(400, 460, 10)]
    assert trajectory.pose_at(250 * 10**6, max_gap_ns=300 * 10**6) is not None


def test_a_low_sampling_rate_is_not_a_gap():
    stamps_ns = np.array([0, 1, 2, 3, 6, 7, 11, 12]) * 10**9
    trajectory = trajectory_from_samples(stamps_ns, np.zeros((8, 3)), [IDENTITY] * 8, "gps")
    times_s = (0.5, 4.5, 9, 11.5)
    known = [trajectory.pose_at(round(time * 1e9)) is not None for time in times_s]
    assert known == [True, True, False, True]


def test_interpolation_of_matrices_equals_that_of_quaternions():
    rng = np.random.default_rng(3)
    quaternions = rng.normal(size=(6, 4))
    stamps_ns = np.arange(6) * 10**7
    samples = trajectory_from_samples(stamps_ns, rng.normal(size=(6, 3)), quaternions, "test")
    matrices = Trajectory.from_poses(zip(stamps_ns, samples.T_wc, strict=True))
    for stamp_ns in (0, 3 * 10**6, 27 * 10**6, 5 * 10**7):
        np.testing.assert_allclose(
            matrices.pose_at(stamp_ns), samples.pose_at(stamp_ns), atol=1e-12
        )


def test_the_length_of_a_path_is_the_sum_of_its_steps():
    T_wc = np.tile(np.eye(4), (3, 1, 1))
    T_wc[:, 0, 3] = 0, 3, 1
    assert Trajectory(np.arange(3), T_wc).length_m == pytest.approx(5)


def test_held_poses_are_those_equal_to_the_one_before():
    poses = [np.eye(4) for _ in range(5)]
    for k, x in enumerate((0.0, 1.0, 1.0, 1.0, 2.0)):
        poses[k][0, 3] = x
    trajectory = Trajectory.from_poses(enumerate(poses))
    assert trajectory.held.tolist() == [False, False, True, True, False]
    assert trajectory.without(trajectory.held).stamps_ns.tolist() == [0, 1, 4]

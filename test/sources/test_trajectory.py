"""Ground truth over time: stamps without loss, poses between samples, gaps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lgc_ros.errors import SourceError
from lgc_ros.sources.trajectory import Trajectory, parse_stamp, read_trajectory
from lgc_ros.sources.tum import format_stamp

IDENTITY = [1, 0, 0, 0]


@given(st.integers(0, 2**62))
def test_stamps_survive_as_text(stamp_ns):
    assert parse_stamp(format_stamp(stamp_ns)) == stamp_ns


def test_stamps_come_in_many_spellings():
    assert parse_stamp("1305031102.175304") == 1305031102175304000
    assert parse_stamp("1305031102") == 1305031102000000000
    assert parse_stamp("1.000000e-01") == 100_000_000
    for text in ("", "now", "nan", "inf"):
        with pytest.raises(ValueError, match="not a stamp in seconds"):
            parse_stamp(text)


def test_poses_between_samples_agree_with_scipy():
    transform = pytest.importorskip("scipy.spatial.transform")
    rng = np.random.default_rng(0)
    stamps_ns = 10**18 + np.cumsum(rng.integers(1, 10**8, 20))
    rotations = transform.Rotation.random(20, random_state=1)
    positions = rng.normal(size=(20, 3))
    wxyz = rotations.as_quat()[:, [3, 0, 1, 2]] * rng.choice([-3, 3], (20, 1))
    shuffled = rng.permutation(20)
    trajectory = Trajectory.from_samples(
        stamps_ns[shuffled], positions[shuffled], wxyz[shuffled], "test"
    )
    seconds = (stamps_ns - stamps_ns[0]) * 1e-9
    slerp = transform.Slerp(seconds, rotations)
    for stamp_ns in [*stamps_ns, *rng.integers(stamps_ns[0], stamps_ns[-1], 50)]:
        T_wb = trajectory.pose_at(int(stamp_ns))
        time = (stamp_ns - stamps_ns[0]) * 1e-9
        np.testing.assert_allclose(T_wb[:3, :3], slerp(time).as_matrix(), atol=1e-9)
        linear = [np.interp(time, seconds, positions[:, axis]) for axis in range(3)]
        np.testing.assert_allclose(T_wb[:3, 3], linear, atol=1e-9)
        np.testing.assert_array_equal(T_wb[3], [0, 0, 0, 1])


def test_no_pose_outside_nor_in_a_gap():
    stamps_ns = np.array([0, 50, 100, 400, 450]) * 10**6
    trajectory = Trajectory.from_samples(stamps_ns, np.zeros((5, 3)), [IDENTITY] * 5, "test")
    known = [ms for ms in range(-10, 470, 10) if trajectory.pose_at(ms * 10**6) is not None]
    assert known == [*range(0, 110, 10), *range(400, 460, 10)]
    assert trajectory.pose_at(250 * 10**6, max_gap_ns=300 * 10**6) is not None


def test_slow_truth_is_no_gap():
    stamps_ns = np.array([0, 1, 2, 3, 6, 7, 11, 12]) * 10**9
    trajectory = Trajectory.from_samples(stamps_ns, np.zeros((8, 3)), [IDENTITY] * 8, "gps")
    times_s = (0.5, 4.5, 9, 11.5)
    known = [trajectory.pose_at(round(time * 1e9)) is not None for time in times_s]
    assert known == [True, True, False, True]


def test_samples_without_a_pose_leave_a_gap(caplog):
    positions = [[0, 0, 0], [np.nan, 0, 0], [2, 0, 0], [9, 9, 9]]
    quaternions = [IDENTITY, IDENTITY, IDENTITY, [0, 0, 0, 0]]
    trajectory = Trajectory.from_samples([0, 40, 80, 120], positions, quaternions, "mocap")
    assert trajectory.stamps_ns.tolist() == [0, 80]
    assert trajectory.pose_at(40)[0, 3] == 1
    assert "mocap: 2 samples are no poses" in caplog.text
    with pytest.raises(SourceError, match="mocap holds no pose among 1 samples"):
        Trajectory.from_samples([0], [[0, 0, 0]], [[0, 0, 0, 0]], "mocap")


def test_tum_files_may_be_unsorted_and_commented(tmp_path):
    path = tmp_path / "poses.txt"
    path.write_text("# stamp ...\n\n2.5 1 2 3 0 0 1 0\n2.4 0 0 0 0 0 0 1\n")
    trajectory = read_trajectory(path)
    assert trajectory.stamps_ns.tolist() == [2_400_000_000, 2_500_000_000]
    T_wb = trajectory.pose_at(2_500_000_000)
    np.testing.assert_allclose(T_wb[:3], [[-1, 0, 0, 1], [0, -1, 0, 2], [0, 0, 1, 3]], atol=1e-12)


def test_errors_name_the_line(tmp_path):
    path = tmp_path / "poses.txt"
    with pytest.raises(SourceError, match=r"poses\.txt is missing: give a trajectory"):
        read_trajectory(path)
    for line in ("1.0 2 3", "now 0 0 0 0 0 0 1", "1.0 a 0 0 0 0 0 1"):
        path.write_text(f"{line}\n")
        with pytest.raises(SourceError, match=rf"'{line}' is not a pose.*stamp tx ty tz"):
            read_trajectory(path)
    path.write_text("# nothing\n")
    with pytest.raises(SourceError, match="holds no pose among 0 samples"):
        read_trajectory(path)

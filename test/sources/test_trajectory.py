"""Trajectory files: lossless stamps, both formats, error messages, evo as the oracle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sequences import winding_trajectory

from lgc_ros.errors import SourceError
from lgc_ros.sources.trajectory import (
    format_stamp,
    parse_stamp,
    read_trajectory,
    read_trajectory_file,
    trajectory_from_samples,
    write_kitti,
    write_trajectory,
)


@given(st.integers(0, 2**62))
def test_stamps_survive_a_round_trip_through_text(stamp_ns):
    assert parse_stamp(format_stamp(stamp_ns)) == stamp_ns


def test_stamps_may_have_any_decimal_notation():
    assert parse_stamp("1305031102.175304") == 1305031102175304000
    assert parse_stamp("1305031102") == 1305031102000000000
    assert parse_stamp("1.000000e-01") == 100_000_000
    for text in ("", "now", "nan", "inf"):
        with pytest.raises(ValueError, match="not a stamp in seconds"):
            parse_stamp(text)


def test_tum_files_may_be_unsorted_and_commented(tmp_path):
    path = tmp_path / "poses.txt"
    path.write_text("# stamp ...\n\n2.5 1 2 3 0 0 1 0\n2.4 0 0 0 0 0 0 1\n")
    trajectory = read_trajectory(path)
    assert trajectory.stamps_ns.tolist() == [2_400_000_000, 2_500_000_000]
    T_wc = trajectory.pose_at(2_500_000_000)
    np.testing.assert_allclose(T_wc[:3], [[-1, 0, 0, 1], [0, -1, 0, 2], [0, 0, 1, 3]], atol=1e-12)


def test_the_error_quotes_a_malformed_line(tmp_path):
    path = tmp_path / "poses.txt"
    with pytest.raises(SourceError, match=r"poses\.txt is missing: give a trajectory"):
        read_trajectory(path)
    for line in ("1.0 2 3", "now 0 0 0 0 0 0 1", "1.0 a 0 0 0 0 0 1"):
        path.write_text(f"{line}\n")
        with pytest.raises(SourceError, match=rf"'{line}' is not a pose.*stamp tx ty tz"):
            read_trajectory(path)
    path.write_text("# nothing\n")
    with pytest.raises(SourceError, match="has no valid pose in 0 samples"):
        read_trajectory(path)


def test_tum_files_preserve_stamps_in_nanoseconds_and_poses(tmp_path):
    trajectory = winding_trajectory()
    write_trajectory(tmp_path / "t.txt", trajectory)
    back = read_trajectory_file(tmp_path / "t.txt")
    np.testing.assert_array_equal(back.stamps_ns, trajectory.stamps_ns)
    np.testing.assert_allclose(back.T_wc, trajectory.T_wc, atol=1e-8)


@pytest.mark.parametrize("wrong", ["nan", "inf", "x", "1 1"])
def test_kitti_poses_that_are_not_12_finite_numbers_are_refused(tmp_path, wrong):
    file = tmp_path / "poses.txt"
    file.write_text(f"1 0 0 0 0 1 0 0 0 0 1 0\n1 0 0 {wrong} 0 1 0 0 0 0 1 0\n")
    with pytest.raises(
        SourceError, match=f"poses.txt: '1 0 0 {wrong} .* is not 12 finite numbers"
    ):
        read_trajectory_file(file)


def test_kitti_files_preserve_poses(tmp_path):
    trajectory = winding_trajectory()
    write_kitti(tmp_path / "t.txt", trajectory)
    back = read_trajectory_file(tmp_path / "t.txt")
    np.testing.assert_allclose(back.T_wc, trajectory.T_wc, atol=1e-8)
    assert not back.timed


def test_evo_reads_written_files(tmp_path):
    file_interface = pytest.importorskip("evo.tools.file_interface")
    trajectory = winding_trajectory()
    write_trajectory(tmp_path / "tum.txt", trajectory)
    write_kitti(tmp_path / "kitti.txt", trajectory)
    tum = file_interface.read_tum_trajectory_file(tmp_path / "tum.txt")
    kitti = file_interface.read_kitti_poses_file(tmp_path / "kitti.txt")
    for theirs in (tum, kitti):
        np.testing.assert_allclose(theirs.poses_se3, trajectory.T_wc, atol=1e-7)


@pytest.mark.parametrize("content", ["", "1 2 3\n", "1 0 0 0 0 0 x 1\n", "1 " * 11 + "nope\n"])
def test_the_error_for_a_file_without_a_trajectory_names_the_file(tmp_path, content):
    path = tmp_path / "t.txt"
    path.write_text(content)
    with pytest.raises(SourceError, match=r"t\.txt"):
        read_trajectory_file(path)


def test_invalid_samples_are_dropped_with_a_warning(caplog):
    positions = [[0, 0, 0], [np.nan, 0, 0], [2, 0, 0], [9, 9, 9]]
    quaternions = [*3 * [[1, 0, 0, 0]], [0, 0, 0, 0]]
    trajectory = trajectory_from_samples([0, 40, 80, 120], positions, quaternions, "mocap")
    assert trajectory.stamps_ns.tolist() == [0, 80]
    assert trajectory.pose_at(40)[0, 3] == 1
    assert "mocap: ignored 2 samples" in caplog.text
    with pytest.raises(SourceError, match="mocap has no valid pose in 1 samples"):
        trajectory_from_samples([0], [[0, 0, 0]], [[0, 0, 0, 0]], "mocap")

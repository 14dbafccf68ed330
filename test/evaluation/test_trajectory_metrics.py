"""Trajectory errors; evo and known transformations are the oracles."""

import numpy as np
import pytest
from sequences import START_NS, winding_trajectory
from transforms3d.axangles import axangle2mat

from lgc_ros.errors import ConfigError, LgcError, SourceError
from lgc_ros.evaluation.trajectory_metrics import associate, evaluate_trajectory, pairs_apart
from lgc_ros.geometry.trajectory import Trajectory
from lgc_ros.sources.trajectory import read_trajectory_file, write_kitti

STEP_NS = 100_000_001


def transformed(trajectory, scale=1.0, turn=0.0, shift=(0, 0, 0)):
    """The same path in another world."""
    R = axangle2mat([1, 2, 3], turn)
    T_wc = trajectory.T_wc.copy()
    T_wc[:, :3, :3] = R @ T_wc[:, :3, :3]
    T_wc[:, :3, 3] = scale * T_wc[:, :3, 3] @ R.T + shift
    return Trajectory(trajectory.stamps_ns, T_wc)


def test_sim3_alignment_undoes_a_similarity_and_reports_its_scale():
    pytest.importorskip("evo")
    trajectory = winding_trajectory()
    errors = evaluate_trajectory(transformed(trajectory, 0.25, 0.7, (3, -1, 2)), trajectory)
    assert errors.ate_rmse_m < 1e-9
    assert errors.scale == pytest.approx(4.0)
    assert errors.rpe_trans_m < 1e-9
    assert errors.kitti_trans_percent is None


def test_se3_alignment_does_not_hide_a_scale_error():
    pytest.importorskip("evo")
    trajectory = winding_trajectory()
    errors = evaluate_trajectory(transformed(trajectory, 0.9, 0.7, (3, -1, 2)), trajectory, "se3")
    assert errors.scale == 1.0
    assert errors.ate_rmse_m > 0.3


def test_scale_alignment_pins_the_first_pose():
    pytest.importorskip("evo")
    trajectory = winding_trajectory()
    assert evaluate_trajectory(transformed(trajectory, 0.5), trajectory, "scale").ate_rmse_m < 1e-9
    rotated = transformed(trajectory, 1.0, 0.1)
    assert evaluate_trajectory(rotated, trajectory, "scale").ate_rmse_m < 1e-9


def test_without_alignment_an_offset_is_the_error():
    pytest.importorskip("evo")
    trajectory = winding_trajectory()
    errors = evaluate_trajectory(transformed(trajectory, shift=(3, 0, 4)), trajectory, "none")
    assert errors.ate_rmse_m == pytest.approx(5.0)
    np.testing.assert_allclose(errors.position_m, 5.0)


def test_kitti_drift_of_a_path_one_percent_too_long_is_one_percent():
    pytest.importorskip("evo")
    T_wc = np.tile(np.eye(4), (400, 1, 1))
    T_wc[:, 2, 3] = np.arange(400)
    trajectory = Trajectory(START_NS + STEP_NS * np.arange(400), T_wc)
    errors = evaluate_trajectory(transformed(trajectory, 1.01), trajectory, "none")
    assert errors.kitti_trans_percent == pytest.approx(1.0, rel=0.02)
    assert errors.kitti_rot_deg_per_m == pytest.approx(0.0, abs=1e-9)


def test_relative_errors_without_gaps_agree_with_evo():
    metrics = pytest.importorskip("evo.core.metrics")
    from evo.core.trajectory import PosePath3D

    truth = winding_trajectory()
    rng = np.random.default_rng(0)
    T_wc = truth.T_wc.copy()
    T_wc[:, :3, 3] += rng.normal(0, 0.02, (len(truth), 3))
    for i in range(len(truth)):
        T_wc[i, :3, :3] = T_wc[i, :3, :3] @ axangle2mat([0, 0, 1], rng.normal(0, 0.01))
    errors = evaluate_trajectory(Trajectory(truth.stamps_ns, T_wc), truth, "none")
    paths = PosePath3D(poses_se3=list(truth.T_wc)), PosePath3D(poses_se3=list(T_wc))
    for name, found in (
        ("translation_part", errors.rpe_trans_m),
        ("rotation_angle_deg", errors.rpe_rot_deg),
    ):
        frames = 10  # in a second
        theirs = metrics.RPE(metrics.PoseRelation[name], frames, all_pairs=True)
        theirs.process_data(paths)
        assert found == pytest.approx(theirs.get_statistic(metrics.StatisticsType.rmse))


def test_relative_errors_span_one_second_even_with_gaps():
    """1 % too fast at 1 m/s is 1 cm in a second, however many poses are missing."""
    pytest.importorskip("evo")
    seen = np.r_[0:25, 55:80, 200:215]
    T_wc = np.tile(np.eye(4), (len(seen), 1, 1))
    T_wc[:, 0, 3] = 0.1 * seen
    truth = Trajectory(START_NS + 100_000_000 * seen, T_wc)
    errors = evaluate_trajectory(transformed(truth, 1.01), truth, "none")
    assert errors.rpe_over == "1 s"
    assert errors.rpe_trans_m == pytest.approx(0.01)


def test_pairs_are_one_span_apart_within_half_an_interval():
    stamps_ns = np.array([0, 400, 800, 1190, 1600, 5000, 5400, 5900]) * 10**6
    assert pairs_apart(stamps_ns, 10**9) == [(0, 3), (1, 4), (2, 4), (5, 7)]
    assert pairs_apart(np.array([0, 3, 6]) * 10**9, 10**9) == []


def test_without_stamps_relative_errors_span_one_frame(tmp_path):
    pytest.importorskip("evo")
    write_kitti(tmp_path / "t.txt", winding_trajectory(20, 0.3))
    write_kitti(tmp_path / "gt.txt", winding_trajectory(20, 0.31))
    errors = evaluate_trajectory(
        read_trajectory_file(tmp_path / "t.txt"), read_trajectory_file(tmp_path / "gt.txt"), "none"
    )
    assert errors.rpe_over == "1 frame"
    assert errors.rpe_trans_m == pytest.approx(0.01)


def test_too_few_tracked_poses_are_not_blamed_on_the_clock():
    with pytest.raises(SourceError, match="only 2 poses were tracked, 3 are needed"):
        associate(winding_trajectory(2), winding_trajectory())


def test_ground_truth_is_interpolated_at_the_stamps_of_the_estimate():
    straight = np.tile(np.eye(4), (50, 1, 1))
    straight[:, 0, 3] = np.arange(50)
    truth = Trajectory(START_NS + 10_000_000 * np.arange(50), straight)
    estimate = Trajectory(truth.stamps_ns[3:40] + 2_500_000, straight[3:40])
    _, found = associate(estimate, truth)
    np.testing.assert_allclose(found.T_wc[:, 0, 3], np.arange(3, 40) + 0.25)


def test_poses_outside_the_ground_truth_are_ignored():
    truth, trajectory = winding_trajectory(30), winding_trajectory(60)
    estimate, found = associate(trajectory, truth)
    assert len(estimate) == len(found) == 30


def test_disjoint_clocks_are_reported():
    trajectory = winding_trajectory()
    other = Trajectory(trajectory.stamps_ns + 10**12, trajectory.T_wc)
    with pytest.raises(SourceError, match="same clock"):
        associate(other, trajectory)


def test_files_without_stamps_must_have_equal_length(tmp_path):
    write_kitti(tmp_path / "t.txt", winding_trajectory(20))
    with pytest.raises(SourceError, match="20 poses"):
        associate(read_trajectory_file(tmp_path / "t.txt"), winding_trajectory(21))


def test_an_unknown_alignment_is_rejected():
    with pytest.raises(ConfigError, match="sim3"):
        evaluate_trajectory(winding_trajectory(), winding_trajectory(), "affine")


@pytest.mark.parametrize("align", ["sim3", "se3", "scale"])
def test_a_drive_straight_ahead_is_aligned(align):
    """Its positions leave the rotation about the line open; evo alone refuses it."""
    pytest.importorskip("evo")
    trajectory = winding_trajectory()
    straight = trajectory.T_wc.copy()
    straight[:, :2, 3] = 0
    truth = Trajectory(trajectory.stamps_ns, straight)
    estimate = transformed(truth, 1.0 if align == "se3" else 0.25, 0.7, (3, -1, 2))
    errors = evaluate_trajectory(estimate, truth, align)
    assert errors.ate_rmse_m < 1e-9
    assert errors.scale == pytest.approx(1.0 if align == "se3" else 4.0)
    assert errors.rpe_rot_deg < 1e-5
    np.testing.assert_allclose(errors.aligned.T_wc, truth.T_wc, atol=1e-5)


def test_a_stationary_trajectory_cannot_be_aligned():
    pytest.importorskip("evo")
    trajectory = winding_trajectory()
    still = Trajectory(trajectory.stamps_ns, np.tile(np.eye(4), (len(trajectory), 1, 1)))
    with pytest.raises(LgcError, match="does not move"):
        evaluate_trajectory(still, trajectory)

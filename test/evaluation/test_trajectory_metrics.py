"""Trajectory files and errors; evo's own readers and known transformations are the oracles."""

import numpy as np
import pytest
from transforms3d.axangles import axangle2mat

from lgc_ros.errors import ConfigError, LgcError, SourceError
from lgc_ros.evaluation.trajectory_metrics import (
    PoseTrack,
    associate,
    evaluate_track,
    pairs_apart,
    read_track,
    write_kitti,
    write_tum,
)
from lgc_ros.images.frame import Frame

START_NS = 1_403_636_579_763_555_584  # a float of seconds would round it
STEP_NS = 100_000_001


def make_track(count=60, step_m=0.3):
    """A winding path; a float64 of seconds cannot hold its stamps."""
    T_wc = np.tile(np.eye(4), (count, 1, 1))
    for i in range(count):
        T_wc[i, :3, :3] = axangle2mat([0.2, 1, 0.1], 0.05 * i)
        T_wc[i, :3, 3] = step_m * i, np.sin(0.2 * i), 0.3 * np.cos(0.13 * i)
    return PoseTrack(START_NS + STEP_NS * np.arange(count), T_wc)


def transformed(track, scale=1.0, turn=0.0, shift=(0, 0, 0)):
    """The same path in another world."""
    R = axangle2mat([1, 2, 3], turn)
    T_wc = track.T_wc.copy()
    T_wc[:, :3, :3] = R @ T_wc[:, :3, :3]
    T_wc[:, :3, 3] = scale * T_wc[:, :3, 3] @ R.T + shift
    return PoseTrack(track.stamps_ns, T_wc)


def test_tum_files_keep_every_nanosecond_and_the_poses(tmp_path):
    track = make_track()
    write_tum(tmp_path / "t.txt", track)
    back = read_track(tmp_path / "t.txt")
    np.testing.assert_array_equal(back.stamps_ns, track.stamps_ns)
    np.testing.assert_allclose(back.T_wc, track.T_wc, atol=1e-8)


def test_kitti_files_keep_the_poses(tmp_path):
    track = make_track()
    write_kitti(tmp_path / "t.txt", track)
    back = read_track(tmp_path / "t.txt")
    np.testing.assert_allclose(back.T_wc, track.T_wc, atol=1e-8)
    assert not back.timed


def test_evo_reads_the_files_we_write(tmp_path):
    file_interface = pytest.importorskip("evo.tools.file_interface")
    track = make_track()
    write_tum(tmp_path / "tum.txt", track)
    write_kitti(tmp_path / "kitti.txt", track)
    tum = file_interface.read_tum_trajectory_file(tmp_path / "tum.txt")
    kitti = file_interface.read_kitti_poses_file(tmp_path / "kitti.txt")
    for theirs in (tum, kitti):
        np.testing.assert_allclose(theirs.poses_se3, track.T_wc, atol=1e-7)


@pytest.mark.parametrize("content", ["", "1 2 3\n", "1 0 0 0 0 0 x 1\n", "1 " * 11 + "nope\n"])
def test_a_file_that_is_no_trajectory_is_named(tmp_path, content):
    path = tmp_path / "t.txt"
    path.write_text(content)
    with pytest.raises(SourceError, match=r"t\.txt"):
        read_track(path)


def test_poses_are_read_from_topics_of_bags_too(tmp_path):
    pytest.importorskip("rosbags", reason="rosbags is not installed: no bags")
    from lgc_ros.sources.bag_writer import write_bag

    track, image = make_track(5), np.zeros((4, 4), np.uint8)
    poses = zip(track.stamps_ns.tolist(), track.T_wc, strict=True)
    write_bag([Frame(i, s, image, None, T) for i, (s, T) in enumerate(poses)], tmp_path / "bag")
    back = read_track(f"{tmp_path}/bag:/ground_truth")
    np.testing.assert_array_equal(back.stamps_ns, track.stamps_ns)
    np.testing.assert_allclose(back.T_wc, track.T_wc, atol=1e-12)
    with pytest.raises(SourceError, match="/ground_truth"):
        read_track(f"{tmp_path}/bag:/odometry")


def test_sim3_alignment_undoes_a_similarity_and_reports_its_scale():
    pytest.importorskip("evo")
    track = make_track()
    errors = evaluate_track(transformed(track, 0.25, 0.7, (3, -1, 2)), track)
    assert errors.ate_rmse_m < 1e-9
    assert errors.scale == pytest.approx(4.0)
    assert errors.rpe_trans_m < 1e-9
    assert errors.kitti_trans_percent is None


def test_se3_alignment_leaves_a_wrong_scale_visible():
    pytest.importorskip("evo")
    track = make_track()
    errors = evaluate_track(transformed(track, 0.9, 0.7, (3, -1, 2)), track, "se3")
    assert errors.scale == 1.0
    assert errors.ate_rmse_m > 0.3


def test_scale_alignment_takes_the_first_pose_for_granted():
    pytest.importorskip("evo")
    track = make_track()
    assert evaluate_track(transformed(track, 0.5), track, "scale").ate_rmse_m < 1e-9
    assert evaluate_track(transformed(track, 1.0, 0.1), track, "scale").ate_rmse_m < 1e-9


def test_without_alignment_an_offset_is_the_error():
    pytest.importorskip("evo")
    track = make_track()
    errors = evaluate_track(transformed(track, shift=(3, 0, 4)), track, "none")
    assert errors.ate_rmse_m == pytest.approx(5.0)
    np.testing.assert_allclose(errors.position_m, 5.0)


def test_kitti_drift_of_a_path_one_percent_too_long_is_one_percent():
    pytest.importorskip("evo")
    T_wc = np.tile(np.eye(4), (400, 1, 1))
    T_wc[:, 2, 3] = np.arange(400)
    track = PoseTrack(START_NS + STEP_NS * np.arange(400), T_wc)
    errors = evaluate_track(transformed(track, 1.01), track, "none")
    assert errors.kitti_trans_percent == pytest.approx(1.0, rel=0.02)
    assert errors.kitti_rot_deg_per_m == pytest.approx(0.0, abs=1e-9)


def test_relative_errors_without_gaps_are_those_of_evo():
    metrics = pytest.importorskip("evo.core.metrics")
    from evo.core.trajectory import PosePath3D

    truth = make_track()
    rng = np.random.default_rng(0)
    T_wc = truth.T_wc.copy()
    T_wc[:, :3, 3] += rng.normal(0, 0.02, (len(truth), 3))
    for i in range(len(truth)):
        T_wc[i, :3, :3] = T_wc[i, :3, :3] @ axangle2mat([0, 0, 1], rng.normal(0, 0.01))
    errors = evaluate_track(PoseTrack(truth.stamps_ns, T_wc), truth, "none")
    paths = PosePath3D(poses_se3=list(truth.T_wc)), PosePath3D(poses_se3=list(T_wc))
    for name, found in (
        ("translation_part", errors.rpe_trans_m),
        ("rotation_angle_deg", errors.rpe_rot_deg),
    ):
        frames = 10  # in a second
        theirs = metrics.RPE(metrics.PoseRelation[name], frames, all_pairs=True)
        theirs.process_data(paths)
        assert found == pytest.approx(theirs.get_statistic(metrics.StatisticsType.rmse))


def test_relative_errors_are_over_one_second_across_gaps_too():
    """1 % too fast at 1 m/s is 1 cm in a second, however many poses are missing."""
    pytest.importorskip("evo")
    seen = np.r_[0:25, 55:80, 200:215]
    T_wc = np.tile(np.eye(4), (len(seen), 1, 1))
    T_wc[:, 0, 3] = 0.1 * seen
    truth = PoseTrack(START_NS + 100_000_000 * seen, T_wc)
    errors = evaluate_track(transformed(truth, 1.01), truth, "none")
    assert errors.rpe_over == "1 s"
    assert errors.rpe_trans_m == pytest.approx(0.01)


def test_pairs_are_apart_by_time_give_or_take_half_an_interval():
    stamps_ns = np.array([0, 400, 800, 1190, 1600, 5000, 5400, 5900]) * 10**6
    assert pairs_apart(stamps_ns, 10**9) == [(0, 3), (1, 4), (2, 4), (5, 7)]
    assert pairs_apart(np.array([0, 3, 6]) * 10**9, 10**9) == []


def test_without_stamps_relative_errors_are_over_one_frame(tmp_path):
    pytest.importorskip("evo")
    write_kitti(tmp_path / "t.txt", make_track(20, 0.3))
    write_kitti(tmp_path / "gt.txt", make_track(20, 0.31))
    errors = evaluate_track(
        read_track(tmp_path / "t.txt"), read_track(tmp_path / "gt.txt"), "none"
    )
    assert errors.rpe_over == "1 frame"
    assert errors.rpe_trans_m == pytest.approx(0.01)


def test_too_few_poses_are_not_blamed_on_the_clock():
    with pytest.raises(SourceError, match="only 2 poses were tracked, 3 are needed"):
        associate(make_track(2), make_track())


def test_truth_is_interpolated_at_the_stamps_of_the_estimate():
    straight = np.tile(np.eye(4), (50, 1, 1))
    straight[:, 0, 3] = np.arange(50)
    truth = PoseTrack(START_NS + 10_000_000 * np.arange(50), straight)
    estimate = PoseTrack(truth.stamps_ns[3:40] + 2_500_000, straight[3:40])
    _, found = associate(estimate, truth)
    np.testing.assert_allclose(found.T_wc[:, 0, 3], np.arange(3, 40) + 0.25)


def test_estimates_outside_of_the_truth_do_not_count():
    truth, track = make_track(30), make_track(60)
    estimate, found = associate(track, truth)
    assert len(estimate) == len(found) == 30


def test_clocks_that_never_meet_are_reported():
    track = make_track()
    other = PoseTrack(track.stamps_ns + 10**12, track.T_wc)
    with pytest.raises(SourceError, match="same clock"):
        associate(other, track)


def test_files_without_stamps_must_have_equal_length(tmp_path):
    write_kitti(tmp_path / "t.txt", make_track(20))
    with pytest.raises(SourceError, match="20 poses"):
        associate(read_track(tmp_path / "t.txt"), make_track(21))


def test_an_unknown_alignment_is_refused():
    with pytest.raises(ConfigError, match="sim3"):
        evaluate_track(make_track(), make_track(), "affine")


def test_a_trajectory_that_stands_still_cannot_be_scaled():
    pytest.importorskip("evo")
    track = make_track()
    still = PoseTrack(track.stamps_ns, np.tile(np.eye(4), (len(track), 1, 1)))
    with pytest.raises(LgcError, match="may not move"):
        evaluate_track(still, track)

"""The folder of results: complete, consistent, reproducible, and nothing left after a failure."""

import csv
import json
from dataclasses import replace

import cv2
import numpy as np
import pytest
from runs import OPTIONS, RESULTS, Frames

from lgc_ros.errors import ConfigError, LgcError
from lgc_ros.evaluation.results import results_folder, write_run
from lgc_ros.evaluation.runner import run_odometry
from lgc_ros.odometry.profiles import load_profile
from lgc_ros.sources.trajectory import read_trajectory_file


def test_a_run_writes_the_documented_files(finished_run, tmp_path):
    write_run(tmp_path / "run", finished_run)
    assert {path.name for path in (tmp_path / "run").iterdir()} == RESULTS


def test_the_files_agree_with_the_states(short_walk, finished_run, tmp_path):
    write_run(tmp_path, finished_run)
    known = [0, *(i for i in range(1, len(short_walk)) if finished_run.states[i].tracked)]
    tum = read_trajectory_file(tmp_path / "trajectory_tum.txt")
    assert tum.stamps_ns.tolist() == [short_walk[i].stamp_ns for i in known]
    np.testing.assert_allclose(tum.T_wc, [finished_run.states[i].T_wc for i in known], atol=1e-6)
    kitti = read_trajectory_file(tmp_path / "trajectory_kitti.txt")
    np.testing.assert_allclose(
        kitti.T_wc, [state.T_wc for state in finished_run.states], atol=1e-7
    )
    with (tmp_path / "states.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["stamp_ns"]) for row in rows] == [frame.stamp_ns for frame in short_walk]
    assert [row["status"] for row in rows] == [state.status for state in finished_run.states]
    assert cv2.imread(str(tmp_path / "trajectory.png")).shape[0] > 800


def test_the_settings_of_a_run_can_be_reused(finished_run, tmp_path):
    write_run(tmp_path, finished_run)
    assert load_profile(tmp_path / "config.yaml") == OPTIONS


def test_without_ground_truth_everything_but_errors_is_written(short_walk, tmp_path):
    blind = Frames(replace(frame, T_wc=None) for frame in short_walk[:6])
    run = run_odometry(blind, OPTIONS)
    write_run(tmp_path, run)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["ate_rmse_m"] is None
    assert metrics["frames"] == 6
    assert {path.name for path in tmp_path.iterdir()} == RESULTS


def test_equal_runs_write_identical_files(short_walk, finished_run, tmp_path):
    write_run(tmp_path / "a", finished_run)
    write_run(tmp_path / "b", run_odometry(short_walk, OPTIONS))
    for name in ("trajectory_tum.txt", "trajectory_kitti.txt", "states.csv", "config.yaml"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_latest_links_to_the_newest_results_once_they_are_complete(tmp_path):
    with results_folder(None, "walk", tmp_path) as first:
        assert not (tmp_path / "latest").exists()
    with results_folder(None, "walk", tmp_path) as second:
        assert (tmp_path / "latest").resolve() == first.resolve()
    assert first != second
    assert (tmp_path / "latest").resolve() == second.resolve()


def test_a_failed_run_leaves_no_empty_folder_and_keeps_latest(tmp_path):
    with results_folder(None, "walk", tmp_path) as good:
        (good / "trajectory_tum.txt").write_text("")
    with pytest.raises(ConfigError), results_folder(None, "walk", tmp_path):
        run_odometry([], replace(OPTIONS, method="magic"))
    assert {path.name for path in tmp_path.iterdir()} == {good.name, "latest"}
    assert (tmp_path / "latest").resolve() == good.resolve()


def test_a_failed_first_run_leaves_nothing(tmp_path):
    with pytest.raises(LgcError), results_folder(tmp_path / "new" / "out", "walk"):
        raise LgcError
    with pytest.raises(LgcError), results_folder(None, "walk", tmp_path / "results"):
        raise LgcError
    assert not any(tmp_path.iterdir())


def test_an_existing_folder_is_not_removed(tmp_path):
    with pytest.raises(LgcError), results_folder(tmp_path, "walk"):
        raise LgcError
    assert tmp_path.is_dir()

"""`lgc evaluate`: pairs, trajectories and bags."""

import json
from dataclasses import replace

import numpy as np
import pytest
from runs import SETTINGS

from lgc_ros.evaluation.results import write_run
from lgc_ros.evaluation.runner import METRICS
from lgc_ros.geometry.trajectory import Trajectory
from lgc_ros.sources.trajectory import write_trajectory


def test_evaluate_pairs_prints_a_table_and_reports_a_malformed_line(lgc, views, tmp_path):
    K = "500 0 319.5 0 500 239.5 0 0 1"
    pose = " ".join(str(v) for v in np.loadtxt(views / "T_10.txt").ravel())
    line = f"image0.png image1.png 0 0 {K} {K} {pose}"
    (tmp_path / "pairs.txt").write_text(f"{line}\nimage0.png image1.png 0 0 1 2 3\n")
    base = "evaluate", "pairs", tmp_path, "--images", views, "--method", "poselib+ratio"
    code, printed = lgc(*base)
    assert code == 1
    assert "line 2" in printed
    assert "--skip-bad" in printed
    code, printed = lgc(*base, "--skip-bad", "--json", tmp_path / "r.json")
    assert code == 0
    assert "poselib+ratio" in printed
    results = json.loads((tmp_path / "r.json").read_text())["methods"]["poselib+ratio"]
    assert set(results["map"]) == set(results["auc"]) == {"5", "10", "20"}
    assert {"features", "match", "filter", "estimate", "total"} == set(results["ms"])


def test_scores_of_pairs_are_printed_even_if_they_cannot_be_written(lgc, views, tmp_path):
    K = "500 0 319.5 0 500 239.5 0 0 1"
    pose = " ".join(str(v) for v in np.loadtxt(views / "T_10.txt").ravel())
    (tmp_path / "pairs.txt").write_text(f"image0.png image1.png 0 0 {K} {K} {pose}\n")
    arguments = ("--images", views, "--method", "poselib+ratio", "--json", "/dev/full")
    code, said = lgc("evaluate", "pairs", tmp_path, *arguments)
    assert code == 1
    assert "cannot write /dev/full: the disk is full" in said
    assert "poselib+ratio" in said


def test_existing_results_of_pairs_are_replaced_only_with_force(lgc, views, tmp_path):
    K = "500 0 319.5 0 500 239.5 0 0 1"
    pose = " ".join(str(v) for v in np.loadtxt(views / "T_10.txt").ravel())
    (tmp_path / "pairs.txt").write_text(f"image0.png image1.png 0 0 {K} {K} {pose}\n")
    out = tmp_path / "out"
    arguments = ("evaluate", "pairs", tmp_path, "--images", views, "--out", out)
    assert lgc(*arguments, "--method", "poselib+ratio")[0] == 0
    before = (out / "errors.csv").read_text()
    code, printed = lgc(*arguments, "--method", "ransac+ratio")
    assert code == 1
    assert "already holds results" in printed
    assert (out / "errors.csv").read_text() == before
    code, printed = lgc(*arguments, "--method", "ransac+ratio", "--force")
    assert code == 0, printed
    assert (out / "errors.csv").read_text().startswith("image0,image1,ransac+ratio\n")


def test_evaluate_trajectory_draws_the_errors(invoke, tum_folder, finished_run, tmp_path):
    write_run(tmp_path, finished_run)
    files = tmp_path / "trajectory_tum.txt", tum_folder / "groundtruth.txt"
    plot = ("--plot", tmp_path / "errors.png", "--plane", "xz")
    result = invoke("evaluate", "trajectory", *files, *plot)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "errors.png").stat().st_size > 1000


def test_evaluate_trajectory_says_how_much_of_the_ground_truth_is_covered(
    invoke, tum_folder, finished_run, tmp_path
):
    whole, path = finished_run.trajectory, tmp_path / "part.txt"
    missing = np.isin(np.arange(len(whole)), (3, 4, 9, 10, 11, 12, 13))
    write_trajectory(path, whole.without(missing))
    seconds = 1e-9 * (whole.stamps_ns - whole.stamps_ns[0])
    covered = seconds[2] + seconds[8] - seconds[5]
    result = invoke("evaluate", "trajectory", path, tum_folder / "groundtruth.txt")
    assert f"the poses cover {covered:.1f} of {seconds[-1]:.1f} s" in result.output


def test_evaluate_trajectory_prints_and_writes_errors(invoke, tum_folder, finished_run, tmp_path):
    pytest.importorskip("evo")
    write_run(tmp_path, finished_run)
    result = invoke(
        "evaluate",
        "trajectory",
        tmp_path / "trajectory_tum.txt",
        tum_folder / "groundtruth.txt",
        "--json",
        tmp_path / "errors.json",
    )
    assert result.exit_code == 0, result.output
    errors = json.loads((tmp_path / "errors.json").read_text())
    assert errors["ate_rmse_m"] == pytest.approx(finished_run.errors.ate_rmse_m, abs=1e-6)
    assert errors["path_m"] == pytest.approx(finished_run.errors.truth.length_m, abs=1e-6)
    assert errors["rpe_over"] == "1 s"
    assert "ATE" in result.output
    assert "RPE over 1 s" in result.output


def test_held_poses_of_a_recording_are_counted_and_left_out_on_request(
    invoke, tum_folder, finished_run, tmp_path
):
    """A node publishes its last pose again while it is lost; `lgc run` writes no pose then."""
    tracked, path = finished_run.trajectory, tmp_path / "live.txt"
    held = Trajectory(tracked.stamps_ns, tracked.T_wc.copy())
    held.T_wc[6:9] = held.T_wc[5]
    write_trajectory(path, held)
    arguments = ("evaluate", "trajectory", path, tum_folder / "groundtruth.txt")
    errors = {}
    for option in ((), ("--skip-held",)):
        json_file = tmp_path / "errors.json"
        result = invoke(*arguments, *option, "--json", json_file)
        assert result.exit_code == 0, result.output
        assert "3 poses repeat the one before" in result.output
        errors[option] = json.loads(json_file.read_text())
    assert [found["held"] for found in errors.values()] == [3, 3]
    assert [found["poses"] for found in errors.values()] == [len(tracked), len(tracked) - 3]
    assert errors["--skip-held",]["ate_rmse_m"] < errors[()]["ate_rmse_m"]


def test_evaluate_trajectory_reports_files_without_stamps(invoke, finished_run, tmp_path):
    pytest.importorskip("evo")
    write_run(tmp_path, finished_run)
    file = tmp_path / "trajectory_kitti.txt"
    result = invoke("evaluate", "trajectory", file, file, "--json", tmp_path / "errors.json")
    assert "RPE over 1 frame" in result.output
    assert json.loads((tmp_path / "errors.json").read_text())["rpe_over"] == "1 frame"


def test_evaluate_bag_compares_methods(invoke, short_walk, tmp_path):
    pytest.importorskip("rosbags")
    from lgc_ros.sources.bag_writer import write_bag

    write_bag(short_walk, tmp_path / "bag")
    methods = ("poselib+ratio", "ransac+ratio")
    chosen = [word for method in methods for word in ("--method", method)]
    target = ("--out", tmp_path / "out", "--json", tmp_path / "bag.json")
    result = invoke("evaluate", "bag", tmp_path / "bag", *chosen, *target, *SETTINGS)
    assert result.exit_code == 0, result.output
    results = json.loads((tmp_path / "bag.json").read_text())
    assert results["methods"].keys() == set(methods)
    for metrics in results["methods"].values():
        assert metrics.keys() >= set(METRICS)
        assert metrics["frames"] == len(short_walk)
        assert metrics["ate_rmse_m"] is not None
    assert "no ground truth" not in result.output


def test_evaluate_bag_warns_about_missing_ground_truth(invoke, short_walk, tmp_path):
    pytest.importorskip("rosbags")
    from lgc_ros.sources.bag_writer import write_bag

    write_bag([replace(frame, T_wc=None) for frame in short_walk[:3]], tmp_path / "bag")
    result = invoke(
        "evaluate", "bag", tmp_path / "bag", "--profile", "fast", "--out", tmp_path / "o"
    )
    assert result.exit_code == 0, result.output
    assert "no ground truth, so no errors: give --gt" in result.output

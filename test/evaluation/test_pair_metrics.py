"""Scores as defined in the literature."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import as_correspondences, random_scene

from lgc_ros.errors import DatasetError
from lgc_ros.estimation.two_view import RelativePoseSolver
from lgc_ros.evaluation.pair_metrics import (
    NO_POSE_ERROR_DEG,
    area_under_curve,
    evaluate_pairs,
    feature_kind,
    mean_average_precision,
    read_pose,
    score_result,
    summarize,
    write_pair_report,
)
from lgc_ros.evaluation.pairs import Pair, format_pair
from lgc_ros.features.base import make_extractor
from lgc_ros.images.frame import read_image
from lgc_ros.visualization.matches import write_image

angles = st.lists(st.floats(0, 180), min_size=1, max_size=40)


def test_map_is_the_mean_precision_over_multiples_of_five_degrees():
    # 2 of 4 within 5, 2 within 10, 3 within 15, 3 within 20 degrees.
    scores = mean_average_precision([1, 4, 12, 90])
    assert scores == pytest.approx({5: 0.5, 10: 0.5, 20: (0.5 + 0.5 + 0.75 + 0.75) / 4})


@given(angles)
def test_auc_is_the_area_under_the_interpolated_recall_curve(errors):
    for threshold, area in area_under_curve(errors).items():
        known = sorted(error for error in errors if error < threshold)
        x = np.linspace(0, threshold, 20001)
        corners_x = [0.0, *known]
        corners_y = [k / len(errors) for k in range(len(known) + 1)]
        y = np.interp(x, corners_x, corners_y)
        assert area == pytest.approx(np.mean((y[1:] + y[:-1]) / 2), abs=2e-3)


@given(angles)
def test_scores_are_in_0_to_1_and_grow_with_the_threshold(errors):
    for score in (mean_average_precision(errors), area_under_curve(errors)):
        assert 0 <= score[5] <= score[10] + 1e-12 <= score[20] + 2e-12 <= 1 + 3e-12


def test_no_pairs_give_a_score_of_zero():
    assert mean_average_precision([]) == {5: 0, 10: 0, 20: 0}
    assert area_under_curve([]) == {5: 0, 10: 0, 20: 0}


def test_precision_and_recall_are_those_of_the_kept_matches():
    scene = random_scene(0, 60)
    wrong = np.random.default_rng(0).uniform(-0.5, 0.5, (2, 20, 2))
    matches = as_correspondences(np.vstack([scene.x0, wrong[0]]), np.vstack([scene.x1, wrong[1]]))
    score = score_result(RelativePoseSolver("poselib")(matches), scene.R_10, scene.t_10)
    assert score.error_deg < 0.01
    assert score.inlier_recall > 0.95
    assert score.precision == score.inlier_precision > 0.9


def test_a_pair_without_a_pose_has_the_maximum_error():
    scene = random_scene(0)
    result = RelativePoseSolver("ransac")(as_correspondences(scene.x0[:3], scene.x1[:3]))
    score = score_result(result, scene.R_10, scene.t_10)
    assert score.error_deg == NO_POSE_ERROR_DEG
    assert summarize([score])["map"] == {"5": 0, "10": 0, "20": 0}


@pytest.fixture(scope="module")
def pair_set(walk, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    frames = [walk[k] for k in (10, 16, 22)]
    for frame in frames:
        write_image(folder / "images" / f"{frame.index}.png", frame.image)
    lines = []
    for a, b in ((0, 1), (1, 2), (0, 2)):
        T_10 = np.linalg.inv(frames[b].T_wc) @ frames[a].T_wc
        names = f"{frames[a].index}.png", f"{frames[b].index}.png"
        K = frames[a].camera.K
        lines.append(format_pair(Pair(1, *names, 0, 0, K, K, T_10[:3, :3], T_10[:3, 3])))
    (folder / "pairs.txt").write_text("\n".join(lines))
    return folder


def test_methods_are_scored_on_the_same_pairs(pair_set, tmp_path):
    solvers = {name: RelativePoseSolver(name, device="cpu") for name in ("cn", "poselib+ratio")}
    seen = []
    scores = evaluate_pairs(pair_set, solvers, progress=lambda *state: seen.append(state))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    for name in solvers:
        summary = summarize(scores[name])
        assert summary["pairs"] == 3
        assert summary["map"]["10"] > 0.6
        assert 0 < summary["precision"] <= 1
        stages = {"features", "match", "filter", "estimate", "total"}
        assert set(summary["ms"]) == stages
        json.dumps(summary)
    write_pair_report(tmp_path, scores)
    assert (tmp_path / "accuracy.png").stat().st_size > 1000
    assert (tmp_path / "errors.csv").read_text().splitlines()[0] == "cn,poselib+ratio"


def test_stored_features_give_the_same_scores_as_extracted_ones(pair_set, tmp_path):
    h5py = pytest.importorskip("h5py")
    extract = make_extractor("sift", 500)
    for path in (pair_set / "images").iterdir():
        found = extract(read_image(path))
        (tmp_path / path.name).symlink_to(path)
        with h5py.File(tmp_path / f"{path.name}.sift-500.hdf5", "w") as file:
            file["keypoints"] = np.column_stack([found.points, found.sizes, found.angles])
            file["descriptors"] = found.descriptors
    features = "stored:.sift-500.hdf5"
    assert feature_kind(features) == "sift"
    assert feature_kind("stored:.desc.h5") == "lift"
    solver = {"m": RelativePoseSolver("poselib+ratio")}
    extracted = evaluate_pairs(pair_set, solver, max_keypoints=500)["m"]
    stored = evaluate_pairs(pair_set, solver, features=features, images=tmp_path)["m"]
    assert [s.error_deg for s in stored] == [s.error_deg for s in extracted]


def test_limit_bounds_the_number_of_pairs(pair_set):
    scores = evaluate_pairs(pair_set, {"m": RelativePoseSolver("poselib+ratio")}, limit=2)
    assert len(scores["m"]) == 2


def test_a_missing_image_is_reported_with_its_line_or_skipped(pair_set, tmp_path):
    lines = (pair_set / "pairs.txt").read_text().splitlines()
    (tmp_path / "pairs.txt").write_text(
        "\n".join([lines[0], lines[1].replace("16.png", "no.png", 1)])
    )
    arguments = {"images": pair_set / "images"}
    with pytest.raises(DatasetError, match=r"line 2: .*no\.png"):
        evaluate_pairs(tmp_path, {"m": RelativePoseSolver("poselib")}, **arguments)
    scores = evaluate_pairs(
        tmp_path, {"m": RelativePoseSolver("poselib")}, skip_bad=True, **arguments
    )
    assert len(scores["m"]) == 1


def test_a_pose_file_must_hold_a_finite_matrix(tmp_path):
    path = tmp_path / "T.txt"
    np.savetxt(path, np.eye(4))
    R, t = read_pose(path)
    assert np.array_equal(R, np.eye(3))
    assert np.array_equal(t, np.zeros(3))
    for content in ("1 2 3", "a b", "nan " * 16):
        path.write_text(content)
        with pytest.raises(DatasetError, match=r"T\.txt"):
            read_pose(path)


def test_the_filter_beats_ransac_on_real_pairs(data_dir, tmp_path):
    from training.data.readers import READERS
    from training.pairs import write_pairs

    scene = READERS["raw"](data_dir / "posed" / "castle" / "val", visibility_above=49)
    write_pairs([scene], tmp_path, limit=5)
    solvers = {name: RelativePoseSolver(name, device="cpu") for name in ("cn", "ransac")}
    scores = {k: summarize(v) for k, v in evaluate_pairs(tmp_path, solvers).items()}
    assert scores["cn"]["pairs"] == 5
    assert scores["cn"]["map"]["5"] > max(0.7, scores["ransac"]["map"]["5"])
    assert scores["cn"]["recall"] > 0.7

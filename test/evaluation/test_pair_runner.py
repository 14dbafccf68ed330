"""Methods scored on the pairs of a folder."""

import csv
import json

import numpy as np
import pytest

from lgc_ros.errors import DatasetError
from lgc_ros.estimation.two_view import RelativePoseSolver
from lgc_ros.evaluation.pair_metrics import summarize
from lgc_ros.evaluation.pair_runner import evaluate_pairs, feature_kind, write_pair_results
from lgc_ros.evaluation.pairs import Pair, format_pair
from lgc_ros.features.base import make_extractor
from lgc_ros.images.frame import read_image
from lgc_ros.visualization.matches import write_image


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
    results = evaluate_pairs(pair_set, solvers, progress=lambda *state: seen.append(state))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    for name in solvers:
        summary = summarize(results.scores[name])
        assert summary["pairs"] == 3
        assert summary["map"]["10"] > 0.6
        assert 0 < summary["precision"] <= 1
        stages = {"features", "match", "filter", "estimate", "total"}
        assert set(summary["ms"]) == stages
        json.dumps(summary)
    write_pair_results(tmp_path, {}, results)
    assert (tmp_path / "accuracy.png").stat().st_size > 1000


def test_errors_are_listed_with_the_names_of_the_images(pair_set, tmp_path):
    results = evaluate_pairs(pair_set, {"m": RelativePoseSolver("poselib+ratio")})
    write_pair_results(tmp_path, {}, results)
    heading, *rows = csv.reader((tmp_path / "errors.csv").read_text().splitlines())
    assert heading == ["image0", "image1", "m"]
    named = [line.split()[:2] for line in (pair_set / "pairs.txt").read_text().splitlines()]
    assert [row[:2] for row in rows] == named
    assert [float(row[2]) for row in rows] == pytest.approx(
        [score.error_deg for score in results.scores["m"]], abs=1e-4
    )


def test_ctrl_c_keeps_the_pairs_evaluated_so_far(pair_set):
    calls = []

    def solve_twice(correspondences):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return RelativePoseSolver("poselib+ratio")(correspondences)

    results = evaluate_pairs(pair_set, {"m": solve_twice})
    assert results.interrupted
    assert len(results.pairs) == len(results.scores["m"]) == 2


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
    extracted = evaluate_pairs(pair_set, solver, max_keypoints=500).scores["m"]
    stored = evaluate_pairs(pair_set, solver, features=features, images=tmp_path).scores["m"]
    assert [s.error_deg for s in stored] == [s.error_deg for s in extracted]


def test_learned_features_come_from_the_extractor_model(pair_set, heads_model):
    solvers = {"poselib+ratio": RelativePoseSolver("poselib+ratio", "own")}
    done = evaluate_pairs(pair_set, solvers, features="own", extractor_model=heads_model())
    assert len(done.scores["poselib+ratio"]) == 3


def test_xfeat_and_its_filter_find_the_poses(pair_set, data_dir):
    model = data_dir / "weights" / "xfeat" / "xfeat_480x640_gray_heads.onnx"
    if not model.is_file():
        pytest.skip(f"{model} does not exist: no weights of XFeat")
    solvers = {"cn": RelativePoseSolver("cn", "xfeat", device="cpu")}
    done = evaluate_pairs(pair_set, solvers, features="xfeat", extractor_model=model)
    assert summarize(done.scores["cn"])["map"]["10"] > 0.6


def test_limit_bounds_the_number_of_pairs(pair_set):
    scores = evaluate_pairs(pair_set, {"m": RelativePoseSolver("poselib+ratio")}, limit=2).scores
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
    ).scores
    assert len(scores["m"]) == 1


@pytest.mark.slow
def test_the_filter_beats_ransac_on_real_pairs(data_dir, tmp_path):
    from training.data.readers import READERS
    from training.pairs import write_pairs

    scene = READERS["raw"](data_dir / "posed" / "castle" / "val", visibility_above=49)
    write_pairs([scene], tmp_path, limit=5)
    solvers = {name: RelativePoseSolver(name, device="cpu") for name in ("cn", "ransac")}
    scores = {k: summarize(v) for k, v in evaluate_pairs(tmp_path, solvers).scores.items()}
    assert scores["cn"]["pairs"] == 5
    assert scores["cn"]["map"]["5"] > max(0.7, scores["ransac"]["map"]["5"])
    assert scores["cn"]["recall"] > 0.7

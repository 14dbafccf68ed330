"""`python -m training evaluate`: every method on the same pairs, wherever they come from."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

import training.evaluate
from lgc_ros.errors import ConfigError, DatasetError, LgcError
from lgc_ros.estimation.two_view import RelativePoseSolver
from lgc_ros.evaluation.pair_metrics import summarize
from lgc_ros.evaluation.pair_runner import evaluate_pairs
from lgc_ros.filter.checkpoint import ModelInfo, save_checkpoint
from lgc_ros.filter.network import CorrespondenceNetwork, NetworkConfig
from lgc_ros.geometry.camera import Camera
from training.__main__ import main
from training.data.dump import write_dump
from training.data.scene import PosedImage, PosedScene
from training.data.simulation import simulate_pair
from training.evaluate import EvaluateConfig, evaluate, make_evaluate_config
from training.pairs import write_pairs
from training.predicted_poses import read_poses


class Wall:
    """Loads a view of a textured wall, 4 m away."""

    def __init__(self, K, R_cw, t_cw):
        self.K, self.R_cw, self.t_cw = K, R_cw, t_cw

    def __call__(self):
        noise = np.random.default_rng(1).integers(0, 256, (400, 600), dtype=np.uint8)
        texture = cv2.normalize(
            cv2.GaussianBlur(noise, (0, 0), 1.5), None, 0, 255, cv2.NORM_MINMAX
        )
        wall = np.array([[0.01, 0, -3], [0, 0.01, -2], [0, 0, 4.0]])
        H = self.K @ (self.R_cw @ wall + np.outer(self.t_cw, [0, 0, 1]))
        return cv2.warpPerspective(texture, H, (240, 180))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three pairs of views of a wall, in SuperGlue's format."""
    path = tmp_path_factory.mktemp("sets") / "wall"
    K = np.array([[200.0, 0, 119.5], [0, 200, 89.5], [0, 0, 1]])
    images = []
    for i in range(3):
        R_cw = cv2.Rodrigues(np.array([0.02 * i, -0.05 * i, 0.04 * i]))[0]
        t_cw = -R_cw @ np.array([0.3 * i, 0.1 * (i % 2), 0.1 * i])
        camera = Camera.from_K(K, 240, 180)
        images.append(PosedImage(f"{i}.png", camera, R_cw, t_cw, Wall(K, R_cw, t_cw)))
    write_pairs([PosedScene("wall", tuple(images), np.array([[0, 1], [0, 2], [1, 2]]))], path)
    return path


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    """Two sequences of simulated pairs, most of whose matches are true."""
    path = tmp_path_factory.mktemp("dumps") / "simulated.hdf5"
    pairs = (simulate_pair(np.random.default_rng(seed), 200) for seed in range(200))
    clear = [pair for pair in pairs if (pair.ys < 1e-4).mean() > 0.45][:5]
    write_dump(path, clear)
    manifest = {
        "pair_sequence": ["hall", "hall", "yard", "yard", "yard"],
        "pair_images": [[f"{i}.png", f"{i + 1}.png"] for i in range(5)],
        "config": {"features": {"name": "sift", "max_keypoints": 200}},
    }
    path.with_suffix(".json").write_text(json.dumps(manifest))
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Untrained models of both kinds."""
    folder = tmp_path_factory.mktemp("models")
    for head in ("weights", "direct"):
        network = NetworkConfig(blocks=1, width=8, head=head)
        info = ModelInfo(head, "sift", network, training={"config": {"loss": head}})
        save_checkpoint(folder / f"{head}.safetensors", CorrespondenceNetwork(network), info)
    return {head: str(folder / f"{head}.safetensors") for head in ("weights", "direct")}


@pytest.fixture
def in_this_process(monkeypatch):
    """Tasks run here: starting processes is tested once, and with `prepare`."""

    @contextmanager
    def executor(workers, scheduler):
        with ThreadPoolExecutor(1) as pool:
            yield pool

    monkeypatch.setattr(training.evaluate, "task_executor", executor)


def run(config, out, **options):
    return json.loads(evaluate(config, out, **options).read_text())


def without_time(scores):
    return {key: value for key, value in scores.items() if key != "ms"}


@pytest.mark.usefixtures("in_this_process")
def test_a_folder_is_scored_as_the_library_does(folder, tmp_path):
    methods = ("ransac", "ransac+ratio")
    config = EvaluateConfig({"known": [str(folder)]}, methods, keypoints=(100, 150))
    results = run(config, tmp_path)
    assert {r["sequence"] for r in results["records"]} == {"wall"}
    assert {r["group"] for r in results["records"]} == {"known"}
    for keypoints in (100, 150):
        expected = evaluate_pairs(
            folder, {m: RelativePoseSolver(m) for m in methods}, max_keypoints=keypoints
        ).scores
        for method in methods:
            [record] = [
                r
                for r in results["records"]
                if (r["method"], r["keypoints"]) == (method, keypoints)
            ]
            assert record["model"] is None
            assert without_time(record["scores"]) == without_time(summarize(expected[method]))
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


@pytest.mark.usefixtures("in_this_process")
def test_a_learned_extractor_is_read_from_its_file(folder, heads_model, tmp_path, monkeypatch):
    model = heads_model(trackable=True, contrast=100.0)
    monkeypatch.setenv("EXTRACTOR", str(model))
    config = EvaluateConfig(
        {"known": [str(folder)]},
        ("poselib+ratio",),
        features="own",
        keypoints=(150,),
        extractor_model="${EXTRACTOR}",
    )
    results = run(config, tmp_path / "out")
    expected = evaluate_pairs(
        folder,
        {"poselib+ratio": RelativePoseSolver("poselib+ratio", "own")},
        features="own",
        max_keypoints=150,
        extractor_model=model,
    ).scores
    [record] = results["records"]
    assert record["features"] == "own"
    assert without_time(record["scores"]) == without_time(summarize(expected["poselib+ratio"]))
    assert results["config"]["extractor_model"] == str(model)


@pytest.mark.usefixtures("in_this_process")
def test_a_dump_is_scored_by_the_sequences_its_manifest_names(dump, tmp_path):
    config = EvaluateConfig({"unknown": [str(dump)]}, ("ransac", "poselib"), keypoints=(500,))
    records = run(config, tmp_path)["records"]
    pairs = {(r["sequence"], r["method"]): r["scores"]["pairs"] for r in records}
    assert pairs == {
        ("hall", "ransac"): 2,
        ("hall", "poselib"): 2,
        ("yard", "ransac"): 3,
        ("yard", "poselib"): 3,
    }
    assert {r["keypoints"] for r in records} == {200}
    assert np.mean([r["scores"]["precision"] for r in records]) > 0.7


@pytest.mark.usefixtures("in_this_process")
def test_a_group_may_hold_a_sequence_at_several_numbers_of_keypoints(dump, tmp_path):
    fewer = tmp_path / "fewer.hdf5"
    fewer.write_bytes(dump.read_bytes())
    manifest = json.loads(dump.with_suffix(".json").read_text())
    manifest["config"]["features"]["max_keypoints"] = 100
    fewer.with_suffix(".json").write_text(json.dumps(manifest))
    config = EvaluateConfig({"known": [str(dump), str(fewer)]}, ("ransac+ratio",), limit=1)
    found = {(r["sequence"], r["keypoints"]) for r in run(config, tmp_path)["records"]}
    assert found == {("hall", 100), ("hall", 200), ("yard", 100), ("yard", 200)}


@pytest.mark.usefixtures("in_this_process")
def test_models_are_compared_under_their_names(dump, models, tmp_path):
    config = EvaluateConfig(
        {"all": [str(dump)]}, ("cn-8pt", "ransac"), models={"a": models["weights"], **models}
    )
    results = run(config, tmp_path)
    combinations = {(r["method"], r["model"]) for r in results["records"]}
    assert combinations == {
        ("ransac", None),
        ("cn-8pt", "a"),
        ("cn-8pt", "weights"),
        ("direct", "direct"),
    }
    assert results["models"]["direct"]["network"]["head"] == "direct"
    assert results["models"]["a"]["training"]["config"]["loss"] == "weights"


def write_poses(path, folder, lines=slice(None)):
    """The true poses of the pairs of a folder, as another program would write them."""
    rows = []
    for line in (folder / "pairs.txt").read_text().splitlines()[lines]:
        fields = line.split()
        T_10 = np.array(fields[22:], float).reshape(4, 4)
        values = [*T_10[:3, :3].ravel(), *(5 * T_10[:3, 3])]
        rows.append(" ".join([*fields[:2], *(repr(float(v)) for v in values)]))
    path.write_text("# DeMoN\n" + "\n".join(rows) + "\n")
    return str(path)


@pytest.mark.usefixtures("in_this_process")
def test_poses_of_other_programs_are_scored_in_the_same_table(folder, dump, tmp_path):
    poses = {
        "perfect": write_poses(tmp_path / "all.txt", folder),
        "partial": write_poses(tmp_path / "some.txt", folder, slice(1)),
    }
    config = EvaluateConfig({"all": [str(folder), str(dump)]}, ("ransac",), poses=poses)
    records = run(config, tmp_path / "out")["records"]
    scores = {(r["sequence"], r["method"]): r["scores"] for r in records}
    assert scores["wall", "perfect"]["map"] == {"5": 1, "10": 1, "20": 1}
    assert scores["wall", "partial"]["map"]["20"] == pytest.approx(1 / 3)
    assert scores["wall", "partial"]["pairs"] == scores["wall", "ransac"]["pairs"] == 3
    assert ("hall", "perfect") not in scores


@pytest.mark.usefixtures("in_this_process")
def test_poses_are_found_for_the_pairs_of_a_dump(dump, tmp_path):
    from training.data.dump import Dump

    pairs = Dump(dump)
    rows = [
        " ".join(
            map(
                str, [f"yard/{i}.png", f"yard/{i + 1}.png", *pairs[i].R_10.ravel(), *pairs[i].t_10]
            )
        )
        for i in (2, 3, 4)
    ]
    (tmp_path / "poses.txt").write_text("\n".join(rows))
    poses = {"outside": str(tmp_path / "poses.txt")}
    records = run(EvaluateConfig({"all": str(dump)}, ("ransac",), poses=poses), tmp_path)[
        "records"
    ]
    [outside] = [r for r in records if r["method"] == "outside"]
    assert (outside["sequence"], outside["scores"]["map"]["5"]) == ("yard", 1)


@pytest.mark.usefixtures("in_this_process")
def test_an_interrupted_evaluation_resumes(folder, dump, tmp_path):
    broken = tmp_path / "broken"
    (broken / "images").mkdir(parents=True)
    (broken / "pairs.txt").write_text((folder / "pairs.txt").read_text())
    config = EvaluateConfig({"all": [str(dump), str(broken)]}, ("ransac",))
    with pytest.raises(LgcError, match=r"line 1: .*0\.png"):
        evaluate(config, tmp_path / "out")
    (broken / "images").rmdir()
    (broken / "images").symlink_to(folder / "images")
    started_with = []
    evaluate(
        config,
        tmp_path / "out",
        progress=lambda stage, done, total: started_with.append((done, total)),
    )
    assert started_with[0] == (2, 3)


@pytest.mark.usefixtures("in_this_process")
def test_a_limit_takes_the_same_pairs_everywhere(folder, dump, tmp_path):
    poses = {"perfect": write_poses(tmp_path / "all.txt", folder)}
    config = EvaluateConfig({"all": [str(folder), str(dump)]}, ("ransac",), poses=poses, limit=2)
    records = run(config, tmp_path)["records"]
    assert {r["scores"]["pairs"] for r in records} == {2}


@pytest.mark.slow
def test_dask_workers_find_the_same(dump, tmp_path):
    distributed = pytest.importorskip("distributed")
    config = EvaluateConfig({"all": [str(dump)]}, ("ransac",))
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        there = run(config, tmp_path / "dask", scheduler=cluster.scheduler_address)
    here = run(config, tmp_path / "processes", workers=1)
    for one, other in zip(there["records"], here["records"], strict=True):
        assert without_time(one["scores"]) == without_time(other["scores"])


def test_a_configuration_file_is_equivalent_to_options(tmp_path):
    path = tmp_path / "evaluate.yaml"
    path.write_text("groups: {known: [a, b]}\nmethods: [cn]\nkeypoints: [500, 1000]")
    config = make_evaluate_config(path, methods=["ransac"], limit=None)
    assert config == EvaluateConfig({"known": ["a", "b"]}, ("ransac",), keypoints=(500, 1000))


def test_the_example_is_understood():
    example = Path(training.evaluate.__file__).parent / "configs" / "evaluate_paper.yaml"
    config = make_evaluate_config(example)
    assert {"heldout", "unknown-albums", "nine"} == set(config.groups)
    assert {"cn-8pt", "cn+ransac", "ransac"} <= set(config.methods)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"groups": {}}, "nothing to evaluate"),
        ({"groups": {"a": ["b"]}, "methods": ["ransack"]}, "unknown method 'ransack'"),
        ({"group": {"a": ["b"]}}, "unknown key 'group', did you mean 'groups'"),
    ],
)
def test_an_invalid_configuration_is_refused_with_the_reason(tmp_path, content, complaint):
    path = tmp_path / "evaluate.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=rf"evaluate\.yaml: {complaint}"):
        make_evaluate_config(path)


def test_wrong_data_is_named(dump, tmp_path):
    def complaint(*sets, **options):
        with pytest.raises(LgcError) as raised:
            evaluate(EvaluateConfig({"known": list(sets)}, ("ransac",), **options), tmp_path)
        return str(raised.value)

    assert "nothing matches" in complaint(str(tmp_path / "no*"))
    (tmp_path / "empty").mkdir()
    assert "empty holds no pairs.txt" in complaint(str(tmp_path / "empty"))
    (tmp_path / "text.hdf5").write_text("no dump")
    assert "text.hdf5 is not a readable hdf5 dump" in complaint(str(tmp_path / "text.hdf5"))
    assert "made with sift features, not orb" in complaint(str(dump), features="orb")
    assert "poses.txt is missing" in complaint(str(dump), poses={"x": str(tmp_path / "poses.txt")})
    manifest = json.loads(dump.with_suffix(".json").read_text())
    for other, content in (("half", {**manifest, "pair_sequence": ["hall"]}), ("torn", "{")):
        (tmp_path / f"{other}.hdf5").write_bytes(dump.read_bytes())
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / f"{other}.json").write_text(text)
    assert "half.json does not belong to half.hdf5" in complaint(str(tmp_path / "half.hdf5"))
    assert "torn.json is not the manifest" in complaint(str(tmp_path / "torn.hdf5"))
    assert "2 sets of group 'known' are called 'hall'" in complaint(str(dump), str(dump))
    assert "does not exist" in complaint(str(dump), models={"x": "no_such_model"})
    extractor = {"features": "xfeat", "extractor_model": str(tmp_path / "no.onnx")}
    assert "no.onnx does not exist" in complaint(str(tmp_path), **extractor)


IDENTITY = "1 0 0 0 1 0 0 0 1"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "holds no poses"),
        (f"a.png b.png {IDENTITY} 1 0", "entry 1 is not a pose"),
        (f"a.png b.png {IDENTITY} 1 0 0\na.png c.png {IDENTITY} 1 0 nan", "entry 2 is not a pose"),
        ("a.png b.png 1 0 0 0 2 0 0 0 1 1 0 0", "R is not a rotation"),
        (f"a.png b.png {IDENTITY} 1 0 zero", "zero"),
    ],
)
def test_wrong_poses_are_named(tmp_path, text, complaint):
    path = tmp_path / "poses.txt"
    path.write_text(text)
    with pytest.raises(DatasetError, match=rf"poses\.txt.*{complaint}.*each line must hold"):
        read_poses(path)


@pytest.mark.usefixtures("in_this_process")
def test_the_commands_lead_from_pairs_to_a_report(folder, dump, tmp_path, monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["training", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr()

    options = ("--method", "ransac", "--method", "poselib", "--keypoints", 100)
    code, printed = call(
        "evaluate", dump, "--group", f"known={folder}", *options, "--out", tmp_path
    )
    assert code == 0
    assert "results.json" in printed.out
    assert "mAP5" in printed.out
    code, printed = call("report", tmp_path, "--out", tmp_path / "report")
    assert code == 0
    assert "| poselib |" in (tmp_path / "report" / "report.md").read_text()
    learned = ("--features", "own", "--extractor-model", tmp_path / "no.onnx")
    code, printed = call("evaluate", folder, "--method", "poselib", *learned)
    assert code == 1
    assert "no.onnx does not exist" in printed.err
    code, printed = call("evaluate", tmp_path / "nowhere")
    assert code == 1
    assert "error: nothing matches" in printed.err

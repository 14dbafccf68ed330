"""`python -m training prepare`: the same dump, however the work was done."""

import inspect
import json
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import cv2
import h5py
import numpy as np
import pytest
import yaml

import training.prepare
from lgc_ros.errors import ConfigError, DatasetError, ImageError
from training.__main__ import main
from training.data.dump import Dump
from training.data.readers import READERS
from training.prepare import (
    DataSource,
    FeatureOptions,
    PrepareConfig,
    prepare,
    read_config,
    read_scenes,
)

SIZE = (240, 180)
WALL_M = 4.0


def write_collection(folder, seed, count):
    """A raw-layout folder: a textured wall, photographed while walking along it."""
    rng = np.random.default_rng(seed)
    texture = cv2.GaussianBlur(rng.integers(0, 256, (400, 600), dtype=np.uint8), (0, 0), 1.5)
    texture = cv2.normalize(texture, None, 0, 255, cv2.NORM_MINMAX)
    K = np.array([[200.0, 0, 119.5], [0, 200, 89.5], [0, 0, 1]])
    lists = {"images.txt": [], "calibration.txt": [], "visibility.txt": []}
    (folder / "images").mkdir(parents=True)
    for i in range(count):
        R_cw = cv2.Rodrigues(np.array([0.02 * i, -0.05 * i, 0.04 * i]))[0]
        t_cw = -R_cw @ np.array([0.25 * i, 0.1 * (i % 2), 0.05 * i])
        # Pixels of the texture lie on the wall z = WALL_M, 100 to the meter.
        wall = np.array([[0.01, 0, -3], [0, 0.01, -2], [0, 0, WALL_M]])
        H = K @ (R_cw @ wall + np.outer(t_cw, [0, 0, 1]))
        cv2.imwrite(str(folder / f"images/{i}.png"), cv2.warpPerspective(texture, H, SIZE))
        with h5py.File(folder / f"{i}.h5", "w") as file:
            file["K"], file["R"], file["T"] = np.diag([200.0, 200, 1]), R_cw, t_cw[None]
            file["imsize"] = np.array([SIZE])
        (folder / f"{i}.txt").write_text(" ".join(["200"] * count))
        lists["images.txt"].append(f"images/{i}.png")
        lists["calibration.txt"].append(f"{i}.h5")
        lists["visibility.txt"].append(f"{i}.txt")
    for name, lines in lists.items():
        (folder / name).write_text("\n".join(lines))


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    folder = tmp_path_factory.mktemp("collection")
    write_collection(folder / "hall" / "train", seed=1, count=4)
    write_collection(folder / "yard" / "train", seed=2, count=3)
    write_collection(folder / "yard" / "val", seed=3, count=3)
    return folder


@pytest.fixture(scope="module")
def config(collection):
    return PrepareConfig(
        name="walls",
        sources=(DataSource("raw", f"{collection}/*/{{split}}"),),
        features=FeatureOptions(max_keypoints=150),
        splits=("train", "val"),
        max_pairs={"val": 2},
    )


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(training.prepare, "CHUNK_PAIRS", 4)


@pytest.fixture(scope="module")
def reference(config, tmp_path_factory):
    """Dumps made by one worker in one go."""
    folder = tmp_path_factory.mktemp("reference")
    prepare(config, folder, workers=1)
    return folder


def assert_same_dumps(folder, reference):
    for name in ("walls-sift-150-train.hdf5", "walls-sift-150-val.hdf5"):
        assert (folder / name).read_bytes() == (reference / name).read_bytes()


def test_matches_are_labeled_by_the_true_geometry(reference):
    dump = Dump(reference / "walls-sift-150-train.hdf5")
    assert len(dump) == 12 + 6
    for index in range(len(dump)):
        pair = dump[index]
        assert np.linalg.norm(pair.t_10) == pytest.approx(1)
        distinctive = (pair.ratio < 0.7) & (pair.mutual > 0)
        assert distinctive.sum() > 20
        assert (pair.ys[distinctive] < 1e-4).mean() > 0.9
        assert (pair.ys < 1e-4).mean() < 0.9
        assert pair.K0.tolist() == [[200, 0, 119.5], [0, 200, 89.5], [0, 0, 1]]


def test_the_manifest_describes_how_the_dump_was_made(reference, config):
    manifest = json.loads((reference / "walls-sift-150-train.json").read_text())
    assert manifest["pairs"] == 18
    assert manifest["pair_sequence"] == ["hall"] * 12 + ["yard"] * 6
    assert manifest["pair_images"][0] == ["images/0.png", "images/1.png"]
    assert [scene["pairs_written"] for scene in manifest["scenes"]] == [12, 6]
    assert manifest["config"]["features"] == {
        "name": "sift",
        "max_keypoints": 150,
        "spread": False,
        "model": None,
    }
    assert manifest["config"]["seed"] == config.seed
    assert {"opencv", "numpy", "lgc_ros"} <= set(manifest["versions"])


def test_a_learned_extractor_is_named_by_its_kind_and_its_file(
    config, tmp_path, heads_model, monkeypatch
):
    monkeypatch.setenv("MODEL", str(heads_model()))
    features = FeatureOptions("xfeat", 100, model="${MODEL}")
    learned = replace(config, features=features, splits=("val",))
    (dump,) = prepare(learned, tmp_path / "dump", workers=1)
    assert dump.name == "walls-xfeat-100-val.hdf5"
    manifest = json.loads(dump.with_suffix(".json").read_text())
    assert manifest["config"]["features"]["model"] == "${MODEL}"


def test_pairs_are_limited_per_split(reference):
    assert len(Dump(reference / "walls-sift-150-val.hdf5")) == 2


def test_nothing_but_dumps_and_manifests_is_left(reference):
    assert sorted(path.name for path in reference.iterdir()) == [
        f"walls-sift-150-{split}.{ending}"
        for split in ("train", "val")
        for ending in ("hdf5", "json")
    ]


@pytest.mark.slow
def test_two_workers_write_the_same_dump(config, reference, tmp_path):
    prepare(config, tmp_path, workers=2)
    assert_same_dumps(tmp_path, reference)


KILLED_AFTER_TWO_CHUNKS = """
import os, signal, sys, yaml
from pathlib import Path
import training.prepare
training.prepare.CHUNK_PAIRS = 4

def progress(stage, done, total):
    if stage == sys.argv[3] and done == 2:
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    config = training.prepare.read_config(Path(sys.argv[1]))
    training.prepare.prepare(config, Path(sys.argv[2]), workers=2, progress=progress)
"""


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["train: features", "train: pairs"])
def test_a_killed_run_resumes(config, reference, tmp_path, stage):
    script, config_path, out = tmp_path / "run.py", tmp_path / "config.yaml", tmp_path / "out"
    script.write_text(KILLED_AFTER_TWO_CHUNKS)
    write_config(config, config_path)
    root = Path(training.prepare.__file__).parent.parent
    killed = subprocess.run(
        [sys.executable, script, config_path, out, stage],
        env={**os.environ, "PYTHONPATH": str(root)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert not list(out.glob("*.hdf5"))
    finished = {
        "train: features": len(list(out.glob("*train*.work/features/[!.]*.npz"))),
        "train: pairs": len(list(out.glob("*train*.work/pairs/[!.]*.hdf5"))),
    }
    assert finished[stage] >= 2

    started_with = {}

    def progress(stage, done, total):
        started_with.setdefault(stage, done)

    prepare(read_config(config_path), out, workers=2, progress=progress)
    # Workers may finish a task at hand after their parent was killed.
    for stage, count in finished.items():
        assert started_with[stage] >= count
    assert_same_dumps(out, reference)


@pytest.mark.slow
def test_dask_workers_write_the_same_dump(config, reference, tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        prepare(config, tmp_path, scheduler=cluster.scheduler_address)
    assert_same_dumps(tmp_path, reference)


@pytest.mark.slow
def test_a_finished_dump_is_kept_and_a_changed_configuration_makes_it_again(config, tmp_path):
    config = replace(config, splits=("val",))
    stages = []
    [path] = prepare(config, tmp_path, 1)
    before = path.stat().st_mtime_ns
    prepare(config, tmp_path, 1, progress=lambda stage, done, total: stages.append(stage))
    assert path.stat().st_mtime_ns == before
    assert stages == []
    prepare(replace(config, max_pairs={"val": 5}), tmp_path, 1)
    assert len(Dump(path)) == 5


@pytest.mark.slow
def test_images_are_split_when_the_data_brings_no_splits(collection, tmp_path):
    config = PrepareConfig(
        name="split",
        sources=(DataSource("raw", f"{collection}/hall/train", split_ratio=(50, 50, 0)),),
        features=FeatureOptions(max_keypoints=50),
        splits=("train", "val"),
    )
    prepare(config, tmp_path, 1)
    used = []
    for split in ("train", "val"):
        manifest = json.loads((tmp_path / f"split-sift-50-{split}.json").read_text())
        used.append({name for names in manifest["pair_images"] for name in names})
    assert len(used[0]) == len(used[1]) == 2
    assert not used[0] & used[1]


def write_config(config, path):
    content = {
        "name": config.name,
        "sources": [{"reader": s.reader, "path": s.path} for s in config.sources],
        "features": vars(config.features),
        "splits": list(config.splits),
        "max_pairs": config.max_pairs,
    }
    path.write_text(yaml.safe_dump(content))


def test_a_configuration_file_gives_the_same_settings(config, tmp_path):
    write_config(config, tmp_path / "config.yaml")
    assert replace(read_config(tmp_path / "config.yaml"), splits=config.splits) == config


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("name: [", "cannot be read as YAML"),
        ("just text", "'just text'"),
        ("name: a\nsauces: []", r"'sauces'.*known are .*sources"),
        ("name: a", "sources"),
        ("name: a\nsources: []", "at least one source"),
        ("name: a\nsources: [{reader: raw}]", "path"),
        ("name: a\nsources: [{reader: raw, path: x}]\nsplits: [dev]", r"unknown splits \['dev'\]"),
        ("name: a\nsources: [{reader: raw, path: x}]\nfeatures: {kind: sift}", "'kind'"),
    ],
)
def test_an_invalid_configuration_is_refused_with_the_reason(tmp_path, content, complaint):
    path = tmp_path / "prepare.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=rf"prepare\.yaml.*{complaint}"):
        read_config(path)


@pytest.mark.parametrize(
    "path", sorted((Path(training.prepare.__file__).parent / "configs").glob("prepare_*.yaml"))
)
def test_the_shipped_configurations_are_valid(path):
    for source in read_config(path).sources:
        inspect.signature(READERS[source.reader]).bind("path", **source.options)


def test_variables_in_paths_and_options_are_read_from_the_environment(
    collection, tmp_path, monkeypatch
):
    monkeypatch.setenv("WALLS", str(collection))
    monkeypatch.setenv("LISTS", str(tmp_path))
    (tmp_path / "hall-te-1000-pairs.pkl").write_bytes(pickle.dumps([(2, 1)]))
    source = DataSource(
        "raw", "${WALLS}/hall/{split}", {"pairs": "${LISTS}/{sequence}-te-1000-pairs.pkl"}
    )
    [scene] = read_scenes(PrepareConfig("a", (source,)), "train")
    assert scene.pairs.tolist() == [[2, 1]]


def test_a_source_that_is_not_there_is_named(tmp_path):
    config = PrepareConfig("a", (DataSource("raw", f"{tmp_path}/no*/{{split}}"),))
    with pytest.raises(DatasetError, match=r"nothing matches .*no\*/train"):
        prepare(config, tmp_path, 1)


def test_an_unreadable_image_stops_the_run_and_is_named(tmp_path):
    write_collection(tmp_path / "hall" / "train", seed=1, count=2)
    (tmp_path / "hall" / "train" / "images" / "1.png").write_bytes(b"no")
    config = PrepareConfig(
        "a", (DataSource("raw", f"{tmp_path}/hall/{{split}}"),), splits=("train",)
    )
    with pytest.raises(ImageError, match=r"1\.png"):
        prepare(config, tmp_path / "out", 1)


def test_an_image_of_another_size_than_its_calibration_is_named(tmp_path):
    write_collection(tmp_path / "hall" / "train", seed=1, count=2)
    cv2.imwrite(str(tmp_path / "hall/train/images/0.png"), np.zeros((20, 30), np.uint8))
    config = PrepareConfig(
        "a", (DataSource("raw", f"{tmp_path}/hall/{{split}}"),), splits=("train",)
    )
    with pytest.raises(DatasetError, match=r"0\.png: the image is 30x20 pixels"):
        prepare(config, tmp_path / "out", 1)


def test_data_without_pairs_is_reported(tmp_path):
    write_collection(tmp_path / "hall" / "train", seed=1, count=2)
    source = DataSource("raw", f"{tmp_path}/hall/{{split}}", {"visibility_above": 1000})
    config = PrepareConfig("a", (source,), splits=("train",))
    with pytest.raises(DatasetError, match="lower the visibility threshold"):
        prepare(config, tmp_path / "out", 1)


def test_a_missing_scheduler_is_reported(config, tmp_path):
    pytest.importorskip("distributed")
    import dask

    with (
        dask.config.set({"distributed.comm.timeouts.connect": "300ms"}),
        pytest.raises(ConfigError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1 "),
    ):
        prepare(config, tmp_path, scheduler="tcp://127.0.0.1:1")


def test_the_command_prints_the_dumps_and_fails_with_a_sentence(
    config, reference, tmp_path, monkeypatch, capsys
):
    write_config(config, tmp_path / "config.yaml")
    command = ["training", "prepare", str(tmp_path / "config.yaml"), "--workers", "1", "--out"]
    monkeypatch.setattr(sys, "argv", [*command, str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert "walls-sift-150-val.hdf5" in printed
    assert "written" in printed  # the number of pairs of each dump
    assert_same_dumps(tmp_path / "out", reference)

    (tmp_path / "config.yaml").write_text("name: a")
    monkeypatch.setattr(sys, "argv", [*command, str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert "error: " in capsys.readouterr().err

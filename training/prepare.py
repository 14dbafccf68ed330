"""Make dumps of labeled pairs: extract features, match pairs, label matches, write hdf5.

There is one task per image and one per chunk of pairs. A finished task leaves a complete file in
the work folder; after an interruption, only tasks without a file run again. Tasks run in local
processes or on the workers of a Dask scheduler, which must see the same files under the same paths
and have this checkout on their PYTHONPATH.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import cv2
import h5py
import numpy as np

import lgc_ros
from lgc_ros.errors import CameraError, ConfigError, DatasetError, FeatureError
from lgc_ros.estimation.two_view import LABEL_THRESHOLD
from lgc_ros.features.base import Extractor, Features, make_extractor
from lgc_ros.runtime.output_files import complete_file, make_folder, write_file
from training.data.dump import Dump, LabeledPair, write_dump
from training.data.labels import MIN_MATCHES, label_pair
from training.data.readers import read_scene, scene_paths
from training.data.scene import (
    SPLITS,
    PosedImage,
    PosedScene,
    relative_pose,
    some_images,
    split_scene,
    usable_pairs,
)
from training.parallel import Progress, run_tasks, task_executor
from training.settings import build, read_mapping

CHUNK_PAIRS = 32


@dataclass(frozen=True)
class DataSource:
    """Scenes of one data layout.

    `path` may contain wildcards and environment variables. With `{split}` in it the data set has
    its own splits; otherwise the images of each scene, at most `max_images` of them, are split at
    random by `split_ratio`.
    """

    reader: str
    path: str
    options: dict = field(default_factory=dict)
    split_ratio: tuple[float, float, float] = (60, 20, 20)
    max_images: int | None = None


@dataclass(frozen=True)
class FeatureOptions:
    """Arguments of `lgc_ros.features.base.make_extractor`; `model` may hold variables."""

    name: str = "sift"
    max_keypoints: int = 2000
    spread: bool = False
    model: str | None = None


@dataclass(frozen=True)
class PrepareConfig:
    """Content of a `prepare` configuration; `max_pairs` is per scene, null for no limit."""

    name: str
    sources: tuple[DataSource, ...]
    features: FeatureOptions = FeatureOptions()
    splits: tuple[str, ...] = SPLITS
    max_pairs: dict = field(default_factory=lambda: {"train": None, "val": 1000, "test": 1000})
    seed: int = 0

    def dump_name(self, split: str) -> str:
        """OANet's naming: `<data>-<features>-<keypoints>-<split>`."""
        features = Path(self.features.name).stem  # a learned extractor is named by its file
        return f"{self.name}-{features}-{self.features.max_keypoints}-{split}"


def read_config(path: Path) -> PrepareConfig:
    """Read a YAML file with the fields of PrepareConfig."""
    content = read_mapping(path)
    config = build(PrepareConfig, {"sources": (), **content}, path)
    if not isinstance(config.sources, tuple) or not config.sources:
        raise ConfigError(f"{path}: 'sources' must list at least one source")
    unknown = set(config.splits) - set(SPLITS)
    if unknown:
        raise ConfigError(f"{path}: unknown splits {sorted(unknown)}; use {', '.join(SPLITS)}")
    return replace(
        config,
        sources=tuple(build(DataSource, source, path) for source in config.sources),
        features=build(FeatureOptions, content.get("features", {}), path),
    )


def prepare(
    config: PrepareConfig,
    out: Path,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Progress = lambda stage, done, total: None,
) -> list[Path]:
    """Write `<out>/<name>-<features>-<keypoints>-<split>.hdf5` and a manifest for each split.

    Complete dumps are kept. Dumps do not depend on the number of workers.
    """
    out = out.resolve()  # workers may run elsewhere
    make_folder(out)
    with task_executor(workers, scheduler) as executor:
        return [_prepare_split(config, split, out, executor, progress) for split in config.splits]


def read_scenes(config: PrepareConfig, split: str) -> list[PosedScene]:
    """All scenes of the split, in the order of the configuration."""
    scenes = []
    for source in config.sources:
        own_splits = "{split}" in source.path
        pattern = os.path.expandvars(source.path.replace("{split}", split))
        options = {
            name: os.path.expandvars(value) if isinstance(value, str) else value
            for name, value in source.options.items()
        }
        paths = scene_paths(source.reader, pattern)
        if not paths:
            raise DatasetError(
                f"nothing matches {pattern}: correct the path of this source, "
                "or set the environment variable in it"
            )
        for path in paths:
            scene = read_scene(source.reader, Path(path).resolve(), options)
            scene = some_images(scene, source.max_images, config.seed)
            if not own_splits:
                scene = split_scene(scene, split, config.seed, source.split_ratio)
            scenes.append(scene)
    return scenes


def _prepare_split(
    config: PrepareConfig, split: str, out: Path, executor: Executor, progress: Progress
) -> Path:
    name = config.dump_name(split)
    dump_path, manifest_path = out / f"{name}.hdf5", out / f"{name}.json"
    scenes = read_scenes(config, split)
    chosen = [usable_pairs(s, config.max_pairs.get(split), config.seed) for s in scenes]
    digest = _digest(config, split, scenes, chosen)
    if dump_path.exists() and _made_from(manifest_path) == digest:
        return dump_path

    work = out / f"{name}.{digest[:12]}.work"
    make_folder(work / "features")
    make_folder(work / "pairs")

    used = [(s, i) for s, pairs in enumerate(chosen) for i in np.unique(pairs)]
    feature_path = {(s, i): work / "features" / f"{s:04d}-{i:06d}.npz" for s, i in used}
    tasks = [
        (_extract, scenes[s].images[i], config.features, path)
        for (s, i), path in feature_path.items()
        if not path.exists()
    ]
    run_tasks(executor, tasks, len(feature_path), f"{split}: features", progress)

    everything = [(s, i, j) for s, pairs in enumerate(chosen) for i, j in pairs]
    chunks = [everything[k : k + CHUNK_PAIRS] for k in range(0, len(everything), CHUNK_PAIRS)]
    shards = [work / "pairs" / f"{number:06d}.hdf5" for number in range(len(chunks))]
    tasks = []
    for chunk, shard in zip(chunks, shards, strict=True):
        if not shard.exists():
            pairs = [
                (scenes[s].images[i], scenes[s].images[j], feature_path[s, i], feature_path[s, j])
                for s, i, j in chunk
            ]
            tasks.append((_label_chunk, pairs, shard))
    run_tasks(executor, tasks, len(chunks), f"{split}: pairs", progress)

    kept = [
        pair for chunk, shard in zip(chunks, shards, strict=True) for pair in _kept(chunk, shard)
    ]
    if not kept:
        raise DatasetError(
            f"{name}: no pair has a baseline, enough visibility and {MIN_MATCHES} matches; "
            "lower the visibility threshold or check the poses"
        )
    with complete_file(dump_path) as temporary:
        write_dump(temporary, (pair for shard in shards for pair in _read_all(shard)))
    manifest = _manifest(config, split, scenes, chosen, kept, digest)
    write_file(manifest_path, json.dumps(manifest, indent=1))
    shutil.rmtree(work)
    return dump_path


def _extract(image: PosedImage, options: FeatureOptions, path: Path) -> None:
    pixels = image.load()
    try:
        image.camera.check_image(pixels)
        features = _extractor(options)(pixels)
    except (CameraError, FeatureError) as error:
        raise DatasetError(f"{image.path or image.name}: {error}") from error
    with complete_file(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **vars(features))


@lru_cache(maxsize=1)
def _extractor(options: FeatureOptions) -> Extractor:
    """The extractor of a worker; loading a learned one takes longer than running it."""
    model = options.model and os.path.expandvars(options.model)
    return make_extractor(options.name, options.max_keypoints, options.spread, model)


@lru_cache(maxsize=CHUNK_PAIRS)
def _load_features(path: Path) -> Features:
    with np.load(path) as arrays:
        return Features(**{**arrays, "kind": str(arrays["kind"])})


def _label_chunk(pairs: list[tuple[PosedImage, PosedImage, Path, Path]], shard: Path) -> None:
    labeled = {}
    for number, (image0, image1, path0, path1) in enumerate(pairs):
        pair = label_pair(
            _load_features(path0),
            _load_features(path1),
            image0.camera,
            image1.camera,
            *relative_pose(image0, image1),
        )
        if pair is not None:
            labeled[number] = pair
    with complete_file(shard) as temporary:
        write_dump(temporary, labeled.values())
        with h5py.File(temporary, "a") as file:
            file.attrs["kept"] = np.array(list(labeled), dtype=np.int64)


def _kept(chunk: list[tuple[int, int, int]], shard: Path) -> list[tuple[int, int, int]]:
    with h5py.File(shard, "r") as file:
        return [chunk[number] for number in file.attrs["kept"]]


def _read_all(shard: Path) -> Iterator[LabeledPair]:
    dump = Dump(shard)
    yield from (dump[index] for index in range(len(dump)))
    dump.close()


def _digest(config: PrepareConfig, split: str, scenes: list[PosedScene], chosen: list) -> str:
    """Hash of everything the dump depends on, so that work of other runs is never reused."""
    plan = {
        "config": asdict(config),
        "split": split,
        "chunk": CHUNK_PAIRS,
        "versions": _versions(),
        "scenes": [
            {
                "name": scene.name,
                "images": [_fingerprint(image) for image in scene.images],
                "pairs": pairs.tolist(),
            }
            for scene, pairs in zip(scenes, chosen, strict=True)
        ],
    }
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()


def _fingerprint(image: PosedImage) -> list:
    stat = image.path.stat() if image.path else None
    geometry = np.hstack([image.camera.K, image.R_cw, image.t_cw[:, None]]).tolist()
    return [
        image.name,
        geometry,
        image.camera.D.tolist(),
        stat and [stat.st_size, stat.st_mtime_ns],
    ]


def _versions() -> dict[str, str]:
    return {"opencv": cv2.__version__, "numpy": np.__version__, "lgc_ros": lgc_ros.__version__}


def _made_from(manifest_path: Path) -> str | None:
    if not manifest_path.exists():
        return None
    return json.loads(manifest_path.read_text(encoding="utf-8")).get("digest")


def _manifest(
    config: PrepareConfig,
    split: str,
    scenes: list[PosedScene],
    chosen: list,
    kept: list,
    digest: str,
) -> dict:
    """How the dump was made, and the images of each of its pairs."""
    return {
        "config": asdict(config),
        "split": split,
        "made": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "digest": digest,
        "versions": {**_versions(), "h5py": h5py.__version__, "python": platform.python_version()},
        "label": "squared symmetric epipolar distance, normalized coordinates; inlier below "
        f"{LABEL_THRESHOLD:g}",
        "pairs": len(kept),
        "scenes": [
            {
                "name": scene.name,
                "images": len(scene.images),
                "pairs_selected": len(pairs),
                "pairs_written": sum(s == number for s, _, _ in kept),
            }
            for number, (scene, pairs) in enumerate(zip(scenes, chosen, strict=True))
        ],
        "pair_sequence": [scenes[s].name for s, _, _ in kept],
        "pair_images": [[scenes[s].images[i].name, scenes[s].images[j].name] for s, i, j in kept],
    }

"""The paper's protocol (section 4) over many sequences: all methods on the same matches.

One task is one sequence at one number of keypoints. As in `prepare`, a finished task is a file,
so that an interrupted evaluation goes on where it was, on this machine or through Dask.
"""

from __future__ import annotations

import datetime
import glob
import hashlib
import json
import os
import platform
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
import torch

import lgc_ros
from lgc_ros.errors import ConfigError, DatasetError
from lgc_ros.estimation.estimators import EstimatorOptions, PoseEstimate
from lgc_ros.estimation.methods import DEFAULT_METHODS, parse_method
from lgc_ros.estimation.two_view import (
    RelativePoseSolver,
    TwoViewResult,
    default_model,
    estimator_options,
)
from lgc_ros.evaluation.pair_metrics import (
    NO_POSE_ERROR_DEG,
    PairScore,
    pose_error_deg,
    score_result,
    summarize,
)
from lgc_ros.evaluation.pair_runner import evaluate_pairs
from lgc_ros.evaluation.pairs import read_pairs
from lgc_ros.filter.checkpoint import find_model, load_checkpoint
from lgc_ros.filter.side_information import network_inputs
from lgc_ros.geometry import epipolar as geometry
from lgc_ros.matching.correspondences import Correspondences
from lgc_ros.runtime.output_files import make_folder, write_file
from training.data.batches import open_dump
from training.data.files import read_lines
from training.parallel import Progress, run_tasks, task_executor
from training.settings import build, read_mapping
from training.validation import to_correspondences

RESULTS_FILE = "results.json"
DEFAULT_METHODS = (*DEFAULT_METHODS, "cn+ransac")
DIRECT = "direct"
"""Method of a model that regresses the essential matrix itself (the paper's Direct)."""


@dataclass(frozen=True)
class EvaluateConfig:
    """What is compared on what.

    Attributes:
        groups: sets of pairs by group: folders with pairs.txt, or dumps; wildcards and
            environment variables are replaced. Groups whose names begin with ``known`` or
            ``unknown`` go into the paper's figures 6 and 7, e.g. ``unknown-outdoors``.
        methods: names as in `lgc evaluate pairs`.
        features, keypoints: extractor, and how many keypoints (one evaluation for each number).
        models: name and file of each filter model; the shipped one for the features if empty.
        poses: name and file of methods that ran elsewhere; lines of ``name0 name1 R(9) t(3)``.
        limit: at most so many pairs of each folder, evenly spaced.
        threshold_px: inlier threshold of the estimators; that of `lgc evaluate pairs` if not set.
    """

    groups: dict
    methods: tuple[str, ...] = DEFAULT_METHODS
    features: str = "sift"
    keypoints: tuple[int, ...] = (2000,)
    models: dict = field(default_factory=dict)
    poses: dict = field(default_factory=dict)
    limit: int | None = None
    threshold_px: float | None = None

    def __post_init__(self) -> None:
        for name in self.methods:
            parse_method(name)
        if not self.groups:
            raise ConfigError("nothing to evaluate: give folders with pairs.txt, or dumps")


def make_evaluate_config(path: Path | None = None, **changes: object) -> EvaluateConfig:
    """The configuration of a YAML file, if any, with what is not empty in the changes."""
    content = {"groups": {}, **(read_mapping(path) if path else {})}
    content |= {key: value for key, value in changes.items() if value}
    return build(EvaluateConfig, content, path or Path("command line"))


@dataclass(frozen=True)
class PairSet:
    """The pairs of one sequence: a folder with pairs.txt, or some pairs of a dump."""

    name: str
    group: str
    path: Path
    in_dump: tuple[int, ...] = ()
    keypoints: int | None = None  # of a dump, whose matches are made


def evaluate(
    config: EvaluateConfig,
    out: Path,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Progress = lambda stage, done, total: None,
) -> Path:
    """Write ``out/results.json``: scores of every method on every sequence."""
    out = out.resolve()
    config = _resolved(config)
    jobs = [
        (pairs, keypoints)
        for pairs in find_pair_sets(config)
        for keypoints in ([pairs.keypoints] if pairs.keypoints else config.keypoints)
    ]
    models = {name: _describe(Path(file)) for name, file in config.models.items()}
    for file in config.poses.values():
        read_poses(Path(file))
    digest = _digest(config, jobs)
    work = out / f"{digest[:12]}.work"
    make_folder(work)
    parts = [work / f"{number:04d}.json" for number in range(len(jobs))]
    tasks = [
        (_evaluate_job, *job, config, part)
        for job, part in zip(jobs, parts, strict=True)
        if not part.exists()
    ]
    with task_executor(workers, scheduler) as executor:
        run_tasks(executor, tasks, len(jobs), "sequences", progress)
    results = {
        "made": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "versions": _versions(),
        "config": asdict(config),
        "models": models,
        "records": [record for part in parts for record in json.loads(part.read_text("utf-8"))],
    }
    write_file(out / RESULTS_FILE, json.dumps(results, indent=1) + "\n")
    shutil.rmtree(work)
    return out / RESULTS_FILE


def _resolved(config: EvaluateConfig) -> EvaluateConfig:
    """Files by absolute paths, for processes that run elsewhere; models named."""
    models = dict(config.models)
    if not models and any(parse_method(name).filter for name in config.methods):
        models = {default_model(config.features): default_model(config.features)}
    models = {
        name: str(find_model(os.path.expandvars(file)).resolve()) for name, file in models.items()
    }
    poses = {
        name: str(Path(os.path.expandvars(file)).resolve()) for name, file in config.poses.items()
    }
    return replace(config, models=models, poses=poses)


def find_pair_sets(config: EvaluateConfig) -> list[PairSet]:
    """All sequences of all groups; a dump holds those its manifest names."""
    found = []
    for group, patterns in config.groups.items():
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            expanded = os.path.expandvars(pattern)
            paths = sorted(Path(path).resolve() for path in glob.glob(expanded))
            if not paths:
                raise DatasetError(
                    f"nothing matches {expanded} (group '{group}'): correct the path, or write "
                    "such a set with `python -m training pairs`"
                )
            for path in paths:
                find = _in_dump if path.is_file() else _in_folder
                found += find(path, group, config)
    names = Counter((pairs.group, pairs.name) for pairs in found)
    (group, name), count = names.most_common(1)[0]
    if count > 1:
        raise ConfigError(
            f"{count} sets of group '{group}' are called '{name}': give folders with different "
            "names, or put them into different groups"
        )
    return found


def _in_folder(path: Path, group: str, config: EvaluateConfig) -> list[PairSet]:
    if not (path / "pairs.txt").is_file():
        raise DatasetError(
            f"{path} holds no pairs.txt: give a folder made with `python -m training pairs`, or "
            "an hdf5 dump"
        )
    return [PairSet(path.name, group, path)]


def _in_dump(path: Path, group: str, config: EvaluateConfig) -> list[PairSet]:
    dump = open_dump(path, ("ratio", "mutual"))
    manifest = _manifest(path)
    made_with = manifest.get("config", {}).get("features", {})
    if made_with.get("name", config.features) != config.features:
        raise ConfigError(
            f"{path} was made with {made_with['name']} features, not {config.features}: evaluate "
            "it on its own, with --features"
        )
    keypoints = made_with.get("max_keypoints", max(config.keypoints))
    names = manifest.get("pair_sequence", [path.stem] * len(dump))
    if len(names) != len(dump):
        raise DatasetError(
            f"{path.with_suffix('.json')} does not belong to {path.name}: prepare the dump again"
        )
    return [
        PairSet(
            name,
            group,
            path,
            tuple(i for i, other in enumerate(names) if other == name),
            keypoints,
        )
        for name in dict.fromkeys(names)
    ]


def _manifest(path: Path) -> dict:
    manifest = path.with_suffix(".json")
    if not manifest.is_file():
        return {}
    try:
        return json.loads(manifest.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DatasetError(
            f"{manifest} is not the manifest of a dump ({error}): prepare the dump again"
        ) from error


def _evaluate_job(pairs: PairSet, keypoints: int, config: EvaluateConfig, part: Path) -> None:
    """Score all methods on one sequence and write the records to a file."""
    ways = {
        label: _decider(method, config.features, model, config.threshold_px)
        for label, method, model in _ways(config)
    }
    if pairs.in_dump:
        scores = _evaluate_dump(pairs, ways, config.limit)
    else:
        results = evaluate_pairs(
            pairs.path,
            ways,
            features=config.features,
            max_keypoints=keypoints,
            limit=config.limit,
        )
        if results.interrupted:  # to be evaluated again when it is resumed
            raise KeyboardInterrupt
        scores = results.scores
    common = {
        "sequence": pairs.name,
        "group": pairs.group,
        "features": config.features,
        "keypoints": keypoints,
    }
    records = []
    for label, rows in scores.items():
        method, _, model = label.partition("@")
        records.append(
            {**common, "method": method, "model": model or None, "scores": summarize(rows)}
        )
    for name, file in config.poses.items():
        rows = _score_poses(pairs, read_poses(Path(file)), config.limit)
        if rows:
            outside = {**common, "features": None, "keypoints": None, "method": name}
            records.append({**outside, "model": None, "scores": summarize(rows)})
    write_file(part, json.dumps(records))


def _ways(config: EvaluateConfig) -> list[tuple[str, str, str | None]]:
    """Label, method and model file of everything that is compared on the same matches."""
    ways = [(m, m, None) for m in config.methods if not parse_method(m).filter]
    for name, file in config.models.items():
        direct = load_checkpoint(file)[1].network.head == "direct"
        filtering = [m for m in config.methods if parse_method(m).filter]
        for method in [DIRECT] if direct else filtering:
            ways.append((f"{method}@{name}", method, file))
    return ways


@lru_cache(maxsize=64)
def _decider(
    method: str, features: str, model: str | None, threshold_px: float | None
) -> Callable[[Correspondences], TwoViewResult]:
    if method == DIRECT:
        return _DirectDecider(model, threshold_px or EstimatorOptions.threshold_px)
    return RelativePoseSolver(
        method, features, model, options=estimator_options(method, threshold_px)
    )


class _DirectDecider:
    """The pose that a model with the direct head predicts; it rejects no matches."""

    def __init__(self, model: str, threshold_px: float) -> None:
        self.network, self.info = load_checkpoint(model)
        self.threshold_px = threshold_px

    def __call__(self, c: Correspondences) -> TwoViewResult:
        start = time.perf_counter()
        inputs = network_inputs(c.x0, c.x1, c, self.info.side)
        with torch.inference_mode():
            output = self.network(torch.as_tensor(inputs, dtype=torch.float32)[None])[0]
        E = geometry.project_to_essential(output.double().numpy())
        R_10, t_10, _ = geometry.recover_pose(E, c.x0, c.x1)
        inliers = geometry.sampson_distance(E, c.x0, c.x1) < (self.threshold_px / c.focal) ** 2
        ms = 1e3 * (time.perf_counter() - start)
        pose = PoseEstimate(R_10, t_10, E, inliers)
        return TwoViewResult(c, np.ones(len(c), bool), inliers, pose, "", None, {"estimate": ms})


def _evaluate_dump(
    pairs: PairSet, ways: dict[str, Callable], limit: int | None
) -> dict[str, list[PairScore]]:
    dump = open_dump(pairs.path)
    scores: dict[str, list[PairScore]] = {label: [] for label in ways}
    for index in _evenly(pairs.in_dump, limit):
        pair = dump[index]
        correspondences = to_correspondences(pair)
        for label, decide in ways.items():
            result = decide(correspondences)
            scores[label].append(score_result(result, pair.R_10, pair.t_10))
    return scores


def _evenly(items: Sequence, limit: int | None) -> list:
    """At most ``limit`` of the items, the same that `evaluate_pairs` takes."""
    if limit is None or limit >= len(items):
        return list(items)
    return [items[i] for i in np.linspace(0, len(items) - 1, limit).round().astype(int)]


def read_poses(path: Path) -> dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]:
    """R_10, t_10 by image names, as another program predicted them."""
    remedy = "each line must hold: name0 name1 R(9 numbers, row by row) t(3 numbers)"
    poses = {}
    for number, line in enumerate(read_lines(path, remedy), start=1):
        fields = line.split()
        try:
            values = np.array([float(value) for value in fields[2:]])
        except ValueError as error:
            raise DatasetError(f"{path}, entry {number}: {error}; {remedy}") from error
        if len(values) != 12 or not np.isfinite(values).all():
            raise DatasetError(f"{path}, entry {number} is not a pose of a pair: {remedy}")
        R_10, t_10 = values[:9].reshape(3, 3), values[9:]
        if np.abs(R_10 @ R_10.T - np.eye(3)).max() > 1e-2 or np.linalg.det(R_10) < 0:
            raise DatasetError(f"{path}, entry {number}: R is not a rotation; {remedy}")
        poses[fields[0], fields[1]] = R_10, t_10
    if not poses:
        raise DatasetError(f"{path} holds no poses: {remedy}")
    return poses


def _score_poses(pairs: PairSet, poses: dict, limit: int | None) -> list[PairScore]:
    """Scores of outside poses; a pair without one counts as failed, a sequence without any not.

    In a dump the images are named ``<sequence>/<image>``, as `python -m training pairs` does.
    """
    if pairs.in_dump:
        dump, images = open_dump(pairs.path), _manifest(pairs.path).get("pair_images")
        if images is None:
            return []
        truth = {
            tuple(f"{pairs.name}/{name}" for name in images[i]): (dump[i].R_10, dump[i].t_10)
            for i in _evenly(pairs.in_dump, limit)
        }
    else:
        chosen = _evenly(read_pairs(pairs.path / "pairs.txt"), limit)
        truth = {(pair.name0, pair.name1): (pair.R_10, pair.t_10) for pair in chosen}
    if not truth.keys() & poses.keys():
        return []
    undefined = (np.nan,) * 4
    return [
        PairScore(
            pose_error_deg(*poses[names], *pose) if names in poses else NO_POSE_ERROR_DEG,
            *undefined,
            ms={},
        )
        for names, pose in truth.items()
    ]


def _describe(model: Path) -> dict:
    """What the report needs to know of a model."""
    _, info = load_checkpoint(model)
    return {
        "file": model.name,
        "name": info.name,
        "features": info.features,
        "side": list(info.side),
        "network": info.network.as_dict(),
        "training": info.training,
    }


def _digest(config: EvaluateConfig, jobs: list[tuple[PairSet, int]]) -> str:
    """Changes with anything the results depend on, so that those of another run are not used."""
    files = [Path(f) for f in (*config.models.values(), *config.poses.values())]
    files += [p.path if p.in_dump else p.path / "pairs.txt" for p, _ in jobs]
    plan = {
        "config": asdict(config),
        "versions": _versions(),
        "jobs": [[p.name, p.group, str(p.path), keypoints] for p, keypoints in jobs],
        "files": [[str(f), f.stat().st_size, f.stat().st_mtime_ns] for f in files if f.exists()],
    }
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()


def _versions() -> dict[str, str]:
    return {
        "lgc_ros": lgc_ros.__version__,
        "opencv": cv2.__version__,
        "numpy": np.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }

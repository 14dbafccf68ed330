"""The paper's protocol (section 4) over many sequences: all methods on the same matches.

One task is one sequence at one number of keypoints. As in `prepare`, a finished task leaves a
file, so that an interrupted evaluation continues, locally or through Dask.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
import torch

import lgc_ros
from lgc_ros.errors import ConfigError
from lgc_ros.estimation.estimators import EstimatorOptions, PoseEstimate
from lgc_ros.estimation.methods import DEFAULT_METHODS, parse_method
from lgc_ros.estimation.two_view import (
    RelativePoseSolver,
    TwoViewResult,
    default_model,
    estimator_options,
)
from lgc_ros.evaluation.pair_metrics import (
    PairScore,
    score_result,
    summarize,
)
from lgc_ros.evaluation.pair_runner import evaluate_pairs
from lgc_ros.features.base import make_extractor
from lgc_ros.filter.checkpoint import find_model, load_checkpoint
from lgc_ros.filter.side_information import network_inputs
from lgc_ros.geometry import epipolar as geometry
from lgc_ros.matching.correspondences import Correspondences
from lgc_ros.runtime.output_files import make_folder, write_file
from lgc_ros.runtime.stage_timer import StageTimer
from training.data.batches import open_dump
from training.pair_sets import PairSet, evenly_spaced, find_pair_sets
from training.parallel import Progress, run_tasks, task_executor
from training.predicted_poses import read_poses, score_poses
from training.settings import build, read_mapping
from training.validation import to_correspondences

RESULTS_FILE = "results.json"
METHODS = (*DEFAULT_METHODS, "cn+ransac")
DIRECT = "direct"
"""Method of a model that regresses the essential matrix directly (the paper's Direct)."""


@dataclass(frozen=True)
class EvaluateConfig:
    """Methods, models and pair sets of an evaluation.

    Attributes:
        groups: sets of pairs by group: folders with pairs.txt, or dumps; wildcards and
            environment variables are expanded. Groups whose names start with ``known`` or
            ``unknown`` go into the paper's figures 6 and 7, e.g. ``unknown-outdoors``.
        methods: names as in `lgc evaluate pairs`.
        features, keypoints: extractor, and numbers of keypoints to evaluate with.
        extractor_model: ONNX file of a learned extractor; dumps do without.
        models: name and file of each filter model; the shipped one for the features if empty.
        poses: name and file of poses predicted elsewhere; lines of ``name0 name1 R(9) t(3)``.
        limit: maximum number of pairs of each set, evenly spaced.
        threshold_px: inlier threshold of the estimators; default as in `lgc evaluate pairs`.
    """

    groups: dict
    methods: tuple[str, ...] = METHODS
    features: str = "sift"
    keypoints: tuple[int, ...] = (2000,)
    extractor_model: str | None = None
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
    """The configuration of a YAML file, if given, with all non-empty changes applied."""
    content = {"groups": {}, **(read_mapping(path) if path else {})}
    content |= {key: value for key, value in changes.items() if value}
    return build(EvaluateConfig, content, path or Path("command line"))


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
        for pairs in find_pair_sets(config.groups, config.features, max(config.keypoints))
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
    """The configuration with absolute paths, for processes that run elsewhere."""
    models = dict(config.models)
    if not models and any(parse_method(name).filter for name in config.methods):
        models = {default_model(config.features): default_model(config.features)}
    models = {
        name: str(find_model(os.path.expandvars(file)).resolve()) for name, file in models.items()
    }
    poses = {
        name: str(Path(os.path.expandvars(file)).resolve()) for name, file in config.poses.items()
    }
    extractor = config.extractor_model
    if extractor:
        extractor = str(Path(os.path.expandvars(extractor)).resolve())
        make_extractor(config.features, max(config.keypoints), model=extractor)  # or refuses it
    return replace(config, models=models, poses=poses, extractor_model=extractor)


def _evaluate_job(pairs: PairSet, keypoints: int, config: EvaluateConfig, part: Path) -> None:
    """Score all methods on one sequence and write the records to a file."""
    solvers = {
        label: _solver(method, config.features, model, config.threshold_px)
        for label, method, model in _combinations(config)
    }
    if pairs.in_dump:
        scores = _evaluate_dump(pairs, solvers, config.limit)
    else:
        results = evaluate_pairs(
            pairs.path,
            solvers,
            features=config.features,
            max_keypoints=keypoints,
            extractor_model=config.extractor_model,
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
        records.append({**common, "method": method, "model": model or None, **_scores(rows)})
    for name, file in config.poses.items():
        rows = score_poses(pairs, read_poses(Path(file)), config.limit)
        if rows:
            outside = {**common, "features": None, "keypoints": None, "method": name}
            records.append({**outside, "model": None, **_scores(rows)})
    write_file(part, json.dumps(records))


def _scores(rows: list[PairScore]) -> dict:
    """Mean scores of a sequence, and the pose error of each of its pairs."""
    return {
        "scores": summarize(rows),
        "errors_deg": [round(row.error_deg, 4) for row in rows],
    }


def _combinations(config: EvaluateConfig) -> list[tuple[str, str, str | None]]:
    """Label, method and model file of each combination to compare."""
    combinations = [(m, m, None) for m in config.methods if not parse_method(m).filter]
    for name, file in config.models.items():
        direct = load_checkpoint(file)[1].network.head == "direct"
        filtering = [m for m in config.methods if parse_method(m).filter]
        for method in [DIRECT] if direct else filtering:
            combinations.append((f"{method}@{name}", method, file))
    return combinations


@lru_cache(maxsize=64)
def _solver(
    method: str, features: str, model: str | None, threshold_px: float | None
) -> Callable[[Correspondences], TwoViewResult]:
    if method == DIRECT:
        return _DirectSolver(model, threshold_px or EstimatorOptions.threshold_px)
    return RelativePoseSolver(
        method, features, model, options=estimator_options(method, threshold_px)
    )


class _DirectSolver:
    """The pose that a model with the direct head predicts; it rejects no matches."""

    def __init__(self, model: str, threshold_px: float) -> None:
        self.network, self.info = load_checkpoint(model)
        self.threshold_px = threshold_px

    def __call__(self, c: Correspondences) -> TwoViewResult:
        timer = StageTimer()
        inputs = network_inputs(c.x0, c.x1, c, self.info.side)
        with torch.inference_mode():
            output = self.network(torch.as_tensor(inputs, dtype=torch.float32)[None])[0]
        E = geometry.project_to_essential(output.double().numpy())
        R_10, t_10, _ = geometry.recover_pose(E, c.x0, c.x1)
        inliers = geometry.sampson_distance(E, c.x0, c.x1) < (self.threshold_px / c.focal) ** 2
        timer.lap("estimate")
        pose = PoseEstimate(R_10, t_10, E, inliers)
        return TwoViewResult(c, np.ones(len(c), bool), inliers, pose, "", None, timer.ms)


def _evaluate_dump(
    pairs: PairSet, solvers: dict[str, Callable], limit: int | None
) -> dict[str, list[PairScore]]:
    dump = open_dump(pairs.path)
    scores: dict[str, list[PairScore]] = {label: [] for label in solvers}
    for index in evenly_spaced(pairs.in_dump, limit):
        pair = dump[index]
        correspondences = to_correspondences(pair)
        for label, solve in solvers.items():
            result = solve(correspondences)
            scores[label].append(score_result(result, pair.R_10, pair.t_10))
    return scores


def _describe(model: Path) -> dict:
    """Description of a model for the report."""
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
    """Hash of everything the results depend on, so that other results are never reused."""
    files = [Path(f) for f in (*config.models.values(), *config.poses.values())]
    files += [Path(config.extractor_model)] if config.extractor_model else []
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

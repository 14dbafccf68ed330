"""Methods run and scored on a set of image pairs with ground truth."""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from lgc_ros.errors import DatasetError, LgcError
from lgc_ros.estimation.two_view import RelativePoseSolver
from lgc_ros.evaluation.pair_metrics import PairScore, score_result, summarize
from lgc_ros.evaluation.pairs import Pair, read_pairs, turn_back
from lgc_ros.features.base import Features, make_extractor
from lgc_ros.features.stored import kind_of_file, read_features, stored_beside
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import read_image
from lgc_ros.matching.correspondences import Correspondences, correspond, match
from lgc_ros.runtime.interrupts import deferred_interrupts
from lgc_ros.runtime.output_files import write_file, write_json
from lgc_ros.runtime.stage_timer import StageTimer
from lgc_ros.visualization.matches import plot_accuracy

log = logging.getLogger(__name__)

CACHED_IMAGES = 256
STORED = "stored:"
SUMMARY, ERRORS, PLOT = "results.json", "errors.csv", "accuracy.png"


def feature_kind(features: str) -> str:
    """The keypoint type of an extractor name or of ``stored:SUFFIX``."""
    if features.startswith(STORED):
        return kind_of_file(Path("image" + features.removeprefix(STORED)))
    return features


@dataclass(frozen=True)
class PairResults:
    """Scores of methods on image pairs.

    Attributes:
        pairs: the pairs that were evaluated.
        scores: by method, in the order of `pairs`.
        interrupted: whether the user stopped before the last pair.
    """

    pairs: list[Pair]
    scores: dict[str, list[PairScore]]
    interrupted: bool = False


def evaluate_pairs(
    folder: Path,
    solvers: dict[str, RelativePoseSolver],
    *,
    features: str = "sift",
    max_keypoints: int = 2000,
    extractor_model: str | Path | None = None,
    limit: int | None = None,
    images: Path | None = None,
    skip_bad: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> PairResults:
    """Run every method on the same matches of the pairs in ``folder/pairs.txt``.

    Features are extracted once per image and matched once per pair; their time counts for every
    method. ``features`` is an extractor name, or ``stored:`` and what follows the image name in
    the names of feature files: ``stored:.sift-2000.hdf5``. ``extractor_model`` is the ONNX file of
    a learned extractor. ``limit`` selects evenly spaced pairs. Ctrl-C ends the evaluation early;
    the result covers the pairs evaluated until then.
    """
    pairs = read_pairs(folder / "pairs.txt", skip_bad)
    if limit is not None and limit < len(pairs):
        pairs = [pairs[i] for i in np.linspace(0, len(pairs) - 1, limit).round().astype(int)]
    correspondences_of = _matcher(
        images or folder / "images", features, max_keypoints, extractor_model
    )
    evaluated: list[Pair] = []
    scores: dict[str, list[PairScore]] = {name: [] for name in solvers}
    interrupted = False
    try:
        for done, pair in enumerate(pairs, start=1):
            try:
                with deferred_interrupts():
                    correspondences, ms = correspondences_of(pair)
            except LgcError as error:
                if not skip_bad:
                    raise DatasetError(f"pairs.txt, line {pair.line}: {error}") from error
                log.warning("pairs.txt, line %d: %s; skipped", pair.line, error)
                continue
            results = []
            for solve in solvers.values():
                with deferred_interrupts():
                    results.append(solve(correspondences))
            for rows, result in zip(scores.values(), results, strict=True):
                result.ms.update(ms)
                rows.append(score_result(result, pair.R_10, pair.t_10))
            evaluated.append(pair)
            progress(done, len(pairs))
    except KeyboardInterrupt:
        if not evaluated:
            raise
        interrupted = True
        scores = {name: rows[: len(evaluated)] for name, rows in scores.items()}
        log.warning("interrupted: results cover %d of %d pairs", len(evaluated), len(pairs))
    if not evaluated:
        raise DatasetError(f"no pair of {folder} could be evaluated; see the warnings above")
    return PairResults(evaluated, scores, interrupted)


def _matcher(
    images: Path, features: str, max_keypoints: int, extractor_model: str | Path | None
) -> Callable[[Pair], tuple[Correspondences, dict[str, float]]]:
    """A function from a pair to its putative matches, and to milliseconds by stage."""
    stored = features.removeprefix(STORED) if features.startswith(STORED) else ""
    extract = None if stored else make_extractor(features, max_keypoints, model=extractor_model)

    @lru_cache(maxsize=CACHED_IMAGES)
    def features_of(name: str, turns: int) -> tuple[Features, tuple[int, int], float]:
        image = read_image(images / name)
        size = image.shape[1], image.shape[0]
        timer = StageTimer()
        if extract is None:
            found = read_features(stored_beside(images / name, stored), max_keypoints)
        else:
            upright = np.ascontiguousarray(np.rot90(image, turns))
            found = turn_back(extract(upright), turns, size)
        timer.lap("features")
        return found, size, timer.ms["features"]

    def correspondences_of(pair: Pair) -> tuple[Correspondences, dict[str, float]]:
        features0, size0, ms0 = features_of(pair.name0, pair.turns0)
        features1, size1, ms1 = features_of(pair.name1, pair.turns1)
        cameras = Camera.from_K(pair.K0, *size0), Camera.from_K(pair.K1, *size1)
        timer = StageTimer()
        found = correspond(features0, features1, match(features0, features1), *cameras)
        timer.lap("match")
        return found, {"features": ms0 + ms1, **timer.ms}

    return correspondences_of


def summarize_pairs(folder: Path, features: str, keypoints: int, results: PairResults) -> dict:
    """The content of results.json: what was evaluated, and the scores of each method."""
    return {
        "dataset": folder.resolve().name,
        "features": features,
        "keypoints": keypoints,
        "methods": {name: summarize(rows) for name, rows in results.scores.items()},
    }


def write_pair_results(folder: Path, summary: dict, results: PairResults) -> None:
    """Write the summary, the pose error of each pair in degrees by method, and a plot."""
    errors = {name: [score.error_deg for score in rows] for name, rows in results.scores.items()}
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["image0", "image1", *errors])
    for pair, *row in zip(results.pairs, *errors.values(), strict=True):
        writer.writerow([pair.name0, pair.name1, *(f"{error:.4f}" for error in row)])
    write_json(folder / SUMMARY, summary)
    write_file(folder / ERRORS, file.getvalue())
    plot_accuracy(folder / PLOT, errors)


def earlier_pair_results(folder: Path) -> list[Path]:
    """What an earlier evaluation left in a folder."""
    return [path for name in (SUMMARY, ERRORS, PLOT) if (path := folder / name).exists()]

"""Methods run and scored on a set of image pairs with ground truth."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

from lgc_ros.errors import DatasetError, LgcError
from lgc_ros.estimation.two_view import RelativePoseSolver
from lgc_ros.evaluation.pair_metrics import PairScore, score_result
from lgc_ros.evaluation.pairs import read_pairs, turn_back
from lgc_ros.features.base import Features, make_extractor
from lgc_ros.features.stored import kind_of_file, read_features, stored_beside
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import read_image
from lgc_ros.matching.correspondences import correspond, match
from lgc_ros.visualization.matches import plot_accuracy

log = logging.getLogger(__name__)

CACHED_IMAGES = 256
STORED = "stored:"


def feature_kind(features: str) -> str:
    """The keypoint type of an extractor name or of ``stored:SUFFIX``."""
    if features.startswith(STORED):
        return kind_of_file(Path("image" + features.removeprefix(STORED)))
    return features


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
) -> dict[str, list[PairScore]]:
    """Run every method on the same matches of the pairs in ``folder/pairs.txt``.

    Features are extracted once per image and matched once per pair; their time counts for every
    method. ``features`` is an extractor name, or ``stored:`` and what follows the image name in
    the names of feature files: ``stored:.sift-2000.hdf5``. ``extractor_model`` is the ONNX file of
    a learned extractor. ``limit`` selects evenly spaced pairs.
    """
    images = images or folder / "images"
    pairs = read_pairs(folder / "pairs.txt", skip_bad)
    if limit is not None and limit < len(pairs):
        pairs = [pairs[i] for i in np.linspace(0, len(pairs) - 1, limit).round().astype(int)]
    stored = features.removeprefix(STORED) if features.startswith(STORED) else ""
    extract = None if stored else make_extractor(features, max_keypoints, model=extractor_model)

    @lru_cache(maxsize=CACHED_IMAGES)
    def features_of(name: str, turns: int) -> tuple[Features, tuple[int, int], float]:
        image = read_image(images / name)
        size = image.shape[1], image.shape[0]
        start = time.perf_counter()
        if extract is None:
            found = read_features(stored_beside(images / name, stored), max_keypoints)
        else:
            upright = np.ascontiguousarray(np.rot90(image, turns))
            found = turn_back(extract(upright), turns, size)
        return found, size, 1e3 * (time.perf_counter() - start)

    scores: dict[str, list[PairScore]] = defaultdict(list)
    for done, pair in enumerate(pairs, start=1):
        try:
            features0, size0, ms0 = features_of(pair.name0, pair.turns0)
            features1, size1, ms1 = features_of(pair.name1, pair.turns1)
            camera0 = Camera.from_K(pair.K0, *size0)
            camera1 = Camera.from_K(pair.K1, *size1)
            start = time.perf_counter()
            matches = match(features0, features1)
            correspondences = correspond(features0, features1, matches, camera0, camera1)
            ms = {"features": ms0 + ms1, "match": 1e3 * (time.perf_counter() - start)}
        except LgcError as error:
            if not skip_bad:
                raise DatasetError(f"pairs.txt, line {pair.line}: {error}") from error
            log.warning("pairs.txt, line %d: %s; skipped", pair.line, error)
            continue
        for name, solve in solvers.items():
            result = solve(correspondences)
            result.ms.update(ms)
            scores[name].append(score_result(result, pair.R_10, pair.t_10))
        progress(done, len(pairs))
    if not scores:
        raise DatasetError(f"no pair of {folder} could be evaluated; see the warnings above")
    return dict(scores)


def write_pair_report(folder: Path, scores: dict[str, list[PairScore]]) -> None:
    """Write ``errors.csv`` (pose errors by pair and method) and the plot ``accuracy.png``."""
    folder.mkdir(parents=True, exist_ok=True)
    errors = {name: [score.error_deg for score in rows] for name, rows in scores.items()}
    rows = [
        ",".join(errors),
        *(",".join(f"{e:.4f}" for e in row) for row in zip(*errors.values(), strict=True)),
    ]
    (folder / "errors.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    plot_accuracy(folder / "accuracy.png", errors)

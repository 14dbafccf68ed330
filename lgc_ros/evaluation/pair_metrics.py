"""Scores of estimated poses against ground truth, as the paper and as SuperGlue report them."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from lgc_ros.errors import DatasetError, LgcError
from lgc_ros.estimation.two_view import STAGES, RelativePoseSolver, TwoViewResult, true_matches
from lgc_ros.evaluation.pairs import read_pairs, turn_back
from lgc_ros.features.base import Features, make_extractor
from lgc_ros.features.stored import kind_of_file, read_features, stored_beside
from lgc_ros.geometry import epipolar as geometry
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import read_image
from lgc_ros.matching.correspondences import correspond, match

log = logging.getLogger(__name__)

THRESHOLDS_DEG = (5, 10, 20)
MAP_STEP_DEG = 5
NO_POSE_ERROR_DEG = 180.0
CACHED_IMAGES = 256
STORED = "stored:"


def mean_average_precision(
    errors_deg: np.ndarray, thresholds_deg: Sequence[int] = THRESHOLDS_DEG
) -> dict[int, float]:
    """The paper's mAP: mean of the shares of pairs within 5, 10, … degrees up to a threshold."""
    errors = np.asarray(errors_deg, dtype=np.float64)
    return {
        threshold: float(
            np.mean(
                [
                    _share(errors < step)
                    for step in range(MAP_STEP_DEG, threshold + 1, MAP_STEP_DEG)
                ]
            )
        )
        for threshold in thresholds_deg
    }


def area_under_curve(
    errors_deg: np.ndarray, thresholds_deg: Sequence[int] = THRESHOLDS_DEG
) -> dict[int, float]:
    """Exact area under the cumulative curve of the pose error up to each threshold (SuperGlue)."""
    errors = np.sort(np.asarray(errors_deg, dtype=np.float64))
    share = np.arange(len(errors) + 1) / max(len(errors), 1)
    areas = {}
    for threshold in thresholds_deg:
        below = int(np.searchsorted(errors, threshold))
        x = np.concatenate([[0.0], errors[:below], [threshold]])
        y = np.concatenate([share[: below + 1], [share[below]]])
        areas[threshold] = float((np.diff(x) * (y[1:] + y[:-1]) / 2).sum() / threshold)
    return areas


def _share(mask: np.ndarray) -> float:
    return float(mask.mean()) if mask.size else 0.0


def pose_error_deg(
    R_10: np.ndarray, t_10: np.ndarray, R_gt: np.ndarray, t_gt: np.ndarray
) -> float:
    """The larger of rotation angle and angle between translation directions, sign apart."""
    return max(geometry.rotation_error_deg(R_10, R_gt), geometry.translation_error_deg(t_10, t_gt))


@dataclass(frozen=True)
class PairScore:
    """How one method did on one pair.

    Attributes:
        error_deg: pose error; 180 when no pose was found.
        precision, recall: of the matches that outlier rejection kept: the filter's survivors for
            methods with a filter, the estimator's inliers for the others. NaN where undefined.
        inlier_precision, inlier_recall: of the estimator's inliers, for every method.
        ms: milliseconds by stage.
    """

    error_deg: float
    precision: float
    recall: float
    inlier_precision: float
    inlier_recall: float
    ms: dict[str, float]


def score_result(result: TwoViewResult, R_gt: np.ndarray, t_gt: np.ndarray) -> PairScore:
    """Compare a two-view result with the true relative pose."""
    right = true_matches(result.correspondences, R_gt, t_gt)
    kept = result.inliers if result.scores is None else result.kept
    error = NO_POSE_ERROR_DEG
    if result.pose is not None:
        error = pose_error_deg(result.pose.R_10, result.pose.t_10, R_gt, t_gt)
    return PairScore(
        error,
        *_precision_recall(kept, right),
        *_precision_recall(result.inliers, right),
        ms=result.ms,
    )


def _precision_recall(kept: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    both = int((kept & right).sum())
    return (
        both / int(kept.sum()) if kept.any() else np.nan,
        both / int(right.sum()) if right.any() else np.nan,
    )


def summarize(scores: Sequence[PairScore]) -> dict:
    """Means over pairs, under the keys of the JSON results."""
    errors = np.array([score.error_deg for score in scores])
    ms = {stage: _mean([score.ms.get(stage, 0.0) for score in scores]) for stage in STAGES}
    return {
        "pairs": len(scores),
        "map": {str(k): v for k, v in mean_average_precision(errors).items()},
        "auc": {str(k): v for k, v in area_under_curve(errors).items()},
        "precision": _mean([score.precision for score in scores]),
        "recall": _mean([score.recall for score in scores]),
        "inlier_precision": _mean([score.inlier_precision for score in scores]),
        "inlier_recall": _mean([score.inlier_recall for score in scores]),
        "ms": ms | {"total": sum(ms.values())},
    }


def _mean(values: Sequence[float]) -> float:
    """Mean of the defined values; 0 when there are none."""
    defined = [value for value in values if np.isfinite(value)]
    return float(np.mean(defined)) if defined else 0.0


def feature_kind(features: str) -> str:
    """The kind of keypoints that an extractor name or ``stored:SUFFIX`` stands for."""
    if features.startswith(STORED):
        return kind_of_file(Path("image" + features.removeprefix(STORED)))
    return features


def evaluate_pairs(
    folder: Path,
    deciders: dict[str, RelativePoseSolver],
    *,
    features: str = "sift",
    max_keypoints: int = 2000,
    limit: int | None = None,
    images: Path | None = None,
    skip_bad: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, list[PairScore]]:
    """Run every method on the same matches of the pairs in ``folder/pairs.txt``.

    Features are extracted once per image and matches made once per pair; the time they took
    counts for each method. ``features`` names an extractor, or stored feature files by what
    follows the image's name: ``stored:.sift-2000.hdf5``. ``limit`` takes evenly spaced pairs.
    """
    images = images or folder / "images"
    pairs = read_pairs(folder / "pairs.txt", skip_bad)
    if limit is not None and limit < len(pairs):
        pairs = [pairs[i] for i in np.linspace(0, len(pairs) - 1, limit).round().astype(int)]
    stored = features.removeprefix(STORED) if features.startswith(STORED) else None
    extract = None if stored else make_extractor(features, max_keypoints)

    @lru_cache(maxsize=CACHED_IMAGES)
    def features_of(name: str, turns: int) -> tuple[Features, tuple[int, int], float]:
        image = read_image(images / name)
        size = image.shape[1], image.shape[0]
        start = time.perf_counter()
        if stored:
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
        for name, decide in deciders.items():
            result = decide(correspondences)
            result.ms.update(ms)
            scores[name].append(score_result(result, pair.R_10, pair.t_10))
        progress(done, len(pairs))
    if not scores:
        raise DatasetError(f"no pair of {folder} could be evaluated; the warnings say why")
    return dict(scores)


def read_pose(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """R_10, t_10 from a text file with a 3x4 or 4x4 matrix."""
    try:
        T_10 = np.loadtxt(path)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path} cannot be read as a matrix ({error})") from error
    if T_10.shape not in ((3, 4), (4, 4)) or not np.isfinite(T_10).all():
        raise DatasetError(f"{path} should hold a finite 3x4 or 4x4 matrix, not {T_10.shape}")
    return T_10[:3, :3], T_10[:3, 3]


def write_pair_report(folder: Path, scores: dict[str, list[PairScore]]) -> None:
    """Write ``errors.csv`` (pose error by pair and method) and the curve ``accuracy.png``."""
    from lgc_ros.visualization.matches import plot_accuracy

    folder.mkdir(parents=True, exist_ok=True)
    errors = {name: [score.error_deg for score in rows] for name, rows in scores.items()}
    rows = [
        ",".join(errors),
        *(",".join(f"{e:.4f}" for e in row) for row in zip(*errors.values(), strict=True)),
    ]
    (folder / "errors.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    plot_accuracy(folder / "accuracy.png", errors)

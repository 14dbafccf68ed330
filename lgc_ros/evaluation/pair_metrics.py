"""Pose and match scores of image pairs, as reported in the paper and by SuperGlue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lgc_ros.estimation.two_view import STAGES, TwoViewResult, true_matches
from lgc_ros.geometry.epipolar import rotation_error_deg, translation_error_deg

THRESHOLDS_DEG = (5, 10, 20)
MAP_STEP_DEG = 5
NO_POSE_ERROR_DEG = 180.0
BOOTSTRAP_SAMPLES = 1000
INTERVAL_PERCENT = (2.5, 97.5)


def mean_average_precision(
    errors_deg: np.ndarray, thresholds_deg: Sequence[int] = THRESHOLDS_DEG
) -> dict[int, float]:
    """mAP of the paper: mean share of pairs within 5, 10, … degrees up to each threshold."""
    return {threshold: float(map_at(errors_deg, threshold)) for threshold in thresholds_deg}


def area_under_curve(
    errors_deg: np.ndarray, thresholds_deg: Sequence[int] = THRESHOLDS_DEG
) -> dict[int, float]:
    """Exact area under the cumulative pose error curve up to each threshold (SuperGlue)."""
    return {threshold: float(auc_at(errors_deg, threshold)) for threshold in thresholds_deg}


def bootstrap_intervals(
    errors_deg: np.ndarray, thresholds_deg: Sequence[int] = THRESHOLDS_DEG
) -> dict[str, dict[int, tuple[float, float]]]:
    """95 % percentile bootstrap intervals over the pairs, of ``map`` and ``auc`` by threshold.

    They tell how far a score would move on other pairs of the same kind. Pairs of one scene share
    images, so the true uncertainty is somewhat larger.
    """
    errors = np.asarray(errors_deg, dtype=np.float64)
    if not errors.size:
        return {name: dict.fromkeys(thresholds_deg, (0.0, 0.0)) for name in ("map", "auc")}
    drawn = np.random.default_rng(0).integers(0, len(errors), (BOOTSTRAP_SAMPLES, len(errors)))
    samples = errors[drawn]

    def interval(values: np.ndarray) -> tuple[float, float]:
        low, high = np.percentile(values, INTERVAL_PERCENT)
        return float(low), float(high)

    return {
        name: {threshold: interval(score(samples, threshold)) for threshold in thresholds_deg}
        for name, score in (("map", map_at), ("auc", auc_at))
    }


def map_at(errors_deg: np.ndarray, threshold_deg: int) -> np.ndarray:
    """mAP at one threshold, over the last axis."""
    errors = np.asarray(errors_deg, dtype=np.float64)
    if not errors.size:
        return np.zeros(errors.shape[:-1])
    steps = range(MAP_STEP_DEG, threshold_deg + 1, MAP_STEP_DEG)
    return np.mean([(errors < step).mean(axis=-1) for step in steps], axis=0)


def auc_at(errors_deg: np.ndarray, threshold_deg: int) -> np.ndarray:
    """AUC at one threshold, over the last axis.

    The trapezoids of the cumulative curve sum to the mean of ``threshold - error`` over the pairs
    within the threshold, plus half a step for the last of these pairs.
    """
    errors = np.asarray(errors_deg, dtype=np.float64)
    if not errors.size:
        return np.zeros(errors.shape[:-1])
    within = errors < threshold_deg
    below = np.where(within, threshold_deg - errors, 0.0).sum(axis=-1)
    last = np.where(within, errors, 0.0).max(axis=-1)
    return (below + last / 2) / (errors.shape[-1] * threshold_deg)


def pose_error_deg(
    R_10: np.ndarray, t_10: np.ndarray, R_gt: np.ndarray, t_gt: np.ndarray
) -> float:
    """The larger of the rotation error and the translation direction error, ignoring its sign."""
    return max(rotation_error_deg(R_10, R_gt), translation_error_deg(t_10, t_gt))


@dataclass(frozen=True)
class PairScore:
    """Scores of one method on one pair.

    Attributes:
        error_deg: pose error; 180 if no pose was found.
        precision, recall: of the matches kept in the end, which are those that are probably true
            by filter and pose, or the estimator's inliers for methods without a filter. NaN if
            undefined.
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
    true = true_matches(result.correspondences, R_gt, t_gt)
    kept = result.inliers if result.scores is None else result.kept
    error = NO_POSE_ERROR_DEG
    if result.pose is not None:
        error = pose_error_deg(result.pose.R_10, result.pose.t_10, R_gt, t_gt)
    return PairScore(
        error,
        *_precision_recall(kept, true),
        *_precision_recall(result.inliers, true),
        ms=result.ms,
    )


def _precision_recall(kept: np.ndarray, true: np.ndarray) -> tuple[float, float]:
    both = int((kept & true).sum())
    return (
        both / int(kept.sum()) if kept.any() else np.nan,
        both / int(true.sum()) if true.any() else np.nan,
    )


def summarize(scores: Sequence[PairScore]) -> dict:
    """Means over all pairs, under the keys of the JSON results, with bootstrap intervals."""
    errors = np.array([score.error_deg for score in scores])
    intervals = bootstrap_intervals(errors)
    ms = {stage: _mean([score.ms.get(stage, 0.0) for score in scores]) for stage in STAGES}
    return {
        "pairs": len(scores),
        "map": {str(k): v for k, v in mean_average_precision(errors).items()},
        "auc": {str(k): v for k, v in area_under_curve(errors).items()},
        **{
            f"{name}_interval": {str(k): list(v) for k, v in by_threshold.items()}
            for name, by_threshold in intervals.items()
        },
        "precision": _mean([score.precision for score in scores]),
        "recall": _mean([score.recall for score in scores]),
        "inlier_precision": _mean([score.inlier_precision for score in scores]),
        "inlier_recall": _mean([score.inlier_recall for score in scores]),
        "ms": ms | {"total": sum(ms.values())},
    }


def _mean(values: Sequence[float]) -> float:
    """Mean of the defined values; 0 if there are none."""
    defined = [value for value in values if np.isfinite(value)]
    return float(np.mean(defined)) if defined else 0.0

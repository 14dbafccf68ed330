"""Pose and match scores of image pairs, as reported in the paper and by SuperGlue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lgc_ros.estimation.two_view import STAGES, TwoViewResult, true_matches
from lgc_ros.geometry import epipolar as geometry

THRESHOLDS_DEG = (5, 10, 20)
MAP_STEP_DEG = 5
NO_POSE_ERROR_DEG = 180.0


def mean_average_precision(
    errors_deg: np.ndarray, thresholds_deg: Sequence[int] = THRESHOLDS_DEG
) -> dict[int, float]:
    """mAP of the paper: mean share of pairs within 5, 10, … degrees up to each threshold."""
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
    """Exact area under the cumulative pose error curve up to each threshold (SuperGlue)."""
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
    """The larger of the rotation error and the translation direction error, ignoring its sign."""
    return max(geometry.rotation_error_deg(R_10, R_gt), geometry.translation_error_deg(t_10, t_gt))


@dataclass(frozen=True)
class PairScore:
    """Scores of one method on one pair.

    Attributes:
        error_deg: pose error; 180 if no pose was found.
        precision, recall: of the matches after outlier rejection, which are those kept by the
            filter, or the estimator's inliers for methods without one. NaN if undefined.
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
    """Means over all pairs, under the keys of the JSON results."""
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
    """Mean of the defined values; 0 if there are none."""
    defined = [value for value in values if np.isfinite(value)]
    return float(np.mean(defined)) if defined else 0.0

"""Scores a network on prepared pairs as it is used: filter, then pose estimation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from lgc_ros.errors import DatasetError
from lgc_ros.estimation.two_view import RelativePoseSolver, TwoViewResult
from lgc_ros.evaluation.pair_metrics import (
    NO_POSE_ERROR_DEG,
    area_under_curve,
    mean_average_precision,
    pose_error_deg,
)
from lgc_ros.filter.checkpoint import ModelInfo
from lgc_ros.filter.correspondence_filter import FilterResult, interpret
from lgc_ros.filter.side_information import network_inputs
from lgc_ros.geometry.epipolar import project_to_essential, recover_pose
from lgc_ros.matching.correspondences import Correspondences
from training.data.dump import Dump, LabeledPair


@dataclass(frozen=True)
class ValidationScore:
    """Pose errors of all pairs in degrees, and mean precision and recall of the kept matches.

    Attributes:
        robust: errors of `cn`, which uses the robust estimator.
        eight_point: errors of `cn-8pt-plain`, the weighted 8-point algorithm alone.
    """

    robust: np.ndarray
    eight_point: np.ndarray
    precision: float
    recall: float

    @property
    def headline(self) -> float:
        """Mean mAP of the robust pose over the thresholds, which selects the best weights."""
        return float(np.mean(list(mean_average_precision(self.robust).values())))

    @property
    def closed_form(self) -> float:
        """Mean mAP of the weighted 8-point algorithm alone over the thresholds."""
        return float(np.mean(list(mean_average_precision(self.eight_point).values())))

    def scalars(self) -> dict[str, float]:
        """mAP and AUC by threshold of both, precision and recall, by name."""
        values = {"precision": self.precision, "recall": self.recall}
        for suffix, errors in (("", self.robust), ("_8pt", self.eight_point)):
            for name, by_threshold in (
                ("map", mean_average_precision(errors)),
                ("auc", area_under_curve(errors)),
            ):
                values |= {f"{name}{deg}{suffix}": v for deg, v in by_threshold.items()}
        return values


def validate(
    network: nn.Module,
    dump: Dump,
    info: ModelInfo,
    label_threshold: float,
    max_pairs: int,
) -> ValidationScore:
    """Score evenly spaced pairs of a dump; a missing pose counts as 180 degrees.

    Thresholds and estimator options are those of `cn` with a model described by `info`.
    """
    network.eval()
    chosen = np.linspace(0, len(dump) - 1, min(max_pairs, len(dump))).round().astype(int)
    rows = [_score_pair(network, dump[int(i)], info, label_threshold) for i in chosen]
    robust, eight_point, precision, recall = np.array(rows).T
    return ValidationScore(
        robust=robust,
        eight_point=eight_point,
        precision=float(precision.mean()),
        recall=float(recall.mean()),
    )


def _score_pair(
    network: nn.Module, pair: LabeledPair, info: ModelInfo, label_threshold: float
) -> tuple[float, float, float, float]:
    """Pose errors in degrees of `cn` and of `cn-8pt-plain`, precision, recall."""
    output = network_output(network, info, pair)
    if output.shape == (3, 3):  # the direct head gives a pose and no weights
        x = pair.xs.astype(np.float64)
        R_10, t_10, _ = recover_pose(project_to_essential(output), x[:, :2], x[:, 2:])
        error = pose_error_deg(R_10, t_10, pair.R_10, pair.t_10)
        return error, error, 0.0, 0.0
    filtered = interpret(output, info)
    kept, true = filtered.kept, pair.ys < label_threshold
    kept_true = int((kept & true).sum())
    return (
        pose_error("cn", filtered, pair),
        pose_error("cn-8pt-plain", filtered, pair),
        kept_true / max(int(kept.sum()), 1),
        kept_true / max(int(true.sum()), 1),
    )


def network_output(network: nn.Module, info: ModelInfo, pair: LabeledPair) -> np.ndarray:
    """(N,) float64 logits of the matches of a prepared pair; (3, 3) with the direct head."""
    inputs = network_inputs(pair.xs[:, :2], pair.xs[:, 2:], pair, info.side)
    device = next(network.parameters()).device
    with torch.inference_mode():
        return network(torch.as_tensor(inputs, device=device)[None])[0].double().cpu().numpy()


def pose_error(method: str, filtered: FilterResult, pair: LabeledPair) -> float:
    """Pose error in degrees of a method on filtered matches; 180 without a pose."""
    estimate = solved(method, filtered, pair).pose
    if estimate is None:
        return NO_POSE_ERROR_DEG
    return pose_error_deg(estimate.R_10, estimate.t_10, pair.R_10, pair.t_10)


def solved(method: str, filtered: FilterResult, pair: LabeledPair) -> TwoViewResult:
    """What a method makes of filtered matches; the solver is that of `lgc match` and odometry."""
    return RelativePoseSolver(method, match_filter=lambda _: filtered)(to_correspondences(pair))


def to_correspondences(pair: LabeledPair) -> Correspondences:
    """A prepared pair as input of the estimators."""
    if pair.K0 is None or pair.K1 is None:
        raise DatasetError(
            "the dump has no intrinsics (cx1s, cy1s, f1s …), which pixel thresholds require: "
            "prepare it with `python -m training prepare`"
        )
    x = pair.xs.astype(np.float64)
    p0 = x[:, :2] * pair.K0[[0, 1], [0, 1]] + pair.K0[:2, 2]
    p1 = x[:, 2:] * pair.K1[[0, 1], [0, 1]] + pair.K1[:2, 2]
    return Correspondences(
        x0=x[:, :2],
        x1=x[:, 2:],
        p0=p0,
        p1=p1,
        size0=tuple(int(v) for v in 2 * pair.K0[:2, 2] + 1),
        size1=tuple(int(v) for v in 2 * pair.K1[:2, 2] + 1),
        focal=float(np.mean([pair.K0[0, 0], pair.K0[1, 1], pair.K1[0, 0], pair.K1[1, 1]])),
        ratio=pair.ratio,
        mutual=pair.mutual,
        zoom=pair.zoom,
        roll=pair.roll,
        descriptor_distance=pair.descriptor_distance,
    )

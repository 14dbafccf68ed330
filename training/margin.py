"""The margin of a trained model: which matches have a weight in the closed form.

The margin only shifts the logits, so it can be chosen after training, on scenes that were not
trained on. Thresholds shift with it: what `cn` keeps and trusts does not change, nor do scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from lgc_ros.evaluation.pair_metrics import mean_average_precision
from lgc_ros.filter.checkpoint import ModelInfo
from lgc_ros.filter.correspondence_filter import interpret
from lgc_ros.filter.network import CorrespondenceNetwork
from training.data.dump import Dump
from training.validation import network_output, pose_error


def with_margin(
    network: CorrespondenceNetwork, info: ModelInfo, margin: float
) -> tuple[CorrespondenceNetwork, ModelInfo]:
    """The same model with another margin; the network is changed in place."""
    shift = margin - info.margin
    with torch.no_grad():
        network.output.bias -= shift
    return network, shifted_info(info, margin)


def shifted_info(info: ModelInfo, margin: float) -> ModelInfo:
    """Metadata for logits that are lower by the difference of the margins."""
    shift = margin - info.margin
    return replace(
        info,
        keep_above=info.keep_above - shift,
        trust_above=info.trust_above - shift,
        margin=margin,
    )


def closed_form_map(
    network: CorrespondenceNetwork,
    info: ModelInfo,
    dumps: Sequence[Dump],
    margins: Sequence[float],
) -> dict[float, dict[int, float]]:
    """mAP of `cn-8pt-plain` by margin and threshold in degrees, over all pairs of the dumps."""
    errors: dict[float, list[float]] = {margin: [] for margin in margins}
    for dump in dumps:
        for index in range(len(dump)):
            pair = dump[index]
            logits = network_output(network, info, pair)
            for margin in margins:
                filtered = interpret(logits - (margin - info.margin), shifted_info(info, margin))
                errors[margin].append(pose_error("cn-8pt-plain", filtered, pair))
    return {margin: mean_average_precision(np.array(found)) for margin, found in errors.items()}

"""OpenVINO on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from lgc_ros.filter.backends.onnx_export import onnx_model
from lgc_ros.filter.checkpoint import ModelInfo
from lgc_ros.filter.network import CorrespondenceNetwork


def load(
    network: CorrespondenceNetwork, info: ModelInfo, device: str
) -> tuple[str, Callable[[np.ndarray], np.ndarray]]:
    """The network in OpenVINO; `device` is ignored."""
    import openvino

    core = openvino.Core()
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        # The default would be bfloat16 on CPUs that support it.
        "INFERENCE_PRECISION_HINT": "f32",
    }
    model = core.read_model(onnx_model(network, info).SerializeToString())
    request = core.compile_model(model, "CPU", settings).create_infer_request()

    def run(rows: np.ndarray) -> np.ndarray:
        return request.infer([rows], share_inputs=True)[0].copy()

    return "cpu", run

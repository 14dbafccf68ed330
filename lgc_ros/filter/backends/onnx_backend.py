"""ONNX Runtime, on the CPU, on a GPU with onnxruntime-gpu, or with TensorRT."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from lgc_ros.errors import ConfigError
from lgc_ros.filter.backends.devices import parse_device
from lgc_ros.filter.backends.onnx_export import onnx_model
from lgc_ros.filter.checkpoint import ModelInfo
from lgc_ros.filter.network import COORDINATES, CorrespondenceNetwork

TENSORRT_CACHE = Path.home() / ".cache" / "lgc_ros" / "tensorrt"
TENSORRT_TYPICAL_MATCHES, TENSORRT_MAX_MATCHES = 2000, 8192


def load(
    network: CorrespondenceNetwork, info: ModelInfo, device: str
) -> tuple[str, Callable[[np.ndarray], np.ndarray]]:
    """The network in ONNX Runtime."""
    return _session(network, info, cuda_providers(device))


def load_tensorrt(
    network: CorrespondenceNetwork, info: ModelInfo, device: str
) -> tuple[str, Callable[[np.ndarray], np.ndarray]]:
    """The network in TensorRT; the first start builds it for minutes, later ones read a cache."""
    import onnxruntime

    provider = "TensorrtExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise ConfigError(
            "engine tensorrt needs TensorRT and an ONNX Runtime built for it: "
            "pip install onnxruntime-gpu tensorrt"
        )
    columns = COORDINATES + info.network.side
    options = {
        "trt_fp16_enable": True,
        "trt_engine_cache_enable": True,
        "trt_engine_cache_path": str(TENSORRT_CACHE),
        "trt_profile_min_shapes": f"matches:1x{columns}",
        "trt_profile_opt_shapes": f"matches:{TENSORRT_TYPICAL_MATCHES}x{columns}",
        "trt_profile_max_shapes": f"matches:{TENSORRT_MAX_MATCHES}x{columns}",
    }
    TENSORRT_CACHE.mkdir(parents=True, exist_ok=True)
    return _session(network, info, [(provider, options), *cuda_providers(device)])


def cuda_providers(device: str) -> list:
    """ONNX Runtime's CUDA provider for a device; empty without one or if the CPU is requested."""
    import onnxruntime

    name = "CUDAExecutionProvider"
    if device == "cpu" or name not in onnxruntime.get_available_providers():
        return []
    return [(name, {"device_id": parse_device(device)[1]})]


def _session(
    network: CorrespondenceNetwork, info: ModelInfo, gpu_providers: list
) -> tuple[str, Callable[[np.ndarray], np.ndarray]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # Spinning threads would take the cores from the rest of the process.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    model = onnx_model(network, info).SerializeToString()
    providers = [*gpu_providers, "CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model, options, providers=providers)
    device = "cpu" if session.get_providers()[0] == providers[-1] else "cuda"
    return device, lambda rows: session.run(None, {"matches": rows})[0]

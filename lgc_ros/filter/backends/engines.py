"""What runs the network: engines by name, one signature, scores alike to rounding.

An engine takes (N, 4 + side) float32 rows of one pair and gives (N,) logits, for any N ≥ 1 without
compiling anew. They use as many threads as torch is allowed, see `lgc_ros.runtime.threads`.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from lgc_ros.errors import ConfigError
from lgc_ros.filter.backends.numba_network import CompiledNetwork
from lgc_ros.filter.backends.onnx_export import onnx_model
from lgc_ros.filter.backends.torch_network import FusedNetwork, GraphedNetwork
from lgc_ros.filter.checkpoint import ModelInfo
from lgc_ros.filter.network import COORDINATES, CorrespondenceNetwork
from lgc_ros.runtime.threads import single_torch_thread

log = logging.getLogger(__name__)

AUTO = "auto"
MOST_MATCHES = 8192
MODULES = {"onnxruntime": ("onnxruntime", "onnx"), "openvino": ("openvino", "onnx")}
TENSORRT_CACHE = Path.home() / ".cache" / "lgc_ros" / "tensorrt"


@dataclass(frozen=True)
class Engine:
    """What runs a network: rows in, logits out; its name, and the device that it runs on."""

    name: str
    device: str
    run: Callable[[np.ndarray], np.ndarray]


def numba_engine(network: CorrespondenceNetwork, info: ModelInfo, device: str) -> Engine:
    """The network compiled for this processor; the first start takes seconds to do so."""
    if info.network.context != "cn":
        raise ConfigError(
            f"engine numba does not know context {info.network.context!r}: use engine torch"
        )
    return Engine("numba", "cpu", CompiledNetwork(network, torch.get_num_threads()))


def torch_engine(network: CorrespondenceNetwork, info: ModelInfo, device: str) -> Engine:
    """torch: needs nothing else; half precision on a GPU, one thread on a CPU."""
    chosen = choose_device(device)
    if info.network.context != "cn":
        network = network.to(chosen)
        run = torch.inference_mode()(lambda rows: network(rows[None].to(chosen))[0])
    elif chosen.type == "cuda":
        run = GraphedNetwork(network, chosen)
    else:
        run = single_torch_thread()(FusedNetwork(network).__call__)
    return Engine("torch", str(chosen), lambda rows: run(torch.from_numpy(rows)).cpu().numpy())


def onnxruntime_engine(network: CorrespondenceNetwork, info: ModelInfo, device: str) -> Engine:
    """ONNX Runtime on the CPU, or on a GPU with onnxruntime-gpu."""
    _require("onnxruntime", "onnx")
    return _onnxruntime("onnxruntime", network, info, _cuda_provider(device))


def tensorrt_engine(network: CorrespondenceNetwork, info: ModelInfo, device: str) -> Engine:
    """TensorRT through ONNX Runtime: the first start builds for minutes, later ones read that."""
    _require("onnxruntime", "onnx")
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
        "trt_profile_opt_shapes": f"matches:2000x{columns}",
        "trt_profile_max_shapes": f"matches:{MOST_MATCHES}x{columns}",
    }
    TENSORRT_CACHE.mkdir(parents=True, exist_ok=True)
    providers = [(provider, options), *_cuda_provider(device)]
    return _onnxruntime("tensorrt", network, info, providers)


def openvino_engine(network: CorrespondenceNetwork, info: ModelInfo, device: str) -> Engine:
    """OpenVINO on the CPU."""
    _require("openvino", "openvino")
    import openvino

    core = openvino.Core()
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        # Without this, processors with bfloat16 would use it.
        "INFERENCE_PRECISION_HINT": "f32",
    }
    model = core.read_model(onnx_model(network, info).SerializeToString())
    request = core.compile_model(model, "CPU", settings).create_infer_request()

    def run(rows: np.ndarray) -> np.ndarray:
        return request.infer([rows], share_inputs=True)[0].copy()

    return Engine("openvino", "cpu", run)


ENGINES: dict[str, Callable[[CorrespondenceNetwork, ModelInfo, str], Engine]] = {
    "numba": numba_engine,
    "torch": torch_engine,
    "onnxruntime": onnxruntime_engine,
    "tensorrt": tensorrt_engine,
    "openvino": openvino_engine,
}


def make_engine(
    name: str, network: CorrespondenceNetwork, info: ModelInfo, device: str = AUTO
) -> Engine:
    """The engine of a name, or under `auto` the fastest that is installed.

    Raises:
        ConfigError: there is no such engine or device, or the engine is not installed.
    """
    _parse_device(device)
    reason = "as asked"
    if name == AUTO:
        name, reason = fastest_engine(info, device)
    elif name not in ENGINES:
        raise ConfigError(f"unknown engine {name!r}: use {', '.join((AUTO, *ENGINES))}")
    log.info("the filter runs on %s: %s", name, reason)
    return ENGINES[name](network, info, device)


def missing_modules(engine: str) -> list[str]:
    """What is not installed, or cannot be imported, of the modules that an engine needs."""
    return [module for module in MODULES.get(engine, ()) if not _importable(module)]


def fastest_engine(info: ModelInfo, device: str = AUTO) -> tuple[str, str]:
    """The engine that `auto` stands for here, and why."""
    if info.network.context != "cn":
        return "torch", f"the others do not know context {info.network.context!r}"
    if choose_device(device).type == "cuda":
        return "torch", "there is a GPU"
    if not missing_modules("onnxruntime") and _cuda_provider(device):
        return "onnxruntime", "it finds a GPU that this build of torch does not"
    return "numba", "the fastest on a CPU"


def _onnxruntime(
    name: str, network: CorrespondenceNetwork, info: ModelInfo, gpu_providers: list
) -> Engine:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # Threads that spin while they wait take the cores from everything else in the process.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    model = onnx_model(network, info).SerializeToString()
    providers = [*gpu_providers, "CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model, options, providers=providers)
    device = "cpu" if session.get_providers()[0] == providers[-1] else "cuda"
    return Engine(name, device, lambda rows: session.run(None, {"matches": rows})[0])


def _cuda_provider(device: str) -> list:
    """The provider of a GPU for ONNX Runtime; none if it has none, or the CPU was asked for."""
    import onnxruntime

    name = "CUDAExecutionProvider"
    if device == "cpu" or name not in onnxruntime.get_available_providers():
        return []
    return [(name, {"device_id": _parse_device(device)[1]})]


def _importable(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


def _require(engine: str, extra: str) -> None:
    missing = missing_modules(engine)
    if missing:
        raise ConfigError(
            f"engine {engine} needs {' and '.join(missing)}: pip install 'lgc_ros[{extra}]'"
        )


def choose_device(name: str) -> torch.device:
    """The torch device of a name: auto (the GPU if there is one), cpu, cuda or cuda:N.

    A GPU that is not there is replaced by the CPU, with a warning in the log.
    """
    kind, index = _parse_device(name)
    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == AUTO:
        kind = "cuda" if available else "cpu"
    if kind == "cuda" and index >= available:
        log.warning(
            "device %s asked for, but torch sees %d CUDA device(s); running on the CPU",
            name,
            available,
        )
        kind = "cpu"
    return torch.device(kind, index if kind == "cuda" else None)


def _parse_device(name: str) -> tuple[str, int]:
    kind, colon, index = name.partition(":")
    numbered = kind == "cuda" and index.isdigit()
    if kind not in (AUTO, "cpu", "cuda") or (colon and not numbered):
        raise ConfigError(f"unknown device {name!r}: use auto, cpu, cuda or cuda:N")
    return kind, int(index or 0)

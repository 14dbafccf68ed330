"""Backends of the network by name, with one signature and equal scores up to rounding.

A backend is a function of the network, its `ModelInfo` and a device name. It returns the device
that it runs on and a function from (N, 4 + side) float32 rows of one pair to (N,) logits, for any
N ≥ 1 without recompilation. It uses as many threads as torch may, see `lgc_ros.runtime.threads`.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lgc_ros.errors import ConfigError
from lgc_ros.filter.backends import onnx_backend, openvino_backend, torch_backend
from lgc_ros.filter.backends.devices import AUTO, choose_device, parse_device
from lgc_ros.filter.checkpoint import ModelInfo
from lgc_ros.filter.network import CorrespondenceNetwork

log = logging.getLogger(__name__)

Run = Callable[[np.ndarray], np.ndarray]

ENGINES: dict[str, Callable[[CorrespondenceNetwork, ModelInfo, str], tuple[str, Run]]] = {
    "torch": torch_backend.load,
    "onnxruntime": onnx_backend.load,
    "tensorrt": onnx_backend.load_tensorrt,
    "openvino": openvino_backend.load,
}
# Modules that an engine needs beyond the required ones, and the extra that installs them.
MODULES = {"onnxruntime": ("onnxruntime", "onnx"), "openvino": ("openvino", "onnx")}
EXTRAS = {"onnxruntime": "onnx", "openvino": "openvino"}
# Engines that are faster than torch on a CPU, fastest first.
CPU_ENGINES = ("onnxruntime", "openvino")


@dataclass(frozen=True)
class Engine:
    """A network ready to run."""

    name: str  # key of ENGINES
    device: str
    run: Run  # (N, 4 + side) float32 rows to (N,) logits


def make_engine(
    name: str, network: CorrespondenceNetwork, info: ModelInfo, device: str = AUTO
) -> Engine:
    """The engine with this name; `auto` is the fastest that is installed.

    Raises:
        ConfigError: unknown engine or device, or the engine is not installed.
    """
    parse_device(device)
    reason = "as configured"
    if name == AUTO:
        name, reason = fastest_engine(info, device)
    elif name not in ENGINES:
        raise ConfigError(f"unknown engine {name!r}: use {', '.join((AUTO, *ENGINES))}")
    _require_modules("onnxruntime" if name == "tensorrt" else name)
    log.info("the filter runs on %s: %s", name, reason)
    return Engine(name, *ENGINES[name](network, info, device))


def fastest_engine(info: ModelInfo, device: str = AUTO) -> tuple[str, str]:
    """The engine that `auto` selects, and the reason."""
    if info.network.context != "cn":
        return "torch", f"only torch supports context {info.network.context!r}"
    if choose_device(device).type == "cuda":
        return "torch", "a GPU is available"
    if not missing_modules("onnxruntime") and onnx_backend.cuda_providers(device):
        return "onnxruntime", "it supports a GPU that this build of torch does not"
    for name in CPU_ENGINES:
        if not missing_modules(name):
            return name, "fastest installed engine for a CPU"
    return "torch", "always installed; 'lgc_ros[onnx]' brings a faster engine for a CPU"


def missing_modules(engine: str) -> list[str]:
    """The modules an engine needs that cannot be imported."""
    return [module for module in MODULES.get(engine, ()) if not _is_importable(module)]


def _require_modules(engine: str) -> None:
    missing = missing_modules(engine)
    if missing:
        raise ConfigError(
            f"engine {engine} needs {' and '.join(missing)}: "
            f"pip install 'lgc_ros[{EXTRAS[engine]}]'"
        )


def _is_importable(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True

"""ONNX files run as image networks, by ONNX Runtime (CPU, CUDA) or OpenVINO (CPU)."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from lgc_ros.errors import FeatureError
from lgc_ros.features.onnx_file import plain_model, returns_logits

PROVIDERS = ("CUDAExecutionProvider", "CPUExecutionProvider")
# Largest fixed input; a damaged or malicious file may declare any size.
MAX_INPUT_PIXELS = 1 << 24
# Names of an input that takes the number of keypoints contain one of these.
COUNT_NAMES = ("top", "num", "max", "keypoint", "kpt")
# Errors of the engines quote parts of the file, or whole stack traces.
MAX_REASON = 300


# Name, shape (0 where free) and type of an input.
_Input = tuple[str, list[int], str]
# All inputs, and the function that runs the network.
_Loaded = tuple[list[_Input], Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]]


@dataclass(frozen=True, eq=False)
class ImageNetwork:
    """A network with one image as its input, float (1, C, H, W)."""

    path: Path
    input_name: str
    channels: int  # 1 (gray) or 3
    size: tuple[int, int]  # width and height in pixels; 0 where free
    dtype: type
    infer: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]  # inputs to outputs by name
    constants: dict[str, np.ndarray] = field(default_factory=dict)  # further inputs by name

    def __call__(self, tensor: np.ndarray) -> dict[str, np.ndarray]:
        """Outputs by name for an input (1, C, H, W); several threads may call at a time."""
        try:
            image: np.ndarray = tensor.astype(self.dtype, copy=False)
            outputs = self.infer({self.input_name: image, **self.constants})
        except Exception as error:  # the engines' errors have no other common base class
            height, width = tensor.shape[2:]
            raise FeatureError(
                f"model {self.path} fails on an input of {width}x{height} pixels "
                f"({short_reason(error)}); export it again for this size or with free size, and "
                "for any number of keypoints or a fixed one"
            ) from error
        return outputs


def load_network(path: Path, max_keypoints: int) -> ImageNetwork:
    """Load an ONNX file with the fastest engine that is installed and can read it.

    That is ONNX Runtime on a GPU. On a CPU it is OpenVINO for raw heads, in bfloat16 if the CPU
    multiplies that, and ONNX Runtime for everything else: coordinates need more digits. Either
    uses as many threads as OpenCV may, see `lgc_ros.runtime.threads`.

    Args:
        path: ONNX file.
        max_keypoints: value of the second input, if the network has one for it.

    Raises:
        FeatureError: no engine is installed, or the file is damaged or not a network with one
            image as its input.
    """
    reasons = []
    for load in _engines(path):
        try:
            inputs, infer = load(path)
            break
        except Exception as error:  # the engines' errors have no other common base class
            reasons.append(short_reason(error))
    else:
        raise FeatureError(
            f"{path} cannot be loaded as an ONNX model ({reasons[0]}); export or copy it again"
        )
    dtypes = {"float": np.float32, "float16": np.float16}
    images = [i for i in inputs if len(i[1]) == 4]
    constants = _counts([i for i in inputs if len(i[1]) != 4], max_keypoints)
    if len(images) == 1 and constants is not None:
        name, shape, kind = images[0]
        fits = shape[0] in (0, 1) and shape[1] in (1, 3)
        if fits and kind in dtypes and shape[2] * shape[3] <= MAX_INPUT_PIXELS:
            size = shape[3], shape[2]
            return ImageNetwork(path, name, shape[1], size, dtypes[kind], infer, constants)
    found = ", ".join(f"{name} {shape} {kind}" for name, shape, kind in inputs) or "nothing"
    raise FeatureError(
        f"model {path} takes {found}; an extractor must take one float image (1, C, H, W) "
        "with 1 (gray) or 3 (RGB) channels, of at most 16 megapixels"
    )


def _counts(inputs: list[_Input], max_keypoints: int) -> dict[str, np.ndarray] | None:
    """Values of the inputs beside the image; None unless they take the number of keypoints."""
    values = {}
    for name, shape, kind in inputs:
        if kind not in ("int64", "int32") or len(shape) > 1 or any(side > 1 for side in shape):
            return None
        if name.lower() != "k" and not any(part in name.lower() for part in COUNT_NAMES):
            return None
        values[name] = np.full([1] * len(shape), max_keypoints, kind)
    return values if len(values) <= 1 else None


def short_reason(error: Exception) -> str:
    """The message of an engine's error in one line of moderate length."""
    line = " ".join(str(error).split())
    return line if len(line) <= MAX_REASON else f"{line[:MAX_REASON]}…"


def _engines(path: Path) -> list[Callable[[Path], _Loaded]]:
    """The installed engines, in the order in which to try them."""
    engines: list[Callable[[Path], _Loaded]] = []
    if _importable("onnxruntime"):
        engines.append(_load_onnxruntime)
    if _importable("openvino", "onnx"):
        first = engines and not _has_gpu() and returns_logits(path)
        engines.insert(0 if first else len(engines), _load_openvino)
    if not engines:
        raise FeatureError(
            f"model {path} needs onnxruntime; install it (pip install 'lgc_ros[onnx]') or use "
            "another extractor such as sift"
        )
    return engines


def _has_gpu() -> bool:
    import onnxruntime

    return PROVIDERS[0] in onnxruntime.get_available_providers()


def _importable(*modules: str) -> bool:
    try:
        for module in modules:
            importlib.import_module(module)
    except ImportError:
        return False
    return True


def _load_onnxruntime(path: Path) -> _Loaded:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cv2.getNumThreads()
    # Spinning threads would take the cores from the rest of the process.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 4  # errors are raised, too
    available = onnxruntime.get_available_providers()
    providers = [name for name in PROVIDERS if name in available]
    session = onnxruntime.InferenceSession(
        str(path), options, providers=providers, enable_fallback=len(providers) > 1
    )
    inputs = [
        (i.name, [side if isinstance(side, int) else 0 for side in i.shape], i.type[7:-1])
        for i in session.get_inputs()
    ]
    names = [output.name for output in session.get_outputs()]

    def infer(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(zip(names, session.run(names, values), strict=True))

    return inputs, infer


def _load_openvino(path: Path) -> _Loaded:
    import openvino

    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": cv2.getNumThreads(),
    }
    if not returns_logits(path):
        # The default is bfloat16 on CPUs that support it.
        settings["INFERENCE_PRECISION_HINT"] = "f32"
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(plain_model(path)), "CPU", settings)
    inputs = [(i.any_name, _free_sides(i), _type_name(i)) for i in compiled.inputs]
    names = [output.any_name for output in compiled.outputs]
    requests = threading.local()  # a request serves one call at a time

    def infer(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if not hasattr(requests, "own"):
            requests.own = compiled.create_infer_request()
        outputs = requests.own.infer(values, share_inputs=True)
        return {name: outputs[index].copy() for index, name in enumerate(names)}

    return inputs, infer


def _free_sides(port: Any) -> list[int]:
    return [side.get_length() if side.is_static else 0 for side in port.partial_shape]


def _type_name(port: Any) -> str:
    """ONNX's name of OpenVINO's element types."""
    name = port.element_type.get_type_name()
    return {"f32": "float", "f16": "float16", "i64": "int64", "i32": "int32"}.get(name, name)

"""Learned extractors (ALIKED, DISK, SuperPoint, XFeat, ...) exported to ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np

from lgc_ros.errors import FeatureError
from lgc_ros.features.keypoints import (
    Extractor,
    Features,
    features_from_rows,
    strongest,
    strongest_spread,
    to_gray,
)

# Images for a model with free input size are padded to whole cells of its coarsest feature map.
SIZE_MULTIPLE_PX = 32
# Part of an output's name, and the role of the output.
ROLES = {
    "keypoint": "keypoints",
    "kpt": "keypoints",
    "desc": "descriptors",
    "score": "scores",
}


def onnx_extractor(path: Path, max_keypoints: int, spread: bool) -> Extractor:
    """Extractor that runs an ONNX model; its `kind` is the name of the file.

    Input: one image, float (1, C, H, W) in [0, 1]; C = 1 is gray, C = 3 is RGB. If H and W are
    fixed, the image is resized and the keypoints are scaled back; if they are free, the image is
    padded at the right and bottom.

    Outputs: keypoints (N, 2) as x and y, descriptors (N, D) or (D, N), and optionally scores (N,),
    all with or without a batch dimension of 1. They are recognized by "keypoint" or "kpt", "desc"
    and "score" in their names, otherwise by shape. Keypoints are pixels of the input; if all lie
    within [-1, 1] they are fractions of it, where -1 and 1 are the centres of the first and last
    pixels, as ALIKED gives them. Without scores, the keypoints count as sorted by strength.
    """
    session = _load(path)
    input_name, channels, fixed_size, dtype = _input_of(session, path)
    output_names = [output.name for output in session.get_outputs()]

    def extract(image: np.ndarray) -> Features:
        tensor, scaled_size = _to_tensor(image, channels, fixed_size)
        try:
            values = session.run(output_names, {input_name: tensor.astype(dtype)})
        except Exception as error:  # onnxruntime's errors have no other common base class
            raise FeatureError(
                f"model {path} fails on an image of {image.shape[1]}x{image.shape[0]} pixels "
                f"({error}); use another size, or export it for this one"
            ) from error
        outputs = dict(zip(output_names, values, strict=True))
        points, descriptors, scores = _parse_outputs(outputs, path)
        if len(points) and np.abs(points).max() <= 1:
            points = (points + 1) / 2 * (np.array(tensor.shape[:1:-1]) - 1)
        width, height = image.shape[1::-1]
        size = np.array([width, height])
        points = (points + 0.5) * (size / scaled_size) - 0.5
        rows = np.column_stack([points, np.ones_like(scores), np.zeros_like(scores), scores])
        on_image = np.all((points > -0.5) & (points < size - 0.5), axis=1)
        features = features_from_rows(path.stem.lower(), rows, descriptors.astype(np.float32))
        features = features.subset(on_image)
        features = features.subset(strongest(features.responses, None))
        if spread:
            chosen = strongest_spread(features.points, max_keypoints, (width, height))
            return features.subset(chosen)
        return features.subset(slice(max_keypoints))

    return extract


def _load(path: Path) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise FeatureError(
            f"model {path} needs onnxruntime; install it (pip install 'lgc_ros[onnx]') or use "
            "another extractor such as sift"
        ) from error
    if not path.is_file():
        raise FeatureError(f"model {path} does not exist; check the path")
    available = onnxruntime.get_available_providers()
    providers = [p for p in ("CUDAExecutionProvider", "CPUExecutionProvider") if p in available]
    try:
        return onnxruntime.InferenceSession(str(path), providers=providers)
    except Exception as error:  # onnxruntime's errors have no other common base class
        raise FeatureError(
            f"{path} cannot be loaded as an ONNX model ({error}); export or copy it again"
        ) from error


def _input_of(session: Any, path: Path) -> tuple[str, int, tuple[int, int], type]:
    """Name, channels, width and height (0 where free) and type of the model's only input."""
    inputs = session.get_inputs()
    shapes = ", ".join(f"{i.name} {i.shape} {i.type}" for i in inputs)
    dtypes = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    first = inputs[0]
    fits = len(inputs) == 1 and len(first.shape) == 4 and first.type in dtypes
    if not fits or first.shape[1] not in (1, 3):
        raise FeatureError(
            f"model {path} takes {shapes}; an extractor must take one float image (1, C, H, W) "
            "with 1 (gray) or 3 (RGB) channels"
        )
    height, width = (side if isinstance(side, int) else 0 for side in first.shape[2:])
    return first.name, first.shape[1], (width, height), dtypes[first.type]


def _to_tensor(
    image: np.ndarray, channels: int, fixed_size: tuple[int, int]
) -> tuple[np.ndarray, tuple[int, int]]:
    """The network's input, and the size of the image in it without padding."""
    if channels == 1:
        image = to_gray(image)
    else:
        image = cv2.cvtColor(image, cv2.COLOR_GRAY2RGB if image.ndim == 2 else cv2.COLOR_BGR2RGB)
    own_size = image.shape[1], image.shape[0]
    size = fixed_size[0] or own_size[0], fixed_size[1] or own_size[1]
    if size != own_size:
        shrinks = size[0] * size[1] < own_size[0] * own_size[1]
        image = cv2.resize(
            image, size, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
        )
    right, bottom = (
        0 if fixed else -side % SIZE_MULTIPLE_PX
        for fixed, side in zip(fixed_size, size, strict=True)
    )
    image = cv2.copyMakeBorder(image, 0, bottom, 0, right, cv2.BORDER_REPLICATE)
    image = image.reshape(*image.shape[:2], channels)
    return (image.transpose(2, 0, 1)[None] / 255).astype(np.float32), size


def _parse_outputs(
    outputs: dict[str, np.ndarray], path: Path
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keypoints (N, 2), descriptors (N, D) and scores (N,) among the outputs."""
    found: dict[str, np.ndarray] = {}
    for name, value in outputs.items():
        value = value[0] if value.ndim == 3 and len(value) == 1 else value
        found.setdefault(_role(name.lower(), value), value)
    if "keypoints" in found and "descriptors" in found:
        points, descriptors = found["keypoints"].astype(np.float64), found["descriptors"]
        count = len(points)
        scores = found.get("scores", np.zeros(count)).astype(np.float64).reshape(-1)
        if descriptors.ndim == 2 and len(descriptors) != count:
            descriptors = descriptors.T
        if points.shape == (count, 2) and len(descriptors) == len(scores) == count:
            return points, descriptors, scores
    shapes = ", ".join(f"{name} {value.shape}" for name, value in outputs.items())
    raise FeatureError(
        f"model {path} returns {shapes}; an extractor must return keypoints (N, 2), descriptors "
        "(N, D) and scores (N): export the keypoint selection, too, not only the network"
    )


def _role(name: str, value: np.ndarray) -> str:
    for part, role in ROLES.items():
        if part in name:
            return role
    if value.ndim != 2 or len(value) == 1:
        return "scores"
    return "keypoints" if value.shape[1] == 2 else "descriptors"

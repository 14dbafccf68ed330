"""Learned extractors (XFeat, SuperPoint, ALIKED, DISK, ...) exported to ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from lgc_ros.errors import FeatureError
from lgc_ros.features import heads
from lgc_ros.features.keypoints import (
    Extractor,
    Features,
    features_from_rows,
    strongest,
    strongest_spread,
    to_gray,
)
from lgc_ros.features.onnx_network import ImageNetwork, load_network

# Images for a model with free input size are padded to whole cells of its coarsest feature map.
SIZE_MULTIPLE_PX = 32
# Size of the image that a model with free input size is tried on.
TRIAL_SIZE = 640, 480
# Part of an output's name, and the role of the output.
ROLES = {
    "keypoint": "keypoints",
    "kpt": "keypoints",
    "desc": "descriptors",
    "score": "scores",
}
FORMS = (
    "an extractor must return keypoints (N, 2), descriptors (N, D) and scores (N), or raw heads: "
    "65 keypoint logits, descriptors and reliability for each cell of 8x8 pixels"
)


@dataclass(frozen=True, eq=False)
class Detections:
    """Keypoints in pixels of the network's input, described once they are chosen."""

    points: np.ndarray  # (N, 2) x and y
    scores: np.ndarray  # (N,)
    describe: Callable[[np.ndarray], np.ndarray]  # indices (M,) to descriptors (M, D)


def onnx_extractor(path: Path, kind: str, max_keypoints: int, spread: bool) -> Extractor:
    """Extractor that runs an ONNX model; its features are of this `kind`.

    Input: one image, float (1, C, H, W) in [0, 1]; C = 1 is gray, C = 3 is RGB. If H and W are
    fixed, the image is resized and the keypoints are scaled back; if they are free, the image is
    padded at the right and bottom.

    Outputs, in one of two forms:

    - Raw heads, see `heads.find_heads`: keypoint logits (1, 65, H/8, W/8), descriptors
      (1, D, H/8, W/8), and optionally reliability (1, 1, H/8, W/8).
    - Keypoints (N, 2) as x and y, descriptors (N, D) or (D, N), and optionally scores (N,), all
      with or without a batch dimension of 1. They are recognized by "keypoint" or "kpt", "desc"
      and "score" in their names, otherwise by shape.
      Keypoints are pixels of the input; if all lie within [-1, 1] they are fractions of it, where
      -1 and 1 are the centers of the first and last pixels, as ALIKED gives them. Without scores,
      the keypoints count as sorted by strength.

    The model is run once on noise, so that a file that is not an extractor is refused here.
    """
    network = load_network(path)

    def extract(image: np.ndarray) -> Features:
        tensor, scaled_size = to_tensor(image, network)
        outputs = network(tensor)
        found = detections(outputs, tensor.shape[:1:-1], path)
        size = np.array(image.shape[1::-1])
        points = (found.points + 0.5) * (size / scaled_size) - 0.5
        on_image = np.flatnonzero(np.all((points > -0.5) & (points < size - 0.5), axis=1))
        chosen = on_image[strongest(found.scores[on_image], None if spread else max_keypoints)]
        if spread:
            width, height = size.tolist()
            chosen = chosen[strongest_spread(points[chosen], max_keypoints, (width, height))]
        scores = found.scores[chosen]
        rows = np.column_stack(
            [points[chosen], np.ones_like(scores), np.zeros_like(scores), scores]
        )
        return features_from_rows(kind, rows, found.describe(chosen).astype(np.float32))

    _try(extract, network)
    return extract


def to_tensor(image: np.ndarray, network: ImageNetwork) -> tuple[np.ndarray, tuple[int, int]]:
    """The network's input (1, C, H, W), and the size of the image in it without padding."""
    if network.channels == 1:
        image = to_gray(image)
    else:
        image = cv2.cvtColor(image, cv2.COLOR_GRAY2RGB if image.ndim == 2 else cv2.COLOR_BGR2RGB)
    width, height = image.shape[1], image.shape[0]
    size = network.size[0] or width, network.size[1] or height
    # Areas are averaged where the image shrinks; interpolation would skip pixels.
    smaller = min(size[0], width), min(size[1], height)
    for target, interpolation in ((smaller, cv2.INTER_AREA), (size, cv2.INTER_LINEAR)):
        if target != (image.shape[1], image.shape[0]):
            image = cv2.resize(image, target, interpolation=interpolation)
    right, bottom = (
        0 if fixed else -side % SIZE_MULTIPLE_PX
        for fixed, side in zip(network.size, size, strict=True)
    )
    image = cv2.copyMakeBorder(image, 0, bottom, 0, right, cv2.BORDER_REPLICATE)
    image = image.reshape(*image.shape[:2], network.channels)
    planes = np.ascontiguousarray(image.transpose(2, 0, 1)[None])
    return np.divide(planes, np.float32(255), dtype=np.float32), size


def detections(
    outputs: Mapping[str, np.ndarray], input_size: tuple[int, int], path: Path
) -> Detections:
    """The keypoints that the outputs of an extractor hold, in either form.

    Raises:
        FeatureError: these are not the outputs of an extractor, or not finite.
    """
    _check_numbers(outputs, path)
    found = heads.find_heads(outputs, input_size)
    if found is not None:
        points, scores = heads.detect(found)
        return Detections(points, scores, lambda chosen: heads.describe(found, points[chosen]))
    points, scores, descriptors = _given_keypoints(outputs, path)
    if len(points) and np.abs(points).max() <= 1:
        points = (points + 1) / 2 * (np.array(input_size) - 1)
    return Detections(points, scores, lambda chosen: descriptors[chosen])


def _check_numbers(outputs: Mapping[str, np.ndarray], path: Path) -> None:
    for name, value in outputs.items():
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiu":
            raise FeatureError(f"model {path} returns no array of numbers as {name}: {FORMS}")
        if not np.isfinite(value).all():
            raise FeatureError(
                f"model {path} returns numbers in {name} that are not finite; the file is "
                "damaged or badly exported, copy or export it again"
            )


def _given_keypoints(
    outputs: Mapping[str, np.ndarray], path: Path
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keypoints (N, 2), scores (N,) and descriptors (N, D) among the outputs."""
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
            return points, scores, descriptors
    shapes = ", ".join(f"{name} {value.shape}" for name, value in outputs.items())
    raise FeatureError(f"model {path} returns {shapes}: {FORMS}")


def _role(name: str, value: np.ndarray) -> str:
    for part, role in ROLES.items():
        if part in name:
            return role
    if value.ndim != 2 or len(value) == 1:
        return "scores"
    return "keypoints" if value.shape[1] == 2 else "descriptors"


def _try(extract: Extractor, network: ImageNetwork) -> None:
    """Run an extractor once, so that errors come up before the first image does."""
    width, height = (fixed or free for fixed, free in zip(network.size, TRIAL_SIZE, strict=True))
    extract(np.random.default_rng(0).integers(0, 256, (height, width), np.uint8))

"""Learned extractors (XFeat, SuperPoint, ALIKED, DISK, ...) exported to ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from lgc_ros.errors import FeatureError
from lgc_ros.features import heads
from lgc_ros.features.keypoint_outputs import TO_PIXELS, find_keypoints, unit_of
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
# Keypoints on noise needed to recognize the unit of their coordinates.
MIN_FOR_UNIT = 10
FORMS = (
    "an extractor must return keypoints (N, 2), descriptors (N, D) and scores (N), or raw heads: "
    "65 keypoint logits for each cell of 8x8 pixels or a score for each pixel, and a map of "
    "descriptors"
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
    padded at the right and bottom. A second input may take the number of keypoints.

    Outputs, in one of two forms:

    - Raw heads, see `heads.find_heads`: keypoint logits (1, 65, H/8, W/8) or scores (1, 1, H, W),
      descriptors (1, D, h, w), and optionally reliability (1, 1, H/8, W/8).
    - Keypoints, descriptors, and optionally scores, see `keypoint_outputs.find_keypoints`. The
      coordinates are pixels, or fractions of the input from -1 to 1 or from 0 to 1. Without
      scores, the keypoints count as sorted by strength.

    The model is run once on noise, so that a file that is not an extractor is refused here. This
    also determines the unit of its coordinates.
    """
    network = load_network(path, max_keypoints)
    unit = _unit_on_noise(network)

    def extract(image: np.ndarray) -> Features:
        tensor, scaled_size = to_tensor(image, network)
        found = detections(network(tensor), tensor.shape[:1:-1], path, unit)
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
    outputs: Mapping[str, np.ndarray],
    input_size: tuple[int, ...],
    path: Path,
    unit: str | None = None,
) -> Detections:
    """The keypoints that the outputs of an extractor hold, in either form.

    Args:
        outputs: outputs by name.
        input_size: width and height of the network's input in pixels.
        path: file of the network, for errors.
        unit: of given coordinates, a key of `TO_PIXELS`; None to recognize it by these keypoints.

    Raises:
        FeatureError: these are not the outputs of an extractor, or not finite.
    """
    _check_numbers(outputs, path)
    maps = heads.find_heads(outputs, input_size)
    if maps is not None:
        points, scores = heads.detect(maps)
        return Detections(points, scores, lambda chosen: heads.describe(maps, points[chosen]))
    given = find_keypoints(outputs)
    if given is None:
        shapes = ", ".join(f"{name} {value.shape}" for name, value in outputs.items())
        raise FeatureError(f"model {path} returns {shapes}: {FORMS}")
    to_pixels = TO_PIXELS[unit or unit_of(given.points)]
    points = to_pixels(given.points, np.array(input_size))
    return Detections(points, given.scores, lambda chosen: given.descriptors[chosen])


def _check_numbers(outputs: Mapping[str, np.ndarray], path: Path) -> None:
    for name, value in outputs.items():
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
            raise FeatureError(f"model {path} returns no array of numbers as {name}: {FORMS}")
        if not np.isfinite(value).all():
            raise FeatureError(
                f"model {path} returns numbers in {name} that are not finite; the file is "
                "damaged or badly exported, copy or export it again"
            )


def _unit_on_noise(network: ImageNetwork) -> str | None:
    """Run an extractor once, so that errors come up before the first image does.

    Returns the unit of the coordinates, if there are enough to recognize it. Noise has keypoints
    everywhere, while those of an image may all be in one quarter.
    """
    width, height = (fixed or free for fixed, free in zip(network.size, TRIAL_SIZE, strict=True))
    noise = np.random.default_rng(0).integers(0, 256, (height, width), np.uint8)
    tensor, _ = to_tensor(noise, network)
    outputs = network(tensor)
    found = detections(outputs, tensor.shape[:1:-1], network.path)
    found.describe(np.arange(len(found.points)))
    given = find_keypoints(outputs)
    return unit_of(given.points) if given and len(given.points) >= MIN_FOR_UNIT else None

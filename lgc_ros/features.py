"""Keypoints and descriptors: extractors by name, learned ones by ONNX file, and stored features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from lgc_ros.errors import FeatureError

# With `spread`, the image is cut into square cells that get about this many keypoints each.
KEYPOINTS_PER_CELL = 4
# Learned extractors with a free input size still need whole cells of their coarsest feature map.
ONNX_SIZE_MULTIPLE = 32


@dataclass(frozen=True, eq=False)
class Features:
    """Keypoints of one image; sizes are 1 and angles and responses 0 where not known."""

    points: np.ndarray  # (N, 2) float32, x and y in pixels
    descriptors: np.ndarray  # (N, D) float32, or uint8 with 8 bits a byte for binary ones
    sizes: np.ndarray  # (N,) float32, diameter in pixels
    angles: np.ndarray  # (N,) float32, degrees
    responses: np.ndarray  # (N,) float32, strength, only comparable within one extractor
    kind: str  # what the descriptors are: only equal kinds can be matched

    def __len__(self) -> int:
        return len(self.points)

    def subset(self, selection: np.ndarray) -> Features:
        """The features a boolean mask or an index array selects, in its order."""
        arrays = {
            field.name: value[selection]
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), np.ndarray)
        }
        return replace(self, **arrays)


Extractor = Callable[[np.ndarray], Features]


def make_extractor(name: str, max_keypoints: int = 2000, spread: bool = False) -> Extractor:
    """The extractor with this name, for uint8 images, gray (H, W) or BGR (H, W, 3).

    `name` is a key of EXTRACTORS or an ONNX file (`onnx:model.onnx` or `model.onnx`). The extractor
    returns at most `max_keypoints`, strongest first. `spread` takes the strongest of each part of
    the image instead, so that one textured corner cannot claim all; OpenCV's detectors then run
    once to find and once more to describe (SIFT: a quarter more time). Equal images give equal
    features. Use an extractor from one thread at a time.
    """
    if max_keypoints < 1:
        raise FeatureError(f"max_keypoints is {max_keypoints}; ask for at least one keypoint")
    if name.startswith("onnx:") or name.endswith(".onnx"):
        extract = _onnx_extractor(Path(name.removeprefix("onnx:")), max_keypoints, spread)
    elif name in EXTRACTORS:
        extract = EXTRACTORS[name](max_keypoints, spread)
    else:
        raise FeatureError(
            f"unknown extractor '{name}'; known are {', '.join(EXTRACTORS)} and ONNX files by "
            "path (onnx:model.onnx)"
        )

    def checked(image: np.ndarray) -> Features:
        _check_image(image)
        return extract(image)

    return checked


def strongest(responses: np.ndarray, points: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` largest responses, in order; ties go by y, then x, then index."""
    return np.lexsort((points[:, 0], points[:, 1], -responses))[:count]


def strongest_spread(
    responses: np.ndarray, points: np.ndarray, count: int, size: tuple[int, int]
) -> np.ndarray:
    """Indices of `count` keypoints spread over an image of this width and height.

    Cells of a regular grid take turns, each giving its strongest keypoint left, so cells run empty
    before any other gives much more than its share. The cost is two sorts, far below a detection.
    """
    side = np.sqrt(size[0] * size[1] * KEYPOINTS_PER_CELL / count)
    columns = int(size[0] // side) + 1
    order = strongest(responses, points, len(points))
    cells = (points[order] // side).astype(np.int64) @ (1, columns)
    by_cell = np.argsort(cells, kind="stable")
    _, starts, counts = np.unique(cells[by_cell], return_index=True, return_counts=True)
    turn = np.empty_like(cells)
    turn[by_cell] = np.arange(len(cells)) - np.repeat(starts, counts)
    return order[np.argsort(turn, kind="stable")[:count]]


def _opencv_extractor(
    detector: Any, kind: str, max_keypoints: int, spread: bool, everything: Any
) -> Extractor:
    """Wrap an OpenCV detector; `everything` is the same one without a limit, for `spread`."""

    def extract(image: np.ndarray) -> Features:
        gray = to_gray(image)
        try:
            if spread:
                found = everything.detect(gray)
                chosen = strongest_spread(*_ranking(found), max_keypoints, gray.shape[::-1])
                keypoints, descriptors = everything.compute(gray, [found[i] for i in chosen])
            else:
                keypoints, descriptors = detector.detectAndCompute(gray, None)
        except cv2.error as error:
            raise FeatureError(
                f"OpenCV cannot extract {kind} features from an image of "
                f"{gray.shape[1]}x{gray.shape[0]} pixels ({error.err}); use a larger image"
            ) from error
        if descriptors is None or len(keypoints) == 0:
            descriptors = np.empty((0, detector.descriptorSize()), _dtype(detector))
        responses, points = _ranking(keypoints)
        features = Features(
            points=points,
            descriptors=descriptors,
            sizes=np.array([k.size for k in keypoints], np.float32),
            angles=np.array([k.angle for k in keypoints], np.float32),
            responses=responses,
            kind=kind,
        )
        return features.subset(strongest(responses, points, max_keypoints))

    return extract


def _ranking(keypoints: list[cv2.KeyPoint]) -> tuple[np.ndarray, np.ndarray]:
    responses = np.array([k.response for k in keypoints], np.float32)
    return responses, np.array([k.pt for k in keypoints], np.float32).reshape(-1, 2)


def _dtype(detector: Any) -> type:
    return np.uint8 if detector.descriptorType() == cv2.CV_8U else np.float32


def _sift(max_keypoints: int, spread: bool) -> Extractor:
    """SIFT as in the paper: a contrast threshold so low that `max_keypoints` are always found."""
    detector = cv2.SIFT_create(nfeatures=max_keypoints, contrastThreshold=1e-5)
    everything = cv2.SIFT_create(contrastThreshold=1e-5)
    return _opencv_extractor(detector, "sift", max_keypoints, spread, everything)


def to_gray(image: np.ndarray) -> np.ndarray:
    """A gray version of a gray or BGR image."""
    return image if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)


def _check_image(image: np.ndarray) -> None:
    if image.size == 0:
        raise FeatureError("the image is empty; check where it comes from")
    if image.dtype != np.uint8:
        raise FeatureError(f"the image is {image.dtype}; convert it to 8 bits a channel (uint8)")
    if image.ndim != 2 and not (image.ndim == 3 and image.shape[2] == 3):
        raise FeatureError(
            f"the image has the shape {image.shape}; give a gray (H, W) or BGR (H, W, 3) one"
        )


EXTRACTORS: dict[str, Callable[[int, bool], Extractor]] = {"sift": _sift}

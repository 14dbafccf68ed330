"""Extractors by name.

A new extractor is a function of `max_keypoints` and `spread` in a file of its own that returns an
`Extractor`, and a line in EXTRACTORS; `keypoints` has what extractors share.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from lgc_ros.errors import FeatureError
from lgc_ros.features import onnx, opencv
from lgc_ros.features.keypoints import Extractor, Features

__all__ = ["EXTRACTORS", "Extractor", "Features", "make_extractor"]

EXTRACTORS: dict[str, Callable[[int, bool], Extractor]] = {
    "sift": opencv.sift,
    "rootsift": opencv.rootsift,
    "orb": opencv.orb,
    "akaze": opencv.akaze,
}


def make_extractor(name: str, max_keypoints: int = 2000, spread: bool = False) -> Extractor:
    """The extractor with this name, for uint8 images, gray (H, W) or BGR (H, W, 3).

    An extractor is deterministic, and several threads may call it at the same time.

    Args:
        name: key of EXTRACTORS, or an ONNX file (`onnx:model.onnx` or `model.onnx`, see
            `onnx.onnx_extractor`).
        max_keypoints: maximum number of keypoints per image; the strongest are kept, in order.
        spread: keep the strongest keypoints of each part of the image, so that one textured
            corner cannot take them all. OpenCV's detectors then run separately for detection and
            description (SIFT: 25 % slower).

    Raises:
        FeatureError: unknown name, unusable model file, or `max_keypoints` below 1. The extractor
            itself raises it for images of another type or shape.
    """
    if max_keypoints < 1:
        raise FeatureError(f"max_keypoints is {max_keypoints}; it must be at least 1")
    if name.startswith("onnx:") or name.endswith(".onnx"):
        path = Path(name.removeprefix("onnx:"))
        extract = onnx.onnx_extractor(path, max_keypoints, spread)
    elif name in EXTRACTORS:
        extract = EXTRACTORS[name](max_keypoints, spread)
    else:
        raise FeatureError(
            f"unknown extractor '{name}'; choose one of {', '.join(EXTRACTORS)}, or an ONNX file "
            "by path (onnx:model.onnx)"
        )

    def checked(image: np.ndarray) -> Features:
        _check_image(image)
        return extract(image)

    return checked


def _check_image(image: np.ndarray) -> None:
    if image.size == 0:
        raise FeatureError("the image is empty; check its source")
    if image.dtype != np.uint8:
        raise FeatureError(
            f"the image has type {image.dtype}; convert it to 8 bits per channel (uint8)"
        )
    if image.ndim != 2 and not (image.ndim == 3 and image.shape[2] == 3):
        raise FeatureError(
            f"the image has shape {image.shape}; it must be gray (H, W) or BGR (H, W, 3)"
        )

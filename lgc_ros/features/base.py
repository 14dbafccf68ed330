"""Extractors by name.

A new extractor is a function of `max_keypoints` and `spread` in a file of its own that returns an
`Extractor`, and a line in EXTRACTORS; `keypoints` has what extractors share. A learned extractor
needs no code: its ONNX file goes through `onnx`.
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
# Learned extractors, and where their authors publish the weights; other names work as well.
WEIGHTS = {
    "xfeat": "https://github.com/verlab/accelerated_features",
    "superpoint": "https://github.com/magicleap/SuperPointPretrainedNetwork",
    "aliked": "https://github.com/Shiaoming/ALIKED",
    "disk": "https://github.com/cvlab-epfl/disk",
}
ONNX_PREFIX, ONNX_SUFFIX = "onnx:", ".onnx"


def make_extractor(
    name: str,
    max_keypoints: int = 2000,
    spread: bool = False,
    model: str | Path | None = None,
) -> Extractor:
    """The extractor with this name, for uint8 images, gray (H, W) or BGR (H, W, 3).

    An extractor is deterministic, and several threads may call it at the same time.

    Args:
        name: key of EXTRACTORS, or the kind of features that the ONNX file `model` extracts, such
            as `xfeat`. Without `model`, also an ONNX file (`onnx:model.onnx` or `model.onnx`),
            whose kind is the name of the file.
        max_keypoints: maximum number of keypoints per image; the strongest are kept, in order.
        spread: keep the strongest keypoints of each part of the image, so that one textured
            corner cannot take them all. OpenCV's detectors then run separately for detection and
            description (SIFT: 25 % slower).
        model: ONNX file of a learned extractor, see `onnx.onnx_extractor`.

    Raises:
        FeatureError: unknown name, unusable model file, or `max_keypoints` below 1. The extractor
            itself raises it for images of another type or shape.
    """
    if max_keypoints < 1:
        raise FeatureError(f"max_keypoints is {max_keypoints}; it must be at least 1")
    if not model and (name.startswith(ONNX_PREFIX) or name.endswith(ONNX_SUFFIX)):
        model = name.removeprefix(ONNX_PREFIX)
        name = Path(model).stem.lower()
    if name in EXTRACTORS and not model:
        extract = EXTRACTORS[name](max_keypoints, spread)
    else:
        extract = onnx.onnx_extractor(_model_file(name, model), name, max_keypoints, spread)

    def checked(image: np.ndarray) -> Features:
        _check_image(image)
        return extract(image)

    return checked


def _model_file(name: str, model: str | Path | None) -> Path:
    """The ONNX file of a learned extractor; a missing one is explained."""
    if name in EXTRACTORS:
        raise FeatureError(
            f"{name} takes no extractor model, but {model} is given; name the features that it "
            "extracts, such as xfeat, or leave the model out"
        )
    site = WEIGHTS.get(name)
    source = f"; the authors of {name} publish its weights at {site}" if site else ""
    if not model and site:
        raise FeatureError(
            f"{name} needs an extractor model: give its ONNX file as extractor_model or "
            f"--extractor-model{source}, and docs/features.md shows the export"
        )
    if not model:
        raise FeatureError(
            f"unknown extractor '{name}'; choose one of {', '.join(EXTRACTORS)}, or give the ONNX "
            f"file of a learned one ({', '.join(WEIGHTS)}, ...) as extractor model"
        )
    if not Path(model).is_file():
        problem = "is a folder" if Path(model).is_dir() else "does not exist"
        raise FeatureError(f"extractor model {model} {problem}: check the path{source}")
    return Path(model)


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

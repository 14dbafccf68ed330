"""Common parts of the structure-from-motion readers: pairs by shared 3D points, image files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from lgc_ros.errors import DatasetError
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import read_image
from training.data.files import existing, make_camera
from training.data.scene import PosedImage, PosedScene, pairs_above

SHARED_POINTS_ABOVE = 100
"""The paper's release keeps outdoor pairs that share more 3D points than this."""


def shared_points(count: int, tracks: Iterable[Sequence[int]]) -> np.ndarray:
    """Number (count, count) of 3D points that two images both see; a track lists its images."""
    shared = np.zeros((count, count), dtype=np.int32)
    for track in tracks:
        seen_by = np.unique(track)
        shared[np.ix_(seen_by, seen_by)] += 1
    return shared


def sfm_image(
    folder: Path, name: str, camera: Camera, R_cw: np.ndarray, t_cw: np.ndarray
) -> PosedImage:
    """An image of a model, whose file must be in the folder of images."""
    path = existing(
        folder / name, f"it is part of the model; name the folder of the images (now {folder})"
    )
    return PosedImage(name, camera, R_cw, t_cw, partial(read_image, path), path)


def sfm_scene(
    name: str,
    model: Path,
    images: Sequence[PosedImage],
    tracks: Iterable[Sequence[int]],
    shared_points_above: float,
) -> PosedScene:
    """The scene of a model, its pairs chosen by shared points."""
    if len(images) < 2:
        raise DatasetError(f"{model} has {len(images)} posed images: give a model with at least 2")
    try:
        shared = shared_points(len(images), tracks)
    except IndexError as error:
        raise DatasetError(
            f"{model}: a point is seen by an image that is not there ({error}): export it again"
        ) from error
    return PosedScene(name, tuple(images), pairs_above(shared, shared_points_above))


def centered_camera(
    model: Path, focal: float, size: tuple[int, int], D: Sequence[float]
) -> Camera:
    """A camera of Bundler or VisualSFM, which count pixels from the center of the image."""
    width, height = size
    cx, cy = (width - 1) / 2, (height - 1) / 2
    return make_camera(model, [[focal, 0, cx], [0, focal, cy], [0, 0, 1]], size, D)

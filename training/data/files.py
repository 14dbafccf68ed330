"""Small readers shared by the data layouts; errors name the file and the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import h5py
import numpy as np

from lgc_ros.errors import CameraError, DatasetError, SourceError
from lgc_ros.geometry.camera import Camera
from lgc_ros.sources import files


def existing(path: Path, remedy: str) -> Path:
    """The path itself, if it is there."""
    if not path.exists():
        raise DatasetError(f"{path} is missing: {remedy}")
    return path


def read_lines(path: Path, remedy: str) -> list[str]:
    """Non-empty lines of a text file, stripped, without comments (`#`)."""
    try:
        return files.read_lines(path, remedy)
    except SourceError as error:
        raise DatasetError(str(error)) from error


def read_numbers(path: Path, shape: Sequence[int], remedy: str) -> np.ndarray:
    """All numbers of a text file in the given shape (-1 for a free dimension)."""
    tokens = " ".join(read_lines(path, remedy)).split()
    try:
        values = np.array([float(token) for token in tokens])
    except ValueError as error:
        raise DatasetError(
            f"{path} contains something other than numbers ({error}): {remedy}"
        ) from error
    try:
        values = values.reshape(shape)
    except ValueError as error:
        raise DatasetError(
            f"{path} holds {values.size} numbers, which is not of shape {tuple(shape)}: {remedy}"
        ) from error
    if values.size == 0 or not np.isfinite(values).all():
        state = "is empty" if values.size == 0 else "holds NaN or infinity"
        raise DatasetError(f"{path} {state}: {remedy}")
    return values


def read_hdf5(path: Path, remedy: str) -> dict[str, np.ndarray]:
    """All top-level datasets of an hdf5 file."""
    try:
        with h5py.File(existing(path, remedy), "r") as file:
            return {
                name: np.asarray(item)
                for name, item in file.items()
                if isinstance(item, h5py.Dataset)
            }
    except OSError as error:
        raise DatasetError(f"{path} is not a readable hdf5 file ({error}): {remedy}") from error


def make_camera(
    path: Path,
    K: np.ndarray,
    size: tuple[int, int],
    D: Sequence[float] = (),
    model: str | None = None,
) -> Camera:
    """The camera described in the file `path`, which an error names."""
    try:
        return Camera.from_K(K, *size, D, model)
    except CameraError as error:
        raise DatasetError(f"{path}: {error}") from error


def image_size(path: Path) -> tuple[int, int]:
    """Width and height of an image file."""
    image = cv2.imread(
        str(existing(path, "copy the image there or drop it from the list")),
        cv2.IMREAD_GRAYSCALE | cv2.IMREAD_IGNORE_ORIENTATION,
    )
    if image is None:
        raise DatasetError(f"{path} is not a readable image: replace it or drop it from the list")
    return image.shape[1], image.shape[0]

"""Features read from hdf5 files, as OANet and LIFT write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lgc_ros.errors import FeatureError
from lgc_ros.features.keypoints import (
    Features,
    descriptor_dtype,
    features_from_rows,
    strongest,
)


def read_features(
    path: str | Path, max_keypoints: int | None = None, kind: str | None = None
) -> Features:
    """Read features from an hdf5 file with the data sets `keypoints` and `descriptors`.

    The columns of `keypoints` are x, y, size, angle and response; trailing ones may be missing.
    OANet's `<image>.sift-2000.hdf5` has four columns, LIFT's `<image>.desc.h5` thirteen. Without
    responses the first `max_keypoints` in file order are used. `kind` defaults to the one in the
    file name.
    """
    path = Path(path)
    keypoints, descriptors = _read_hdf5(path)
    if keypoints.ndim != 2 or keypoints.shape[1] < 2 or descriptors.ndim != 2:
        raise FeatureError(
            f"{path}: keypoints of shape {keypoints.shape} and descriptors of shape "
            f"{descriptors.shape}, but both must have one row per keypoint; extract them again"
        )
    if len(keypoints) != len(descriptors):
        raise FeatureError(
            f"{path}: {len(keypoints)} keypoints but {len(descriptors)} descriptors; the file is "
            "corrupt, extract it again"
        )
    kind = kind or kind_of_file(path)
    features = features_from_rows(kind, keypoints, descriptors.astype(descriptor_dtype(kind)))
    return features.subset(strongest(features.responses, max_keypoints))


def stored_beside(image: Path, suffix: str) -> Path:
    """Feature file of an image: `a.jpg.sift-2000.hdf5` or `a.desc.h5` for `a.jpg`."""
    appended = image.with_name(image.name + suffix)
    return appended if appended.is_file() else image.with_name(image.stem + suffix)


def kind_of_file(path: Path) -> str:
    """Kind of features by file name: `a.jpg.sift-2000.hdf5` is sift, `a.desc.h5` is lift."""
    kind = Path(path.stem).suffix.removeprefix(".").split("-")[0].lower()
    return "lift" if kind == "desc" else kind or path.stem.lower()


def _read_hdf5(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        import h5py
    except ImportError as error:
        raise FeatureError(
            f"feature file {path} needs h5py; install it (pip install 'lgc_ros[features]')"
        ) from error
    if not path.is_file():
        raise FeatureError(f"feature file {path} does not exist; check the path")
    try:
        with h5py.File(path, "r") as file:
            return file["keypoints"][()], file["descriptors"][()]
    except KeyError as error:
        raise FeatureError(
            f"feature file {path} lacks 'keypoints' or 'descriptors'; extract it again"
        ) from error
    except OSError as error:
        raise FeatureError(
            f"{path} cannot be read as hdf5 ({error}); extract or copy it again"
        ) from error

"""OANet's pair lists `<seq>-te-1000-pairs.pkl`, read without executing pickled code."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np

from lgc_ros.errors import DatasetError
from training.data.files import existing

# What a pickled numpy integer or array of integers is made of, under numpy 1 and 2 names.
_ALLOWED = {
    (f"numpy.{core}.multiarray", name)
    for core in ("core", "_core")
    for name in ("scalar", "_reconstruct")
} | {("numpy", "dtype"), ("numpy", "ndarray"), ("_codecs", "encode")}


class _PairUnpickler(pickle.Unpickler):
    """Builds containers, integers and numpy integers; refuses to look up anything else."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}")
        return super().find_class(module, name)


def read_pickled_pairs(path: Path, count: int) -> np.ndarray:
    """Pairs (M, 2) of image indices below `count`."""
    remedy = "give a pickled list of (i, j) image indices, as OANet's raw_data/pairs"
    existing(path, remedy)
    try:
        with path.open("rb") as file:
            content = _PairUnpickler(file).load()
        pairs = np.array([[_index(i), _index(j)] for i, j in content])
    except Exception as error:  # a hostile or broken pickle may raise anything
        raise DatasetError(
            f"{path} contains something other than pairs ({error}): {remedy}"
        ) from error
    if len(pairs) == 0:
        raise DatasetError(f"{path} holds no pairs: {remedy}")
    if pairs.min() < 0 or pairs.max() >= count:
        raise DatasetError(
            f"{path} names image {pairs.max()} but there are {count} images: "
            "use the pair list of this sequence and split"
        )
    return pairs


def _index(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"an index of type {type(value).__name__}")
    return int(value)

"""OANet's hdf5 dump of labeled pairs: written so that others can read it, and read back.

Groups `xs ys Rs ts ratios mutuals cx1s cy1s cx2s cy2s f1s f2s`, each with float32 datasets
"0".."N-1", one per pair; and our own `zooms rolls descriptor_distances`, which other readers
ignore.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import h5py
import numpy as np

from lgc_ros.errors import DatasetError

REQUIRED = ("xs", "ys", "Rs", "ts")
OPTIONAL = (
    *("ratios", "mutuals", "zooms", "rolls", "descriptor_distances"),
    *("cx1s", "cy1s", "cx2s", "cy2s", "f1s", "f2s"),
)


@dataclass(frozen=True, eq=False)
class LabeledPair:
    """Putative matches of one image pair with ground truth.

    `xs` (N, 4) normalized coordinates x0 y0 x1 y1; `ys` (N,) squared symmetric epipolar distance
    to the true essential matrix; `R_10` and unit `t_10`; `ratio`, `mutual`, `zoom`, `roll` and
    `descriptor_distance` (N,) as in Correspondences; `K0`, `K1` (3, 3) in pixels. All float32,
    None where a foreign dump has no values.
    """

    xs: np.ndarray
    ys: np.ndarray
    R_10: np.ndarray
    t_10: np.ndarray
    ratio: np.ndarray | None = None
    mutual: np.ndarray | None = None
    zoom: np.ndarray | None = None
    roll: np.ndarray | None = None
    descriptor_distance: np.ndarray | None = None
    K0: np.ndarray | None = None
    K1: np.ndarray | None = None


def write_dump(path: Path, pairs: Iterable[LabeledPair]) -> int:
    """Write the pairs in order; the same pairs give the same bytes. Returns their number."""
    count = -1
    with h5py.File(path, "w") as file:
        groups = {name: file.create_group(name) for name in (*REQUIRED, *OPTIONAL)}
        for count, pair in enumerate(pairs):
            for name, value in _to_oanet(pair).items():
                groups[name].create_dataset(str(count), data=np.asarray(value, dtype=np.float32))
    return count + 1


class Dump:
    """Read access to a dump by pair index; each process that reads opens the file itself."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._file: h5py.File | None = None
        names = [name for name in REQUIRED if name not in self._open()]
        if names:
            raise DatasetError(
                f"{self.path} has no group {', '.join(names)}: it is not an OANet data dump; "
                "make one with `python -m training prepare`"
            )
        self._count = len(self._open()["xs"])
        if any(len(self._open()[name]) != self._count for name in REQUIRED):
            raise DatasetError(f"{self.path} is incomplete: make it again")

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> LabeledPair:
        if not 0 <= index < self._count:
            raise IndexError(f"pair {index} of {self._count}")
        file = self._open()
        raw = {
            name: np.asarray(file[name][str(index)], dtype=np.float32)
            for name in (*REQUIRED, *OPTIONAL)
            if name in file
        }
        return _from_oanet(raw)

    def distances(self) -> Iterator[np.ndarray]:
        """The `ys` of each pair in order, without reading anything else."""
        ys = self._open()["ys"]
        for index in range(self._count):
            distance = np.asarray(ys[str(index)], dtype=np.float32)
            yield distance.reshape(len(distance), -1)[:, 0]

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_file": None}

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> h5py.File:
        if self._file is None:
            try:
                self._file = h5py.File(self.path, "r")
            except OSError as error:
                raise DatasetError(
                    f"{self.path} is not a readable hdf5 dump ({error}): "
                    "make one with `python -m training prepare`"
                ) from error
        return self._file


def _to_oanet(pair: LabeledPair) -> dict[str, np.ndarray]:
    missing = [field.name for field in fields(pair) if getattr(pair, field.name) is None]
    if missing:
        raise ValueError(f"a dump needs {', '.join(missing)} of each pair")
    return {
        "xs": pair.xs.reshape(1, -1, 4),
        "ys": pair.ys.reshape(-1, 1),
        "Rs": pair.R_10,
        "ts": pair.t_10.reshape(3, 1),
        "ratios": pair.ratio,
        "mutuals": pair.mutual,
        "zooms": pair.zoom,
        "rolls": pair.roll,
        "descriptor_distances": pair.descriptor_distance,
        "cx1s": pair.K0[0, 2:3],
        "cy1s": pair.K0[1, 2:3],
        "cx2s": pair.K1[0, 2:3],
        "cy2s": pair.K1[1, 2:3],
        "f1s": pair.K0[[0, 1], [0, 1]],
        "f2s": pair.K1[[0, 1], [0, 1]],
    }


def _from_oanet(raw: dict[str, np.ndarray]) -> LabeledPair:
    xs = raw["xs"].reshape(-1, 4)
    # The paper's own dumps keep a second column (reprojection error) that is not used.
    ys = raw["ys"].reshape(len(xs), -1)[:, 0]
    return LabeledPair(
        xs=xs,
        ys=ys,
        R_10=raw["Rs"].reshape(3, 3),
        t_10=raw["ts"].reshape(3),
        ratio=_column(raw, "ratios"),
        mutual=_column(raw, "mutuals"),
        zoom=_column(raw, "zooms"),
        roll=_column(raw, "rolls"),
        descriptor_distance=_column(raw, "descriptor_distances"),
        K0=_intrinsics(raw, 1),
        K1=_intrinsics(raw, 2),
    )


def _column(raw: dict[str, np.ndarray], name: str) -> np.ndarray | None:
    return raw[name].reshape(-1) if name in raw else None


def _intrinsics(raw: dict[str, np.ndarray], side: int) -> np.ndarray | None:
    names = [f"cx{side}s", f"cy{side}s", f"f{side}s"]
    if any(name not in raw for name in names):
        return None
    cx, cy, focal = (raw[name].reshape(-1) for name in names)
    fx, fy = focal[0], focal[-1]  # one focal length, or two
    return np.array([[fx, 0, cx[0]], [0, fy, cy[0]], [0, 0, 1]], dtype=np.float32)

"""Relative poses predicted by other programs, scored on the same pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lgc_ros.errors import DatasetError
from lgc_ros.evaluation.pair_metrics import NO_POSE_ERROR_DEG, PairScore, pose_error_deg
from lgc_ros.evaluation.pairs import read_pairs
from training.data.batches import open_dump
from training.data.files import read_lines
from training.pair_sets import PairSet, evenly_spaced, read_manifest


def read_poses(path: Path) -> dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]:
    """R_10, t_10 by image names, as another program predicted them."""
    remedy = "each line must hold: name0 name1 R(9 numbers, row by row) t(3 numbers)"
    poses = {}
    for number, line in enumerate(read_lines(path, remedy), start=1):
        fields = line.split()
        try:
            values = np.array([float(value) for value in fields[2:]])
        except ValueError as error:
            raise DatasetError(f"{path}, entry {number}: {error}; {remedy}") from error
        if len(values) != 12 or not np.isfinite(values).all():
            raise DatasetError(f"{path}, entry {number} is not a pose of a pair: {remedy}")
        R_10, t_10 = values[:9].reshape(3, 3), values[9:]
        if np.abs(R_10 @ R_10.T - np.eye(3)).max() > 1e-2 or np.linalg.det(R_10) < 0:
            raise DatasetError(f"{path}, entry {number}: R is not a rotation; {remedy}")
        poses[fields[0], fields[1]] = R_10, t_10
    if not poses:
        raise DatasetError(f"{path} holds no poses: {remedy}")
    return poses


def score_poses(pairs: PairSet, poses: dict, limit: int | None) -> list[PairScore]:
    """Scores of predicted poses: a pair without one counts as failed; empty if no pair has one.

    In a dump the images are named ``<sequence>/<image>``, as `python -m training pairs` does.
    """
    if pairs.in_dump:
        dump, images = open_dump(pairs.path), read_manifest(pairs.path).get("pair_images")
        if images is None:
            return []
        truth = {
            tuple(f"{pairs.name}/{name}" for name in images[i]): (dump[i].R_10, dump[i].t_10)
            for i in evenly_spaced(pairs.in_dump, limit)
        }
    else:
        chosen = evenly_spaced(read_pairs(pairs.path / "pairs.txt"), limit)
        truth = {(pair.name0, pair.name1): (pair.R_10, pair.t_10) for pair in chosen}
    if not truth.keys() & poses.keys():
        return []
    undefined = (np.nan,) * 4
    return [
        PairScore(
            pose_error_deg(*poses[names], *pose) if names in poses else NO_POSE_ERROR_DEG,
            *undefined,
            ms={},
        )
        for names, pose in truth.items()
    ]

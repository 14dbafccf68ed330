"""KITTI odometry sequences: `image_<n>/`, `calib.txt`, `poses.txt`; pairs by frame gap."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from lgc_ros.errors import DatasetError
from lgc_ros.frame import read_image
from training.data.files import existing, image_size, make_camera, read_lines, read_numbers
from training.data.scene import PosedImage, Scene, pairs_by_gap


def read_kitti(folder: Path, camera: int = 0, min_gap: int = 1, max_gap: int = 5) -> Scene:
    """A sequence as seen by one of its cameras; pairs are `min_gap`..`max_gap` frames apart.

    Poses are in `poses.txt` or `<sequence>.txt`, there or in `../../poses` as KITTI ships them.
    """
    folder = Path(folder)
    remedy = "give a KITTI odometry sequence with image_0/, calib.txt and poses.txt"
    paths = sorted(existing(folder / f"image_{camera}", remedy).glob("*.png"))
    if not paths:
        raise DatasetError(f"{folder / f'image_{camera}'} holds no png images: {remedy}.")
    P = _projection(folder / "calib.txt", camera, remedy)
    model = make_camera(folder / "calib.txt", P[:, :3], image_size(paths[0]))
    # The poses are those of camera 0; P = K [I | offset] places the others beside it.
    offset = np.linalg.solve(P[:, :3], P[:, 3])
    pose_path = _pose_path(folder, remedy)
    poses_wc = read_numbers(
        pose_path, (len(paths), 3, 4), f"it must hold a 3x4 pose for each of {len(paths)} images"
    )
    images = []
    for path, pose in zip(paths, poses_wc, strict=True):
        R_cw = pose[:, :3].T
        t_cw = offset - R_cw @ pose[:, 3]
        name = f"image_{camera}/{path.name}"
        images.append(PosedImage(name, model, R_cw, t_cw, partial(read_image, path), path))
    pairs = pairs_by_gap(np.arange(len(images)), min_gap, max_gap)
    return Scene(folder.resolve().name, tuple(images), pairs)


def _projection(path: Path, camera: int, remedy: str) -> np.ndarray:
    for line in read_lines(path, remedy):
        key, _, numbers = line.partition(":")
        if key == f"P{camera}":
            try:
                return np.array(numbers.split(), dtype=float).reshape(3, 4)
            except ValueError as error:
                raise DatasetError(
                    f"{path}: {key} is not 12 numbers ({error}): {remedy}."
                ) from error
    raise DatasetError(f"{path} has no line 'P{camera}:': {remedy}.")


def _pose_path(folder: Path, remedy: str) -> Path:
    name = f"{folder.resolve().name}.txt"
    places = [
        folder / "poses.txt",
        folder / name,
        folder.resolve().parent.parent / "poses" / name,
    ]
    for place in places:
        if place.exists():
            return place
    raise DatasetError(f"no poses in {', '.join(map(str, places))}: {remedy}.")

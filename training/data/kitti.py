"""KITTI odometry sequences: `image_<n>/`, `calib.txt`, `poses.txt`; pairs by frame gap."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from lgc_ros.errors import DatasetError
from lgc_ros.images.frame import read_image
from lgc_ros.sources.files import images_in
from lgc_ros.sources.kitti import T_camera0_camera, find_poses, read_poses, read_projections
from training.data.files import existing, image_size, make_camera
from training.data.scene import PosedImage, PosedScene, pairs_by_gap


def read_kitti(folder: Path, camera: int = 0, min_gap: int = 1, max_gap: int = 5) -> PosedScene:
    """A sequence as seen by one of its cameras; pairs are `min_gap`..`max_gap` frames apart.

    Poses are in `poses.txt` or `<sequence>.txt`, there or in `../../poses` as KITTI ships them.
    """
    folder = Path(folder)
    remedy = "give a KITTI odometry sequence with image_0/, calib.txt and poses.txt"
    paths = images_in(existing(folder / f"image_{camera}", remedy))
    if not paths:
        raise DatasetError(f"{folder / f'image_{camera}'} holds no images: {remedy}")
    P = read_projections(folder / "calib.txt").get(f"P{camera}")
    if P is None:
        raise DatasetError(f"{folder / 'calib.txt'} has no line 'P{camera}:': {remedy}")
    model = make_camera(folder / "calib.txt", P[:, :3], image_size(paths[0]))
    pose_path = find_poses(folder)
    if pose_path is None:
        raise DatasetError(f"{folder} has no poses.txt: {remedy}")
    T_cw = np.linalg.inv(read_poses(pose_path, paths) @ T_camera0_camera(P))
    images = tuple(
        PosedImage(
            name=f"image_{camera}/{path.name}",
            camera=model,
            R_cw=T[:3, :3],
            t_cw=T[:3, 3],
            load=partial(read_image, path),
            path=path,
        )
        for path, T in zip(paths, T_cw, strict=True)
    )
    pairs = pairs_by_gap(np.arange(len(images)), min_gap, max_gap)
    return PosedScene(folder.resolve().name, images, pairs)

"""Strecha's multi-view stereo sets: `images/` and `gt_dense_cameras/<image>.camera`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from lgc_ros.errors import DatasetError
from lgc_ros.images.frame import read_image
from training.data.files import existing, make_camera, read_numbers
from training.data.scene import PosedImage, PosedScene, pairs_above

_ENDINGS = (".jpg", ".jpeg", ".png", ".ppm")


def read_strecha(folder: Path, max_angle_deg: float = 45.0) -> PosedScene:
    """A scene; without visibility, pairs are images that look in similar directions.

    `max_angle_deg` bounds the angle between their optical axes.
    """
    folder = Path(folder)
    remedy = "give a scene folder with images/ and gt_dense_cameras/"
    paths = sorted(
        path
        for path in existing(folder / "images", remedy).iterdir()
        if path.suffix.lower() in _ENDINGS
    )
    if not paths:
        raise DatasetError(
            f"{folder / 'images'} holds no images ({', '.join(_ENDINGS)}): {remedy}"
        )
    images = tuple(_posed_image(folder, path) for path in paths)
    axes = np.stack([image.R_cw[2] for image in images])
    return PosedScene(
        folder.resolve().name,
        images,
        pairs_above(axes @ axes.T, np.cos(np.radians(max_angle_deg))),
    )


def _posed_image(folder: Path, path: Path) -> PosedImage:
    camera_path = folder / "gt_dense_cameras" / f"{path.name}.camera"
    remedy = "it must hold K (9), three zeros, R camera to world (9), center (3), width, height"
    values = read_numbers(camera_path, (26,), remedy)
    K, R_wc, center = values[:9].reshape(3, 3), values[12:21].reshape(3, 3), values[21:24]
    width, height = values[24:].astype(int)
    return PosedImage(
        name=path.name,
        camera=make_camera(camera_path, K, (width, height)),
        R_cw=R_wc.T,
        t_cw=-R_wc.T @ center,
        load=partial(read_image, path),
        path=path,
    )

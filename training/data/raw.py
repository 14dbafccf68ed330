"""Raw layout of the paper's release and of OANet.

A folder holds `images.txt`, `calibration.txt` and `visibility.txt`; line i of each is a path,
relative to the folder, that belongs to image i.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from lgc_ros.errors import ConfigError, DatasetError
from lgc_ros.images.frame import read_image
from training.data.files import (
    existing,
    image_size,
    make_camera,
    read_hdf5,
    read_lines,
    read_numbers,
)
from training.data.pickled_pairs import read_pickled_pairs
from training.data.scene import PosedImage, PosedScene, pairs_above

PRINCIPAL_POINTS = ("offset", "absolute")
"""Where K's principal point counts from: the image center (paper, OANet) or pixel 0, 0 (IMC)."""


def read_raw(
    folder: Path,
    visibility_above: float = 100.0,
    principal_point: str = "offset",
    pairs: str | Path | None = None,
) -> PosedScene:
    """Images of one split folder `<seq>/{train,val,test}` and their pairs.

    `visibility_above` is the paper's threshold: 100 shared points outdoors, 0.5 on SUN3D (OANet:
    50 and 0.35). `pairs` is an OANet pair list that takes the place of the visibility; in its
    path, `{sequence}` stands for the name of the sequence.
    """
    if principal_point not in PRINCIPAL_POINTS:
        raise ConfigError(
            f"principal_point '{principal_point}' is unknown: use 'offset' (from the image center,"
            " the paper's release and OANet) or 'absolute' (in pixels, image-matching benchmark)"
        )
    folder = Path(folder)
    image_paths = _listed(folder, "images.txt")
    calibration_paths = _listed(folder, "calibration.txt", len(image_paths))
    images = tuple(
        _posed_image(folder, image_path, calibration_path, principal_point)
        for image_path, calibration_path in zip(image_paths, calibration_paths, strict=True)
    )
    name = scene_name(folder)
    if pairs is None:
        pair_array = pairs_above(_visibility(folder, len(images)), visibility_above)
    else:
        pair_array = read_pickled_pairs(Path(str(pairs).replace("{sequence}", name)), len(images))
    return PosedScene(name, images, pair_array)


def scene_name(folder: Path) -> str:
    """`<seq>` of `<seq>/{train,val,test}`."""
    folder = folder.resolve()
    return folder.parent.name if folder.name in ("train", "val", "test") else folder.name


def _listed(folder: Path, list_name: str, count: int | None = None) -> list[Path]:
    list_path = folder / list_name
    lines = read_lines(
        list_path, "point at a folder with images.txt, calibration.txt, visibility.txt"
    )
    if not lines:
        raise DatasetError(f"{list_path} is empty: list one path per image")
    if count is not None and len(lines) != count:
        raise DatasetError(
            f"{list_path} lists {len(lines)} files for {count} images: "
            "line i must belong to image i"
        )
    return [
        existing(folder / line, f"restore it, or drop image {number} from all lists of {folder}")
        for number, line in enumerate(lines)
    ]


def _posed_image(
    folder: Path, image_path: Path, calibration_path: Path, principal_point: str
) -> PosedImage:
    remedy = "it must hold K (3x3), R (3x3), T (3) and, for offset principal points, imsize (w, h)"
    data = read_hdf5(calibration_path, remedy)
    values = {}
    for key, shape in {"K": (3, 3), "R": (3, 3), "T": (3,)}.items():
        value = data.get(key)
        if value is None or value.size != np.prod(shape) or not np.isfinite(value).all():
            found = "nothing" if value is None else f"shape {value.shape} or values not finite"
            raise DatasetError(
                f"{calibration_path}: {key} should be {shape}, found {found}: {remedy}"
            )
        values[key] = np.asarray(value, dtype=float).reshape(shape)
    # Some released files have a scalar `imsize`; the size then comes from the image.
    imsize = data.get("imsize")
    has_size = imsize is not None and imsize.size == 2
    width, height = (int(v) for v in imsize.reshape(2)) if has_size else image_size(image_path)
    K = values["K"].copy()
    if principal_point == "offset":
        K[:2, 2] += (width - 1) / 2, (height - 1) / 2
    return PosedImage(
        name=image_path.relative_to(folder).as_posix(),
        camera=make_camera(calibration_path, K, (width, height)),
        R_cw=values["R"],
        t_cw=values["T"],
        load=partial(read_image, image_path),
        path=image_path,
    )


def _visibility(folder: Path, count: int) -> np.ndarray:
    remedy = f"it must hold one number for each of the {count} images"
    return np.stack(
        [read_numbers(path, (count,), remedy) for path in _listed(folder, "visibility.txt", count)]
    )

"""Write image pairs with ground truth in SuperGlue's text format, for `lgc evaluate pairs`.

The format has a K for each image but no distortion: images with distortion are undistorted (same
K, same size), all others are linked or copied.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np

from lgc_ros.errors import CameraError, DatasetError
from lgc_ros.evaluation.pairs import Pair, format_pair
from lgc_ros.geometry.camera import Camera
from lgc_ros.runtime.output_files import complete_file, explained, make_folder, write_file
from lgc_ros.visualization.matches import write_image
from training.data.scene import PosedImage, PosedScene, relative_pose, usable_pairs


def write_pairs(
    scenes: Sequence[PosedScene],
    out: Path,
    limit: int | None = None,
    seed: int = 0,
    copy: bool = False,
) -> int:
    """Write `out/pairs.txt` and the images it names into `out/images`; returns the pair count.

    Each pair is written once, in image order. With a limit, that many are chosen at random.
    """
    names = [scene.name for scene in scenes]
    if len(set(names)) < len(names):
        raise DatasetError(
            f"scenes of the same name ({', '.join(names)}) need folders of their own"
        )
    candidates = [
        (scene, i, j)
        for scene in scenes
        for i, j in np.unique(np.sort(usable_pairs(scene), axis=1), axis=0)
    ]
    if not candidates:
        raise DatasetError(
            f"{', '.join(names)}: no pair is left: lower the threshold or widen the gaps"
        )
    if limit is not None and limit < len(candidates):
        chosen = np.random.default_rng(seed).choice(len(candidates), limit, replace=False)
        candidates = [candidates[number] for number in np.sort(chosen)]

    images: dict[str, PosedImage] = {}
    lines = []
    for scene, i, j in candidates:
        image0, image1 = scene.images[i], scene.images[j]
        name0, name1 = _name(scene, image0), _name(scene, image1)
        images |= {name0: image0, name1: image1}
        K0, K1 = image0.camera.K, image1.camera.K
        # No rotation: images are stored as their cameras expect them.
        pair = Pair(len(lines) + 1, name0, name1, 0, 0, K0, K1, *relative_pose(image0, image1))
        lines.append(format_pair(pair))
    for name, image in images.items():
        _place(image, out / "images" / name, copy)
    write_file(out / "pairs.txt", "\n".join(lines) + "\n")
    return len(lines)


def _name(scene: PosedScene, image: PosedImage) -> str:
    """Name below `images/`: without spaces, which separate the fields of a line."""
    name = Path(scene.name, image.name)
    if image.camera.has_distortion:
        name = name.with_suffix(".png")
    return "_".join(name.as_posix().split())


def _place(image: PosedImage, target: Path, copy: bool) -> None:
    make_folder(target.parent)
    target.unlink(missing_ok=True)
    if image.camera.has_distortion or image.path is None:
        pixels = image.load()
        try:
            image.camera.check_image(pixels)
        except CameraError as error:
            raise DatasetError(f"{image.path or image.name}: {error}") from error
        write_image(target, undistort(pixels, image.camera))
    elif copy:
        with complete_file(target) as temporary:
            shutil.copyfile(image.path, temporary)
    else:
        with explained(target):
            target.symlink_to(image.path.resolve())


def undistort(image: np.ndarray, camera: Camera) -> np.ndarray:
    """The image as a pinhole camera with the same K and size would have taken it."""
    if not camera.has_distortion:
        return image
    return cv2.remap(image, _distorted_pixels(camera), None, cv2.INTER_LINEAR)


@lru_cache(maxsize=1)
def _distorted_pixels(camera: Camera) -> np.ndarray:
    """Where to find each pixel (H, W, 2) of the undistorted image; the same for a whole scene."""
    width, height = camera.size
    u, v = np.meshgrid(np.arange(width), np.arange(height))
    rays = np.column_stack([u.ravel(), v.ravel(), np.ones(u.size)]) @ np.linalg.inv(camera.K).T
    return camera.project(rays).reshape(height, width, 2).astype(np.float32)

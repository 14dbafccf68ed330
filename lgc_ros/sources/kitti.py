"""KITTI odometry: `image_<n>/%06d.png`, `calib.txt`, `times.txt`, and poses where published."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from lgc_ros.errors import CameraError, SourceError
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import Frame, read_image
from lgc_ros.sources.base import GroundTruth, Loader, Source
from lgc_ros.sources.files import first_image_size, images_in, read_lines
from lgc_ros.sources.trajectory import parse_stamp

log = logging.getLogger(__name__)

IMAGE_FOLDERS = ("image_0", "image_1", "image_2", "image_3")
RATE_HZ = 10  # of the recording, where times.txt is missing


def is_kitti(path: Path) -> bool:
    return any((path / name).is_dir() for name in IMAGE_FOLDERS)


def open_kitti(
    path: Path, camera: Camera | None = None, image_folder: str | None = None
) -> Source:
    """A sequence as seen by one of its cameras: the first one there, or that of `image_folder`."""
    path = Path(path)
    if image_folder is None:
        there = (folder for folder in IMAGE_FOLDERS if (path / folder).is_dir())
        image_folder = next(there, IMAGE_FOLDERS[0])
    if not (path / image_folder).is_dir():
        raise SourceError(f"there is no folder {path / image_folder}; check its name")
    images = images_in(path / image_folder)
    if not images:
        raise SourceError(f"{path / image_folder} holds no images")
    P = None
    if (path / "calib.txt").exists():
        P = read_projections(path / "calib.txt").get(image_folder.replace("image_", "P"))
    if camera is None:
        if P is None:
            raise CameraError(
                f"no camera: {path / 'calib.txt'} is missing or has no line for {image_folder}; "
                "restore it, or give the camera of these images with --camera CAM.yaml"
            )
        camera = Camera.from_K(P[:, :3], *first_image_size(images))
    stamps_ns = _read_times(path / "times.txt", images)
    poses, truth = [None] * len(images), None
    if pose_file := find_poses(path):
        poses, truth = read_poses(pose_file, images), GroundTruth(str(pose_file), "xz")
        if P is not None:
            poses = poses @ T_camera0_camera(P)

    def load(index: int) -> Frame:
        image = read_image(images[index])
        name = f"{image_folder}/{images[index].name}"
        return Frame(index, stamps_ns[index], image, camera, poses[index], name=name)

    def loaders() -> list[Loader]:
        return [partial(load, index) for index in range(len(images))]

    return Source(path.resolve().name, camera, loaders, len(images), truth)


def read_projections(path: Path) -> dict[str, np.ndarray]:
    """The (3, 4) projection matrices of calib.txt by name, `P0` to `P3`."""
    projections = {}
    for line in read_lines(path, "it must hold the lines 'P0: ' to 'P3: '"):
        key, _, numbers = line.partition(":")
        if key.startswith("P"):
            projections[key] = _matrix(numbers, path)
    return projections


def T_camera0_camera(P: np.ndarray) -> np.ndarray:
    """Pose (4, 4) of a rectified camera in the frame of camera 0: P = K [I | offset]."""
    T = np.eye(4)
    T[:3, 3] = -np.linalg.solve(P[:, :3], P[:, 3])
    return T


def find_poses(folder: Path) -> Path | None:
    """`poses.txt` or `<sequence>.txt`, there or in `../../poses` as KITTI ships them."""
    folder = folder.resolve()
    name = f"{folder.name}.txt"
    places = (folder / "poses.txt", folder / name, folder.parent.parent / "poses" / name)
    return next((place for place in places if place.exists()), None)


def read_poses(path: Path, images: Sequence[Path]) -> np.ndarray:
    """Camera 0 to world (N, 4, 4) of these images: one line of 3x4 numbers for each."""
    lines = read_lines(path, "it must hold a line of 12 numbers for each image")
    lines = _lines_of(images, lines, path, "poses")
    poses = np.tile(np.eye(4), (len(lines), 1, 1))
    poses[:, :3] = [_matrix(line, path) for line in lines]
    return poses


def _read_times(path: Path, images: Sequence[Path]) -> list[int]:
    if not path.exists():
        log.warning("%s is missing: frames are taken as %d per second", path, RATE_HZ)
        return [index * 10**9 // RATE_HZ for index in range(len(images))]
    try:
        return [
            parse_stamp(line) for line in _lines_of(images, read_lines(path, ""), path, "stamps")
        ]
    except ValueError as error:
        raise SourceError(f"{path}: {error}") from error


def _lines_of(images: Sequence[Path], lines: list[str], path: Path, what: str) -> list[str]:
    """The lines that belong to these images.

    Where some images of a sequence were left out, the number in a name tells the line.
    """
    if len(lines) == len(images):
        return lines
    names = [image.stem for image in images]
    if all(name.isdecimal() and int(name) < len(lines) for name in names):
        return [lines[int(name)] for name in names]
    raise SourceError(
        f"{path} holds {len(lines)} {what} for {len(images)} images, whose names are not the "
        "numbers of its lines, counted from 0: restore it, or name the images so"
    )


def _matrix(text: str, path: Path) -> np.ndarray:
    try:
        return np.array(text.split(), np.float64).reshape(3, 4)
    except ValueError as error:
        raise SourceError(f"{path}: '{text.strip()}' is not 12 numbers; restore it") from error

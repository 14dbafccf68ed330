"""KITTI odometry: `image_<n>/%06d.png`, `calib.txt`, `times.txt`, and poses where published."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import numpy as np

from lgc_ros.camera import Camera
from lgc_ros.errors import CameraError, SourceError
from lgc_ros.frame import Frame, read_image
from lgc_ros.sources.base import Loader, Source
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
    image_folder = image_folder or next(f for f in IMAGE_FOLDERS if (path / f).is_dir())
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
    stamps_ns = _read_times(path / "times.txt", len(images))
    poses = [None] * len(images)
    if pose_file := find_poses(path):
        poses = read_poses(pose_file, len(images))
        if P is not None:
            poses = poses @ T_camera0_camera(P)

    def load(index: int) -> Frame:
        image = read_image(images[index])
        name = f"{image_folder}/{images[index].name}"
        return Frame(index, stamps_ns[index], image, camera, poses[index], name=name)

    def loaders() -> list[Loader]:
        return [partial(load, index) for index in range(len(images))]

    return Source(path.resolve().name, camera, loaders, len(images))


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


def read_poses(path: Path, count: int) -> np.ndarray:
    """Camera 0 to world (count, 4, 4): one line of 3x4 numbers per image."""
    lines = read_lines(path, "it must hold a line of 12 numbers for each image")
    if len(lines) != count:
        raise SourceError(f"{path} holds {len(lines)} poses for {count} images; restore it")
    poses = np.tile(np.eye(4), (count, 1, 1))
    poses[:, :3] = [_matrix(line, path) for line in lines]
    return poses


def _read_times(path: Path, count: int) -> list[int]:
    if not path.exists():
        log.warning("%s is missing: frames are taken as %d per second", path, RATE_HZ)
        return [index * 10**9 // RATE_HZ for index in range(count)]
    try:
        stamps_ns = [parse_stamp(line) for line in read_lines(path, "")]
    except ValueError as error:
        raise SourceError(f"{path}: {error}") from error
    if len(stamps_ns) != count:
        raise SourceError(f"{path} holds {len(stamps_ns)} stamps for {count} images; restore it")
    return stamps_ns


def _matrix(text: str, path: Path) -> np.ndarray:
    try:
        return np.array(text.split(), np.float64).reshape(3, 4)
    except ValueError as error:
        raise SourceError(f"{path}: '{text.strip()}' is not 12 numbers; restore it") from error

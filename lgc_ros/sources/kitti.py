"""KITTI odometry: `image_<n>/%06d.png`, `calib.txt`, `times.txt` and, if published, poses."""

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
from lgc_ros.sources.trajectory import parse_stamp, read_kitti_poses, read_matrix

log = logging.getLogger(__name__)

IMAGE_FOLDERS = ("image_0", "image_1", "image_2", "image_3")
RATE_HZ = 10  # frame rate of the dataset, used if times.txt is missing


def is_kitti(path: Path) -> bool:
    return any((path / name).is_dir() for name in IMAGE_FOLDERS)


def open_kitti(
    path: Path, camera: Camera | None = None, image_folder: str | None = None
) -> Source:
    """A sequence of one camera: that of `image_folder`, or by default the first that exists."""
    path = Path(path)
    if image_folder is None:
        existing = (folder for folder in IMAGE_FOLDERS if (path / folder).is_dir())
        image_folder = next(existing, IMAGE_FOLDERS[0])
    if not (path / image_folder).is_dir():
        raise SourceError(f"folder {path / image_folder} does not exist; check its name")
    images = images_in(path / image_folder)
    if not images:
        raise SourceError(f"{path / image_folder} contains no images")
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
    poses: Sequence[np.ndarray | None] | np.ndarray = [None] * len(images)
    ground_truth = None
    if pose_file := find_poses(path):
        ground_truth = GroundTruth(str(pose_file), "xz")
        poses = read_poses(pose_file, images) @ (np.eye(4) if P is None else T_camera0_camera(P))

    def load(index: int) -> Frame:
        image = read_image(images[index])
        name = f"{image_folder}/{images[index].name}"
        return Frame(index, stamps_ns[index], image, camera, poses[index], name=name)

    def loaders() -> list[Loader]:
        return [partial(load, index) for index in range(len(images))]

    return Source(path.resolve().name, camera, loaders, len(images), ground_truth)


def read_projections(path: Path) -> dict[str, np.ndarray]:
    """The (3, 4) projection matrices of calib.txt by name, `P0` to `P3`."""
    projections = {}
    for line in read_lines(path, "it must contain the lines 'P0: ' to 'P3: '"):
        key, _, numbers = line.partition(":")
        if key.startswith("P"):
            projections[key] = read_matrix(numbers, path)
    return projections


def T_camera0_camera(P: np.ndarray) -> np.ndarray:
    """Pose (4, 4) of a rectified camera in the frame of camera 0: P = K [I | offset]."""
    T = np.eye(4)
    T[:3, 3] = -np.linalg.solve(P[:, :3], P[:, 3])
    return T


def find_poses(folder: Path) -> Path | None:
    """`poses.txt` or `<sequence>.txt` in the folder, or in `../../poses` as published by KITTI."""
    folder = folder.resolve()
    name = f"{folder.name}.txt"
    places = (folder / "poses.txt", folder / name, folder.parent.parent / "poses" / name)
    return next((place for place in places if place.exists()), None)


def read_poses(path: Path, images: Sequence[Path]) -> np.ndarray:
    """Camera 0 to world (N, 4, 4) of these images, from one line of 3x4 numbers per image."""
    lines = read_lines(path, "it must contain a line of 12 numbers per image")
    lines = _lines_of(images, lines, path, "poses")
    return read_kitti_poses(lines, path)


def _read_times(path: Path, images: Sequence[Path]) -> list[int]:
    if not path.exists():
        log.warning("%s is missing: assuming %d frames per second", path, RATE_HZ)
        return [index * 10**9 // RATE_HZ for index in range(len(images))]
    try:
        return [
            parse_stamp(line) for line in _lines_of(images, read_lines(path, ""), path, "stamps")
        ]
    except ValueError as error:
        raise SourceError(f"{path}: {error}") from error


def _lines_of(images: Sequence[Path], lines: list[str], path: Path, what: str) -> list[str]:
    """The lines that belong to these images.

    If images of the sequence were removed, the number in a file name selects the line.
    """
    if len(lines) == len(images):
        return lines
    names = [image.stem for image in images]
    if all(name.isdecimal() and int(name) < len(lines) for name in names):
        return [lines[int(name)] for name in names]
    raise SourceError(
        f"{path} contains {len(lines)} {what} for {len(images)} images, and the image names are "
        "not line numbers counted from 0: restore the file, or rename the images"
    )

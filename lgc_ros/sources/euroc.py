"""EuRoC MAV: `mav0/cam0/{data.csv,sensor.yaml,data/}` and `state_groundtruth_estimate0`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lgc_ros.errors import CameraError, SourceError
from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.camera_files import as_camera, parse_camera_file
from lgc_ros.geometry.trajectory import Trajectory
from lgc_ros.images.frame import Frame, read_image
from lgc_ros.sources.base import GroundTruth, Loader, Source
from lgc_ros.sources.files import read_lines
from lgc_ros.sources.trajectory import trajectory_from_samples

GROUND_TRUTH = "state_groundtruth_estimate0"


def is_euroc(path: Path) -> bool:
    return any((_root(path) / cam / "data.csv").exists() for cam in ("cam0", "cam1"))


def open_euroc(
    path: Path,
    camera: Camera | None = None,
    image_folder: str = "cam0",
) -> Source:
    """The images of `cam0` or `cam1`; ground truth is interpolated at their stamps.

    The published ground truth is that of the body (IMU); `T_BS` in the camera's sensor.yaml
    transforms it to the camera.
    """
    root = _root(Path(path))
    folder = root / image_folder
    sensor = None
    if camera is None:
        sensor = _read_sensor(folder / "sensor.yaml")
        camera = _camera(sensor, folder / "sensor.yaml")
    images = _read_index(folder / "data.csv")
    if not images:
        raise SourceError(f"{folder / 'data.csv'} lists no images")
    trajectory, T_bc, ground_truth = None, None, None
    ground_truth_file = root / GROUND_TRUTH / "data.csv"
    if ground_truth_file.exists():
        trajectory = read_ground_truth(ground_truth_file)
        ground_truth = GroundTruth(str(ground_truth_file), "xy")
        sensor = sensor or _read_sensor(folder / "sensor.yaml")
        T_bc = _T_body_camera(sensor, folder / "sensor.yaml")

    def load(index: int, stamp_ns: int, name: str) -> Frame:
        image = read_image(folder / "data" / name)
        T_wb = trajectory.pose_at(stamp_ns) if trajectory else None
        T_wc = None if T_wb is None else T_wb @ T_bc
        return Frame(index, stamp_ns, image, camera, T_wc, name=f"{image_folder}/data/{name}")

    def loaders() -> list[Loader]:
        return [partial(load, index, *entry) for index, entry in enumerate(images)]

    return Source(root.resolve().parent.name, camera, loaders, len(images), ground_truth)


def read_ground_truth(path: Path) -> Trajectory:
    """Body to world: stamp in ns, position, quaternion (wxyz); further columns are ignored."""
    stamps_ns, poses = [], []
    for line in read_lines(path, "restore it"):
        stamp, *numbers = line.split(",")
        try:
            stamps_ns.append(int(stamp))
            poses.append([float(number) for number in numbers[:7]])
            if len(numbers) < 7:
                raise ValueError(f"{len(numbers) + 1} columns")
        except ValueError as error:
            raise SourceError(
                f"{path}: '{line}' is not a pose ({error}): each line must contain stamp in ns, "
                "x, y, z, qw, qx, qy, qz"
            ) from error
    columns = np.reshape(poses, (-1, 7))
    return trajectory_from_samples(stamps_ns, columns[:, :3], columns[:, 3:], str(path))


def _root(path: Path) -> Path:
    return path / "mav0" if (path / "mav0").is_dir() else path


def _read_index(path: Path) -> list[tuple[int, str]]:
    """Stamps in ns and file names."""
    entries = []
    for line in read_lines(path, "restore it"):
        try:
            stamp, name = line.split(",")
            entries.append((int(stamp), name.strip()))
        except ValueError as error:
            raise SourceError(f"{path}: '{line}' is not 'stamp in ns,file name'") from error
    return entries


def _read_sensor(path: Path) -> Mapping[str, Any]:
    try:
        return parse_camera_file(path)
    except CameraError as error:
        raise CameraError(f"{path}: {error}; or give the camera with --camera CAM.yaml") from error


def _camera(sensor: Mapping[str, Any], path: Path) -> Camera:
    try:
        return as_camera(sensor)
    except CameraError as error:
        raise CameraError(
            f"{path}: {error}; restore it, or give the camera with --camera CAM.yaml"
        ) from error


def _T_body_camera(sensor: Mapping[str, Any], path: Path) -> np.ndarray:
    try:
        T_bc = np.array(sensor["T_BS"]["data"], np.float64).reshape(4, 4)
        if not np.isfinite(T_bc).all():
            raise ValueError("not finite")
        return T_bc
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise SourceError(f"{path}: T_BS is missing or not a 4x4 matrix; restore it") from error

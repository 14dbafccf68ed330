"""The TUM RGB-D layout: rgb.txt, depth.txt and groundtruth.txt, with a camera.yaml."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from lgc_ros.errors import ImageError, SourceError
from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.trajectory import Trajectory
from lgc_ros.images.encoding import decode_unchanged
from lgc_ros.images.frame import Frame, read_image
from lgc_ros.images.stamps import nearest_stamp
from lgc_ros.runtime.output_files import complete_folder, write_file
from lgc_ros.sources.base import DEPTH_WINDOW_NS, GroundTruth, Loader, Source, camera_beside
from lgc_ros.sources.files import read_lines
from lgc_ros.sources.trajectory import (
    format_stamp,
    parse_stamp,
    read_trajectory,
    write_trajectory,
)

log = logging.getLogger(__name__)

DEPTH_FACTOR = 5000  # depth images have the unit 1/5000 m; 0 is unknown


def is_tum(path: Path) -> bool:
    return (path / "rgb.txt").exists()


def open_tum(
    path: Path,
    camera: Camera | None = None,
    depth: bool = True,
    rectified: bool = False,
) -> Source:
    """The color images, with interpolated ground truth and the depth image nearest in time.

    Without `depth`, depth images are not read. Frames in gaps of the ground truth have no pose.
    """
    path = Path(path)
    camera = camera or camera_beside(path / "camera.yaml", rectified=rectified)
    images = read_file_list(path / "rgb.txt")
    if not images:
        raise SourceError(f"{path / 'rgb.txt'} lists no images")
    has_depth = depth and (path / "depth.txt").exists()
    depths = sorted(read_file_list(path / "depth.txt")) if has_depth else []
    depth_stamps_ns = np.array([stamp_ns for stamp_ns, _ in depths], np.int64)
    has_ground_truth = (path / "groundtruth.txt").exists()
    trajectory = read_trajectory(path / "groundtruth.txt") if has_ground_truth else None

    def load(index: int, stamp_ns: int, name: str) -> Frame:
        image = read_image(path / name)
        T_wc = trajectory.pose_at(stamp_ns) if trajectory else None
        nearest = nearest_stamp(depth_stamps_ns, stamp_ns, DEPTH_WINDOW_NS)
        depth_m = None if nearest is None else _read_depth(path / depths[nearest][1])
        return Frame(index, stamp_ns, image, camera, T_wc, depth_m, name)

    def loaders() -> list[Loader]:
        return [partial(load, index, *entry) for index, entry in enumerate(images)]

    ground_truth = GroundTruth(str(path / "groundtruth.txt"), "xy") if has_ground_truth else None
    return Source(path.resolve().name, camera, loaders, len(images), ground_truth)


def read_file_list(path: Path) -> list[tuple[int, str]]:
    """Stamps in ns and file names of rgb.txt or depth.txt, in file order."""
    entries = []
    for line in read_lines(path, "give a TUM sequence with rgb.txt"):
        try:
            stamp, name = line.split(maxsplit=1)
            entries.append((parse_stamp(stamp), name))
        except ValueError as error:
            raise SourceError(f"{path}: '{line}' is not 'stamp file'") from error
    return entries


def _read_depth(path: Path) -> np.ndarray | None:
    """Depth (H, W) in meters; None if it is damaged, because the frame is usable without it."""
    try:
        depth = decode_unchanged(path.read_bytes())
    except (OSError, ImageError):
        depth = None
    if depth is None or depth.ndim != 2 or depth.dtype != np.uint16:
        log.warning("%s is not a readable 16-bit depth image: this frame has no depth", path)
        return None
    return depth.astype(np.float32) / DEPTH_FACTOR


def write_tum(frames: Iterable[Frame], folder: str | Path) -> None:
    """Write frames into a new folder, with depth, ground truth and camera where known.

    Stamps have full nanosecond resolution.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SourceError(f"{folder} already exists and is not an empty folder; choose a new one")
    with complete_folder(folder) as unfinished:
        _write_sequence(frames, unfinished)


def _write_sequence(frames: Iterable[Frame], folder: Path) -> None:
    lists: dict[str, list[str]] = {"rgb": [], "depth": []}
    poses = []
    camera = None
    for frame in frames:
        stamp = format_stamp(frame.stamp_ns)
        lists["rgb"].append(f"{stamp} {_write_png(folder, 'rgb', stamp, frame.image)}")
        if frame.depth is not None:
            depth = np.round(frame.depth * DEPTH_FACTOR)
            depth = np.where(depth <= np.iinfo(np.uint16).max, depth, 0).astype(np.uint16)
            lists["depth"].append(f"{stamp} {_write_png(folder, 'depth', stamp, depth)}")
        if frame.T_wc is not None:
            poses.append((frame.stamp_ns, frame.T_wc))
        camera = camera or frame.camera
    for name, lines in lists.items():
        if lines:
            text = "\n".join(["# timestamp filename", *lines, ""])
            write_file(folder / f"{name}.txt", text)
    if poses:
        write_trajectory(folder / "groundtruth.txt", Trajectory.from_poses(poses))
    if camera is not None:
        camera.to_yaml(folder / "camera.yaml")


def _write_png(folder: Path, kind: str, stamp: str, image: np.ndarray) -> str:
    """Write `kind/stamp.png` and return that relative path."""
    name = f"{kind}/{stamp}.png"
    write_file(folder / name, cv2.imencode(".png", image)[1].tobytes())
    return name

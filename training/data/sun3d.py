"""Original SUN3D sequences: RGB-D video with poses; pairs by depth visibility, as in the paper."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from lgc_ros.errors import DatasetError
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import read_image
from training.data.files import existing, image_size, make_camera, read_numbers
from training.data.scene import PosedImage, PosedScene, pairs_above

log = logging.getLogger(__name__)

MAX_DEPTH_DELAY_US = 50_000  # a depth frame further away in time shows another view
LOOKUP_STEP = 4  # depth is looked up in every 4th row and column,
SAMPLE_STEP = 16  # for pixels of every 16th: 1200 of a VGA image
DEPTH_TOLERANCE = 0.1  # relative; Kinect noise and pose drift stay below, occlusions do not


def read_sun3d(folder: Path, every: int = 10, visibility_above: float = 0.5) -> PosedScene:
    """Every `every`-th image of a sequence.

    A pair is kept if more than `visibility_above` of the pixels of its first image are seen by
    the second one. Poses are those of the newest file in `extrinsics/`.
    """
    folder = Path(folder)
    remedy = "give a SUN3D sequence with image/, depth/, extrinsics/ and intrinsics.txt"
    image_paths = _numbered(folder / "image", remedy)
    depth_paths = _numbered(folder / "depth", remedy)
    poses_wc = _extrinsics(folder / "extrinsics", len(image_paths), remedy)
    K = read_numbers(folder / "intrinsics.txt", (3, 3), remedy)
    camera = make_camera(folder / "intrinsics.txt", K, image_size(image_paths[0]))

    images, depths = [], []
    for path, pose in list(zip(image_paths, poses_wc, strict=True))[::every]:
        depth_path = _nearest_in_time(path, depth_paths)
        if depth_path is None:
            log.warning("%s has no depth within %d us, left out", path, MAX_DEPTH_DELAY_US)
            continue
        R_cw = pose[:, :3].T
        t_cw = -R_cw @ pose[:, 3]
        load = partial(read_image, path)
        images.append(PosedImage(f"image/{path.name}", camera, R_cw, t_cw, load, path))
        depths.append(read_sun3d_depth(depth_path)[::LOOKUP_STEP, ::LOOKUP_STEP])
    if not images:
        raise DatasetError(f"{folder}: no image has a depth frame at its time: {remedy}")
    visibility = depth_visibility(images, depths)
    return PosedScene(
        folder.resolve().name, tuple(images), pairs_above(visibility, visibility_above)
    )


def read_sun3d_depth(path: Path) -> np.ndarray:
    """Depth (H, W) float32 in meters, 0 = unknown; stored as millimeters, bits rotated by 3."""
    stored = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    if stored is None or stored.dtype != np.uint16 or stored.ndim != 2:
        raise DatasetError(
            f"{path} is not a readable 16-bit depth image: download this frame again"
        )
    millimeters = (stored >> 3) | (stored << 13)
    return millimeters.astype(np.float32) / 1000


def depth_visibility(images: list[PosedImage], depths: list[np.ndarray]) -> np.ndarray:
    """Share (N, N) of image i's pixels that image j sees at the depth they should have there.

    The pixels are those with a measured depth, on a coarse grid; `depths` is subsampled by
    LOOKUP_STEP. A pixel hidden behind something nearer in image j is not seen.
    """
    visibility = np.zeros((len(images), len(images)))
    for i, image in enumerate(images):
        points_world = _grid_points(image, depths[i])
        if len(points_world) == 0:
            continue
        for j, other in enumerate(images):
            points = points_world @ other.R_cw.T + other.t_cw
            measured = _look_up(depths[j], other.camera, points)
            seen = (measured > 0) & (np.abs(measured - points[:, 2]) < DEPTH_TOLERANCE * measured)
            visibility[i, j] = seen.mean()
    return visibility


def _grid_points(image: PosedImage, depth: np.ndarray) -> np.ndarray:
    """World points (N, 3) of the grid pixels with depth."""
    step = SAMPLE_STEP // LOOKUP_STEP
    z = depth[::step, ::step]
    v, u = np.nonzero(z)
    normalized = image.camera.normalize(np.column_stack([u, v]) * SAMPLE_STEP)
    points_cam = np.column_stack([normalized, np.ones(len(u))]) * z[v, u][:, None]
    return (points_cam - image.t_cw) @ image.R_cw


def _look_up(depth: np.ndarray, camera: Camera, points_cam: np.ndarray) -> np.ndarray:
    """Measured depth where the points project; 0 outside of the image or behind the camera."""
    pixels = camera.project(points_cam)
    inside = ((pixels >= 0) & (pixels <= np.array(camera.size) - 1)).all(axis=1)
    found = np.zeros(len(points_cam))
    u, v = (pixels[inside] // LOOKUP_STEP).astype(int).T
    found[inside] = depth[v, u]
    return found


def _numbered(folder: Path, remedy: str) -> list[Path]:
    """Files `<index>-<timestamp>.*` in the order of their index."""
    paths = [path for path in existing(folder, remedy).iterdir() if "-" in path.stem]
    if not paths:
        raise DatasetError(f"{folder} holds no files <index>-<timestamp>: {remedy}")
    try:
        return sorted(paths, key=lambda path: int(path.stem.split("-")[0]))
    except ValueError as error:
        raise DatasetError(
            f"{folder} holds a file that is not named <index>-<timestamp> ({error}): remove it"
        ) from error


def _nearest_in_time(image_path: Path, depth_paths: list[Path]) -> Path | None:
    times = np.array([_time_us(path) for path in depth_paths])
    delay = np.abs(times - _time_us(image_path))
    nearest = int(np.argmin(delay))
    return depth_paths[nearest] if delay[nearest] <= MAX_DEPTH_DELAY_US else None


def _time_us(path: Path) -> int:
    return int(path.stem.split("-")[1])


def _extrinsics(folder: Path, count: int, remedy: str) -> np.ndarray:
    """Camera-to-world poses (count, 3, 4)."""
    files = sorted(existing(folder, remedy).glob("*.txt"))
    if not files:
        raise DatasetError(f"{folder} holds no pose file: {remedy}")
    newest = files[-1]  # named by date
    return read_numbers(
        newest, (count, 3, 4), f"it must hold a 3x4 pose for each of {count} images"
    )

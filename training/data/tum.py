"""TUM RGB-D sequences: `rgb.txt`, `groundtruth.txt`, `camera.yaml`; pairs by frame gap."""

from __future__ import annotations

from decimal import InvalidOperation
from functools import partial
from pathlib import Path

from lgc_ros.camera import Camera
from lgc_ros.errors import DatasetError
from lgc_ros.frame import read_image
from training.data.files import existing, read_lines
from training.data.scene import Scene, pairs_by_gap
from training.data.tracked import tracked_images
from training.data.trajectory import read_trajectory, stamp_to_ns


def read_tum(
    folder: Path,
    min_gap: int = 10,
    max_gap: int = 30,
    max_pose_gap_s: float = 0.02,
    camera: str = "camera.yaml",
) -> Scene:
    """A sequence; ground truth is interpolated at the images' stamps.

    Images without a pose within `max_pose_gap_s` are left out; gaps count all frames all the same.
    """
    folder = Path(folder)
    remedy = "give a TUM sequence with rgb.txt, groundtruth.txt and camera.yaml"
    model = Camera.from_yaml(existing(folder / camera, remedy))
    trajectory = read_trajectory(existing(folder / "groundtruth.txt", remedy))
    frames = []
    for line in read_lines(folder / "rgb.txt", remedy):
        try:
            stamp, name = line.split()
            stamp_ns = stamp_to_ns(stamp)
        except (ValueError, InvalidOperation) as error:
            raise DatasetError(f"{folder / 'rgb.txt'}: '{line}' is not 'stamp file'.") from error
        path = existing(folder / name, f"it is listed in {folder / 'rgb.txt'}; restore it")
        frames.append((name, stamp_ns, partial(read_image, path), path))
    images, numbers = tracked_images(frames, model, trajectory, max_pose_gap_s, folder)
    return Scene(folder.resolve().name, images, pairs_by_gap(numbers, min_gap, max_gap))

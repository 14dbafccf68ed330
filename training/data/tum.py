"""TUM RGB-D sequences: `rgb.txt`, `groundtruth.txt`, `camera.yaml`; pairs by frame gap."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import read_image
from lgc_ros.sources.trajectory import read_trajectory
from lgc_ros.sources.tum import read_file_list
from training.data.files import existing
from training.data.scene import PosedScene, pairs_by_gap
from training.data.tracked import tracked_images


def read_tum(
    folder: Path,
    min_gap: int = 10,
    max_gap: int = 30,
    max_pose_gap_s: float = 0.04,
    camera: str = "camera.yaml",
) -> PosedScene:
    """A sequence; ground truth is interpolated at the images' stamps.

    Images in gaps of the ground truth longer than `max_pose_gap_s` are left out; `min_gap` and
    `max_gap` count all frames all the same.
    """
    folder = Path(folder)
    remedy = "give a TUM sequence with rgb.txt, groundtruth.txt and camera.yaml"
    model = Camera.from_yaml(existing(folder / camera, remedy))
    trajectory = read_trajectory(existing(folder / "groundtruth.txt", remedy))
    frames = []
    for stamp_ns, name in read_file_list(existing(folder / "rgb.txt", remedy)):
        path = existing(folder / name, f"it is listed in {folder / 'rgb.txt'}; restore it")
        frames.append((name, stamp_ns, partial(read_image, path), path))
    images, numbers = tracked_images(frames, model, trajectory, max_pose_gap_s, folder)
    return PosedScene(folder.resolve().name, images, pairs_by_gap(numbers, min_gap, max_gap))

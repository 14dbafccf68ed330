"""The TUM RGB-D layout: rgb.txt, depth.txt, groundtruth.txt, and camera.yaml beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import cv2
import numpy as np
from transforms3d.quaternions import mat2quat

from lgc_ros.errors import SourceError
from lgc_ros.frame import Frame

DEPTH_FACTOR = 5000  # depth images hold 1/5000 m; 0 is unknown
Progress = Callable[[Iterable[Frame]], Iterable[Frame]]


def write_tum(source: Iterable[Frame], folder: str | Path, progress: Progress | None = None):
    """Write frames into a new folder; depth, ground truth and camera where frames have them.

    Stamps keep their nanoseconds. `progress` wraps the frames, as `rich.progress.track` does.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SourceError(f"{folder} already exists and is not an empty folder; name a new one")
    lists = {"rgb": [], "depth": [], "groundtruth": []}
    camera = None
    for frame in progress(source) if progress else source:
        stamp = format_stamp(frame.stamp_ns)
        lists["rgb"].append(f"{stamp} {_write_png(folder, 'rgb', stamp, frame.image)}")
        if frame.depth is not None:
            depth = np.round(frame.depth * DEPTH_FACTOR)
            depth = np.where(depth <= np.iinfo(np.uint16).max, depth, 0).astype(np.uint16)
            lists["depth"].append(f"{stamp} {_write_png(folder, 'depth', stamp, depth)}")
        if frame.T_wc is not None:
            w, x, y, z = mat2quat(frame.T_wc[:3, :3])
            numbers = (*frame.T_wc[:3, 3], x, y, z, w)
            lists["groundtruth"].append(f"{stamp} " + " ".join(f"{n:.9f}" for n in numbers))
        camera = camera or frame.camera
    columns = {"rgb": "filename", "depth": "filename", "groundtruth": "tx ty tz qx qy qz qw"}
    for name, lines in lists.items():
        if lines:
            text = "\n".join([f"# timestamp {columns[name]}", *lines, ""])
            (folder / f"{name}.txt").write_text(text)
    if camera is not None:
        camera.to_yaml(folder / "camera.yaml")


def format_stamp(stamp_ns: int) -> str:
    """Nanoseconds as decimal seconds, without loss."""
    return f"{stamp_ns // 10**9}.{stamp_ns % 10**9:09d}"


def _write_png(folder: Path, kind: str, stamp: str, image: np.ndarray) -> str:
    """Write `kind/stamp.png` and return that relative path."""
    name = f"{kind}/{stamp}.png"
    try:
        (folder / kind).mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(cv2.imencode(".png", image)[1].tobytes())
    except OSError as error:
        raise SourceError(f"cannot write {folder / name}: {error.strerror}") from error
    return name

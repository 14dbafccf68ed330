"""Data readers by name: each takes a path and its own options and yields a PosedScene."""

from __future__ import annotations

import glob
import inspect
from collections.abc import Callable
from pathlib import Path

from lgc_ros.errors import ConfigError
from training.data.bundler import read_bundler
from training.data.colmap import read_colmap
from training.data.kitti import read_kitti
from training.data.nvm import read_nvm
from training.data.photos import read_photos
from training.data.raw import read_raw
from training.data.rendered import read_rendered, world_paths
from training.data.rosbag import read_rosbag
from training.data.scene import PosedScene
from training.data.strecha import read_strecha
from training.data.sun3d import read_sun3d
from training.data.tum import read_tum

READERS: dict[str, Callable[..., PosedScene]] = {
    "raw": read_raw,
    "sun3d": read_sun3d,
    "colmap": read_colmap,
    "bundler": read_bundler,
    "nvm": read_nvm,
    "photos": read_photos,
    "strecha": read_strecha,
    "kitti": read_kitti,
    "tum": read_tum,
    "rosbag": read_rosbag,
    "rendered": read_rendered,
}


def scene_paths(reader: str, pattern: str) -> list[str]:
    """Files and folders that match a pattern; for rendered scenes, the worlds it names."""
    return world_paths(pattern) if reader == "rendered" else sorted(glob.glob(pattern))


def read_scene(reader: str, path: Path, options: dict) -> PosedScene:
    """Read a scene with the named reader; wrong names and options raise a ConfigError."""
    if reader not in READERS:
        raise ConfigError(f"unknown reader '{reader}': use one of {', '.join(READERS)}")
    signature = inspect.signature(READERS[reader])
    try:
        signature.bind(path, **options)
    except TypeError as error:
        known = ", ".join(list(signature.parameters)[1:])
        raise ConfigError(f"reader '{reader}': {error}; its options are {known}") from error
    return READERS[reader](path, **options)

"""Sources of frames: one module per kind of input, and `open_source`, which recognizes the kind.

    for frame in open_source("rgbd_dataset_freiburg1_xyz"):
        frame.image, frame.stamp_ns, frame.T_wc

Every `Source` has a `name`, a `camera`, `errors` and, where known, a length and `ground_truth`,
and yields `Frame`s one at a time. `KINDS` lists the supported inputs.
"""

from __future__ import annotations

import inspect
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from lgc_ros.errors import ConfigError, SourceError
from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.camera_checks import camera_warnings
from lgc_ros.sources.bag_reader import is_rosbag
from lgc_ros.sources.base import GroundTruth, Loader, Source
from lgc_ros.sources.camera_choice import SampleImage, choose_camera
from lgc_ros.sources.euroc import is_euroc, open_euroc
from lgc_ros.sources.files import IMAGE_SUFFIXES
from lgc_ros.sources.folder import RATE_HZ, is_folder, open_folder
from lgc_ros.sources.interrupted_recording import check_exists
from lgc_ros.sources.kitti import is_kitti, open_kitti
from lgc_ros.sources.rosbag import open_rosbag
from lgc_ros.sources.stream import is_stream, open_stream
from lgc_ros.sources.synthetic import SyntheticSource, default_camera
from lgc_ros.sources.tum import is_tum, open_tum
from lgc_ros.sources.video import is_video, open_video

__all__ = ["KINDS", "Kind", "Source", "open_source", "open_uncalibrated"]

log = logging.getLogger(__name__)


class Kind(NamedTuple):
    """How an input is recognized, opened and described in error messages."""

    matches: Callable[[Path], bool]
    open: Callable[..., Source]
    looks_like: str


FLAGS = {"rate_hz": "fps"}  # options that the command line calls differently
KINDS: dict[str, Kind] = {
    "kitti": Kind(is_kitti, open_kitti, "image_0/ or image_2/, calib.txt, times.txt, poses.txt"),
    "tum": Kind(is_tum, open_tum, "rgb.txt, depth.txt, groundtruth.txt, camera.yaml"),
    "euroc": Kind(is_euroc, open_euroc, "mav0/cam0/data.csv, mav0/cam0/sensor.yaml"),
    "rosbag": Kind(is_rosbag, open_rosbag, "a rosbag2 folder, an .mcap or a .db3 file"),
    "video": Kind(is_video, open_video, "a video file (.mp4, .avi, ...), camera.yaml beside it"),
    "folder": Kind(is_folder, open_folder, "images of one kind (.png, .jpg, ...), camera.yaml"),
}


def open_source(
    path: str | Path,
    camera: Camera | str | Path | None = None,
    *,
    kind: str | None = None,
    every: int = 1,
    limit: int | None = None,
    gt: str | Path | None = None,
    **options: Any,
) -> Source:
    """Open a dataset, folder, video or bag, recognized by its files, a stream, or synthetic:walk.

    A stream is a device, a URL or a GStreamer pipeline (see `open_stream`). A pattern such as
    `images/*.png` selects images of a folder.

    `camera`, or what `choose_camera` makes of a text, replaces the camera of the source. Every
    `every`-th frame is yielded, at most `limit` of them. `gt` is a TUM file of ground-truth camera
    poses that replace those of the source; for a bag it may also be a topic. Further options
    depend on the kind, such as `image_topic` for a bag (see `open_rosbag`); options that are None
    are ignored.
    """
    options = {name: value for name, value in options.items() if value is not None}
    scheme, _, trajectory = str(path).partition(":")
    if scheme == "synthetic":
        _check_options("synthetic", SyntheticSource, options)
        source = open_synthetic(trajectory or "walk", camera, **options)
    elif is_stream(str(path)):
        source = _open("stream", open_stream, str(path), camera, options)
    else:
        if _is_pattern(Path(path)) and kind in (None, "folder"):
            path, kind, options["pattern"] = Path(path).parent, "folder", Path(path).name
        check_exists(Path(path))
        kind = kind or recognize(Path(path))
        if kind not in KINDS:
            raise ConfigError(f"unknown kind of source '{kind}'; use one of {', '.join(KINDS)}")
        if kind == "rosbag":  # reads topics, and applies the mounting of the camera
            options |= {} if gt is None else {"gt": gt}
            gt = None
        source = _open(kind, KINDS[kind].open, Path(path), camera, options)
    for warning in camera_warnings(source.camera):
        log.warning("%s: %s", source.name, warning)
    if gt is not None:
        source = source.with_ground_truth(gt)
    return source.select(every, limit)


def open_uncalibrated(path: str | Path, **options: Any) -> Source:
    """Open a source whose camera is unknown; a stand-in has only the size of the images right.

    Photos need no stamps: a folder without them is opened without a warning.
    """
    if not is_stream(str(path)) and _is_plain_folder(Path(path)):
        options.setdefault("rate_hz", RATE_HZ)
    source = open_source(path, default_camera(), **options)
    height, width = source.first().image.shape[:2]
    return source.with_camera(Camera.from_K(default_camera().K, width, height))


def _open(
    kind: str,
    opener: Callable[..., Source],
    path: str | Path,
    camera: Camera | str | Path | None,
    options: dict[str, Any],
) -> Source:
    """Open a source; a camera given as text may depend on its images, so they come first."""
    if not isinstance(camera, str | Path):
        _check_options(kind, opener, options)
        return opener(path, camera, **options)
    rectified = options.pop("rectified", False)
    source = _open(kind, opener, path, default_camera(), options)
    return source.with_camera(choose_camera(camera, partial(_sample, source, path), rectified))


def _sample(source: Source, path: str | Path) -> SampleImage:
    """The first image of a source; its file, if it is one."""
    frame = source.first()
    height, width = frame.image.shape[:2]
    file = Path(path) / frame.name
    return SampleImage((width, height), file if file.is_file() else None)


def open_synthetic(
    trajectory: str, camera: Camera | str | Path | None = None, **options: Any
) -> Source:
    """A rendered sequence; options are those of `SyntheticSource`."""
    if isinstance(camera, str | Path):
        camera = choose_camera(camera, lambda: SampleImage(default_camera().size))
    synthetic = SyntheticSource(trajectory, camera=camera, **options)

    def loaders() -> list[Loader]:
        return [partial(synthetic.__getitem__, index) for index in range(len(synthetic))]

    ground_truth = GroundTruth("the synthetic world", "xy")
    return Source(synthetic.name, synthetic.camera, loaders, len(synthetic), ground_truth)


def _is_plain_folder(path: Path) -> bool:
    """Whether a path names images alone, not a dataset."""
    return _is_pattern(path) or (path.is_dir() and recognize(path) == "folder")


def _is_pattern(path: Path) -> bool:
    """Whether a path is a pattern such as `images/*.png` rather than a file or folder."""
    return not path.exists() and any(character in path.name for character in "*?[")


def recognize(path: Path) -> str:
    """The kind of source at a path; other kinds win over a plain folder of images."""
    kinds = [name for name, kind in KINDS.items() if kind.matches(path)]
    if len(kinds) > 1 and "folder" in kinds:
        kinds.remove("folder")
    if len(kinds) > 1:
        raise SourceError(
            f"{path} matches {' and '.join(kinds)} (found {_found(path)}): choose one with "
            "--kind, or give a folder that contains only one of them"
        )
    if not kinds:
        looked_for = "; ".join(f"{name}: {kind.looks_like}" for name, kind in KINDS.items())
        raise SourceError(
            f"{path} is not a known kind of source: found {_found(path)}; expected {looked_for}"
        )
    return kinds[0]


def _found(path: Path) -> str:
    """Contents of a folder, or the type of a file by its name, for error messages."""
    if path.is_file():
        is_image = path.suffix.lower() in IMAGE_SUFFIXES
        return "a single image" if is_image else f"a file ending in '{path.suffix}'"
    folders = sorted(f"{item.name}/" for item in path.iterdir() if item.is_dir())
    suffixes = Counter(item.suffix or item.name for item in path.iterdir() if item.is_file())
    files = [f"{count} {suffix}" for suffix, count in suffixes.most_common()]
    return ", ".join([*folders[:8], *files[:8]]) or "an empty folder"


def _check_options(kind: str, opener: Callable, options: dict[str, Any]) -> None:
    for name in options.keys() - inspect.signature(opener).parameters.keys():
        flag = FLAGS.get(name, name.replace("_", "-"))
        raise ConfigError(f"a source of kind {kind} has no option --{flag}")

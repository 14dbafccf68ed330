"""A video file, with its camera in `<video>.yaml` or `camera.yaml` in the same folder."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import cv2

from lgc_ros.errors import ConfigError, ImageError, SourceError
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import Frame
from lgc_ros.sources.base import Loader, Source, camera_beside

log = logging.getLogger(__name__)

VIDEO_SUFFIXES = {".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".ts", ".webm", ".wmv"}


def is_video(path: Path) -> bool:
    return path.is_file() and path.suffix.lower() in VIDEO_SUFFIXES


def open_video(
    path: Path,
    camera: Camera | None = None,
    rate_hz: float | None = None,
    rectified: bool = False,
) -> Source:
    """Frames stamped by the time of the video, which starts at 0, or by `rate_hz`.

    A rotation flag is not applied, because calibrations refer to the orientation of the sensor.
    """
    path = Path(path)
    if rate_hz is not None and rate_hz <= 0:
        raise ConfigError(f"the rate must be positive, but is {rate_hz:g} Hz")
    camera = camera or camera_beside(
        path.with_suffix(".yaml"), path.with_name("camera.yaml"), rectified=rectified
    )
    capture = _capture(path)
    announced = int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
    capture.release()
    length = announced if announced > 0 else None
    loaders = partial(_loaders, path, camera, rate_hz, length)
    return Source(path.stem, camera, loaders, length)


def _capture(path: Path) -> cv2.VideoCapture:
    capture = cv2.VideoCapture(str(path))
    if not capture.isOpened():
        raise SourceError(
            f"{path} cannot be opened as a video (empty, damaged or in an unknown format): copy "
            "it again, or convert it with `ffmpeg -i IN OUT.mp4`"
        )
    capture.set(cv2.CAP_PROP_ORIENTATION_AUTO, 0)
    return capture


def _loaders(
    path: Path, camera: Camera, rate_hz: float | None, announced: int | None
) -> Iterator[Loader]:
    capture = _capture(path)
    try:
        yield from read_video(capture, path.name, camera, rate_hz, announced)
    finally:
        capture.release()


def read_video(
    capture: cv2.VideoCapture,
    name: str,
    camera: Camera,
    rate_hz: float | None,
    announced: int | None,
) -> Iterator[Loader]:
    """One loader per frame; a video with fewer frames than announced is reported."""
    fps = rate_hz or capture.get(cv2.CAP_PROP_FPS) or 30.0
    stamp_ns = -1
    index = 0

    def load() -> Frame:
        readable, image = capture.retrieve()
        if not readable:
            raise ImageError(f"frame {index} of {name} cannot be decoded")
        return Frame(index, stamp_ns, image, camera, name=f"{name}/{index:06d}")

    while capture.grab():
        # Some containers have no time stamps, or repeat some: fall back to the frame rate.
        time_ns = round(capture.get(cv2.CAP_PROP_POS_MSEC) * 1e6)
        has_time = rate_hz is None and time_ns > stamp_ns
        stamp_ns = time_ns if has_time else max(round(index * 1e9 / fps), stamp_ns + 1)
        yield load
        index += 1
    if announced and index < announced:
        log.warning("%s ends after %d of %d frames: it may be truncated", name, index, announced)

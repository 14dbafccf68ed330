"""Cameras and streams through OpenCV: /dev/video0, a URL, or a GStreamer pipeline.

A live stream yields the newest image whenever the reader is ready for one, as a robot would;
images that come too fast are dropped. A recording behind a URL is read frame by frame.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import cv2
import numpy as np

from lgc_ros.errors import CameraError, SourceError
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import Frame
from lgc_ros.sources.base import Loader, Source
from lgc_ros.sources.video import read_video

DEVICE = re.compile(r"/dev/(video\d+|v4l/\S+)")
URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<login>[^/@]*@)?(?P<host>[^/:?]*).*", re.I)
SILENT_S = 10.0
# OpenCV waits up to 30 s for an image of a pipeline; released before, it would crash.
STOP_S = 35.0


def is_stream(text: str) -> bool:
    """Whether a source is a device, a URL or a GStreamer pipeline rather than a path."""
    return bool(DEVICE.fullmatch(text) or URL.fullmatch(text)) or " ! " in text


def without_login(text: str) -> str:
    """The text, without user name and password if it is a URL that has them."""
    match = URL.fullmatch(text)
    return text.replace(match["login"], "", 1) if match and match["login"] else text


def open_stream(text: str, camera: Camera | None = None) -> Source:
    """Images of a device, URL or pipeline; those of a live stream are stamped when they arrive.

    A pipeline must end in appsink and needs an OpenCV with GStreamer, such as apt's.
    """
    if camera is None:
        raise CameraError(
            f"no camera: give the camera of {without_login(text)} with --camera CAM.yaml, or "
            "guess it with --camera fov:70 (horizontal field of view in degrees)"
        )
    with _capture(text) as capture:
        frames = int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
    length = frames if frames > 0 else None
    return Source(_name(text), camera, partial(_loaders, text, camera, length), length)


def _loaders(text: str, camera: Camera, length: int | None) -> Iterator[Loader]:
    with _capture(text) as capture:
        if length is not None:
            yield from read_video(capture, _name(text), camera, None, length)
            return
        with _newest_images(capture) as newest:
            index = 0
            while (image := newest.wait(text)) is not None:
                yield partial(
                    Frame, index, newest.stamp_ns, image, camera, name=f"{_name(text)}/{index:06d}"
                )
                index += 1


def _name(text: str) -> str:
    """A short name, for the folder of results."""
    if match := URL.fullmatch(text):
        return match["host"] or "stream"
    return "pipeline" if " ! " in text else text.rpartition("/")[2]


@contextmanager
def _capture(text: str) -> Iterator[cv2.VideoCapture]:
    is_pipeline = " ! " in text
    if is_pipeline and not cv2.videoio_registry.hasBackend(cv2.CAP_GSTREAMER):
        raise SourceError(
            "this OpenCV has no GStreamer: install one that has (apt install python3-opencv), or "
            "give a device or URL instead of a pipeline"
        )
    if is_pipeline:
        capture = cv2.VideoCapture(text, cv2.CAP_GSTREAMER)
    elif URL.fullmatch(text) and cv2.videoio_registry.hasBackend(cv2.CAP_FFMPEG):
        # After `_NewestImage.wait` has said that no image came.
        timeout = [cv2.CAP_PROP_READ_TIMEOUT_MSEC, round(1500 * SILENT_S)]
        capture = cv2.VideoCapture(text, cv2.CAP_FFMPEG, timeout)
    else:
        capture = cv2.VideoCapture(text, cv2.CAP_ANY)
    try:
        if not capture.isOpened():
            raise SourceError(
                f"{without_login(text)} cannot be opened: check that it exists, that you may read "
                "it (devices: group video), and that no other program uses it"
            )
        yield capture
    finally:
        capture.release()


class _NewestImage:
    """Reads a live stream in a thread of its own and keeps only the newest image."""

    def __init__(self, capture: cv2.VideoCapture) -> None:
        self.stamp_ns = 0
        self._capture = capture
        self._image: np.ndarray | None = None
        self._arrived_ns = 0
        self._changed = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._read, name="stream", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._over:
            arrived = self._capture.grab()
            arrived_ns = time.time_ns()
            readable, image = self._capture.retrieve() if arrived else (False, None)
            with self._changed:
                if not arrived:
                    self._over = True
                elif readable:
                    self._image, self._arrived_ns = image, arrived_ns
                self._changed.notify()

    def wait(self, name: str) -> np.ndarray | None:
        """The next image, stamped `stamp_ns`; None at the end of the stream."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._image is not None or self._over, SILENT_S):
                raise SourceError(f"{without_login(name)} sent no image for {SILENT_S:g} seconds")
            image, self._image = self._image, None
            self.stamp_ns = max(self._arrived_ns, self.stamp_ns + 1)
            return image

    def stop(self) -> None:
        """Wait for the thread, which still uses the stream."""
        self._over = True
        self._thread.join(STOP_S)


@contextmanager
def _newest_images(capture: cv2.VideoCapture) -> Iterator[_NewestImage]:
    newest = _NewestImage(capture)
    try:
        yield newest
    finally:
        newest.stop()

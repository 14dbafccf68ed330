"""Videos of a run: frames annotated with landmarks, status and the trajectory so far."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np

from lgc_ros.errors import LgcError, OutputError
from lgc_ros.images.frame import Frame
from lgc_ros.odometry.state import OdometryState
from lgc_ros.runtime.output_files import complete_file
from lgc_ros.visualization.matches import score_colors, write_caption

INSET_SHARE = 0.3
# The rate of the video follows from the stamps of the first frames.
RATE_FRAMES = 8
RATES_HZ = 1.0, 120.0
DEFAULT_RATE_HZ = 20.0
PROBE = 4096  # bytes


@contextmanager
def video_writer(path: Path) -> Iterator[VideoWriter]:
    """A writer of a video that appears under its name when it is complete.

    Raises:
        OutputError: the video cannot be written, for instance because the disk is full.
    """
    with complete_file(path) as temporary, _quiet_opencv():
        writer = VideoWriter(temporary)
        try:
            yield writer
        finally:
            writer.close()
        # OpenCV does not report failures to write.
        _probe_disk(temporary)
        if _frames_in(temporary) != writer.frames:
            raise OutputError(f"cannot write {path}: the disk may be full; free some space")


@contextmanager
def _quiet_opencv() -> Iterator[None]:
    """No warning of OpenCV for each frame that does not fit on a full disk."""
    logging = cv2.utils.logging
    before = logging.setLogLevel(logging.LOG_LEVEL_ERROR)
    try:
        yield
    finally:
        logging.setLogLevel(before)


class VideoWriter:
    """Writes annotated frames at the rate of their stamps; see `video_writer`."""

    def __init__(self, path: Path) -> None:
        self.frames = 0
        self._path = path
        self._writer: cv2.VideoWriter | None = None
        self._waiting: list[tuple[int, np.ndarray]] = []
        self._positions: list[np.ndarray] = []

    def add(self, frame: Frame, state: OdometryState) -> None:
        """Append one frame."""
        if state.tracked:
            self._positions.append(state.T_wc[:3, 3])
        picture = draw_state(frame.image, state, self._positions)
        self.frames += 1
        if self._writer is not None:
            self._writer.write(picture)
            return
        self._waiting.append((frame.stamp_ns, picture))
        if len(self._waiting) == RATE_FRAMES:
            self._open()

    def close(self) -> None:
        """Finish the file."""
        if self._waiting:
            self._open()
        if self._writer is not None:
            self._writer.release()

    def _open(self) -> None:
        """Open the file at the rate of the frames so far, and write them."""
        rate_hz = frame_rate([stamp_ns for stamp_ns, _ in self._waiting])
        height, width = self._waiting[0][1].shape[:2]
        # OpenCV's type stubs lack this function.
        codec = cv2.VideoWriter_fourcc(*"mp4v")  # type: ignore[attr-defined]
        self._writer = cv2.VideoWriter(str(self._path), codec, rate_hz, (width, height))
        if not self._writer.isOpened():
            raise LgcError("this build of OpenCV cannot write videos: install another one")
        for _, picture in self._waiting:
            self._writer.write(picture)
        self._waiting = []


def frame_rate(stamps_ns: Sequence[int]) -> float:
    """Frames per second of a video in which these frames last as long as they did."""
    if len(stamps_ns) < 2:
        return DEFAULT_RATE_HZ
    interval_s = float(np.median(np.diff(stamps_ns))) * 1e-9
    low, high = RATES_HZ
    return float(np.clip(round(1 / interval_s, 3), low, high)) if interval_s > 0 else high


def _probe_disk(path: Path) -> None:
    """Raise OSError if nothing more can be written to a file, which stays as it is."""
    size = path.stat().st_size
    try:
        with path.open("ab") as file:
            file.write(bytes(PROBE))
    finally:
        os.truncate(path, size)


def _frames_in(path: Path) -> int:
    """Number of frames of a video; 0 if it is damaged."""
    capture = cv2.VideoCapture(str(path))
    frames = int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
    capture.release()
    return frames


def draw_state(
    image: np.ndarray, state: OdometryState, positions: Sequence[np.ndarray] = ()
) -> np.ndarray:
    """A BGR picture of an image with landmarks, status and the trajectory so far."""
    picture = cv2.cvtColor(image, cv2.COLOR_GRAY2BGR) if image.ndim == 2 else image.copy()
    colors = score_colors(state.scores)[:, ::-1].tolist()
    for (x, y), color in zip(state.points_px, colors, strict=True):
        cv2.circle(picture, (round(x), round(y)), 3, color, 1, cv2.LINE_AA)
    text = f"{state.status}  {len(state.points_px)} landmarks"
    text += "  keyframe" if state.keyframe else ""
    write_caption(picture, [text])
    if len(positions) > 1:
        _draw_path(picture, np.array(positions))
    return picture


def _draw_path(picture: np.ndarray, positions: np.ndarray) -> None:
    """Draw the top view of a path (x right, z up) into the lower right corner."""
    side = round(INSET_SHARE * picture.shape[0])
    inset = picture[-side:, -side:]
    inset //= 3
    plan = positions[:, [0, 2]] * (1, -1)
    low, span = plan.min(axis=0), max(np.ptp(plan, axis=0).max(), 1e-9)
    offset = (1 - np.ptp(plan, axis=0) / span) / 2
    pixels = (((plan - low) / span + offset) * 0.9 + 0.05) * side
    cv2.polylines(inset, [np.round(pixels).astype(np.int32)], False, (255, 200, 0), 1, cv2.LINE_AA)

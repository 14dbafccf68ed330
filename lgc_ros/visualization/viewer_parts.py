"""What the viewers of runs and of nodes share: lines that grow, status, plots and the layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from lgc_ros.visualization.trajectory import STATUS_COLORS

if TYPE_CHECKING:
    from rerun import EncodedImage, RecordingStream
    from rerun.blueprint import Blueprint

JPEG_QUALITY = 80
# A trajectory is drawn in pieces of this many poses: only the last piece is sent again.
PIECE = 64


class TimeLine:
    """Sets the time of what is logged next, in seconds since the first stamp."""

    def __init__(self, recording: RecordingStream) -> None:
        self._recording = recording
        self._first_ns: int | None = None

    def set(self, stamp_ns: int) -> None:
        if self._first_ns is None:
            self._first_ns = stamp_ns
        self._recording.set_time("time", duration=(stamp_ns - self._first_ns) * 1e-9)


class Trail:
    """A growing line, logged in pieces, so that a long run does not send all of it every time.

    It is colored by status, unless it has a `color` (`#rrggbb`) of its own.
    """

    def __init__(self, recording: RecordingStream, path: str, color: str | None = None) -> None:
        self._recording = recording
        self._path = path
        self._color = color
        self._piece = 0
        self._points: list[tuple[np.ndarray, str | None]] = []

    def add(self, position: np.ndarray, status: str | None) -> None:
        """Append a position; there is a gap in the line where the status is None."""
        import rerun

        self._points.append((position, status))
        strips, colors = [], []
        for (a, _), (b, status_b) in zip(self._points, self._points[1:], strict=False):
            if status_b is not None:
                strips.append([a, b])
                colors.append(rgb(self._color or STATUS_COLORS[status_b]))
        line = rerun.LineStrips3D(strips, colors=colors, radii=rerun.Radius.ui_points(1.5))
        self._recording.log(f"{self._path}/{self._piece:05d}", line)
        if len(self._points) > PIECE:
            self._points = self._points[-1:]
            self._piece += 1


class StatusLog:
    """The status as a colored strip, and every change of it as a line of text.

    With several methods, `method` names the one whose status this is.
    """

    def __init__(self, recording: RecordingStream, method: str | None = None) -> None:
        import rerun

        self._recording = recording
        self._path = group_path("status", method)
        self._prefix = f"{method}, " if method else ""
        self._last = ""
        colors = [rgb(color) for color in STATUS_COLORS.values()]
        configuration = rerun.StateConfiguration(values=list(STATUS_COLORS), colors=colors)
        recording.log(self._path, configuration, static=True)

    def add(self, status: str, message: str, is_good: bool) -> None:
        """Note the status; `message` says why it is not good."""
        import rerun

        if status == self._last:
            return
        self._last = status
        self.set(status)
        level = rerun.TextLogLevel.INFO if is_good else rerun.TextLogLevel.WARN
        text = self._prefix + (f"{status}: {message}" if message else status)
        self._recording.log("log", rerun.TextLog(text, level=level))

    def set(self, status: str) -> None:
        """Set the strip at the present time, which may be an earlier one."""
        import rerun

        self._recording.log(self._path, rerun.StateChange(state=status))


def group_path(group: str, method: str | None) -> str:
    """The path of a group of entities, such as `timing`, or that of one of several methods."""
    from rerun import escape_entity_path_part

    return f"{group}/{escape_entity_path_part(method)}" if method else group


def log_numbers(recording: RecordingStream, group: str, values: Mapping[str, float]) -> None:
    """Add values to the plot of a group, such as `timing`."""
    import rerun

    for name, value in values.items():
        recording.log(f"{group}/{name}", rerun.Scalars(value))


def encoded_image(image: np.ndarray) -> EncodedImage:
    """An image, gray or BGR, as JPEG."""
    from rerun import EncodedImage

    data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1]
    return EncodedImage(contents=data.tobytes(), media_type="image/jpeg")


def rgb(color: str) -> tuple[int, int, int]:
    """Red, green and blue of `#rrggbb`."""
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def layout(image: str, methods: int = 1) -> Blueprint:
    """The arrangement: world and status left; the image at this path and plots right.

    Each of the methods has a strip of its own for its status, visible in a window of 600 px.
    """
    from rerun import blueprint as rrb

    legend: Any = rrb.PlotLegend(corner=rrb.Corner2D.RightTop)
    return rrb.Blueprint(
        rrb.Horizontal(
            rrb.Vertical(
                rrb.Spatial3DView(origin="world", name="map and trajectory"),
                rrb.StateTimelineView(origin="/", contents="status/**", name="status"),
                row_shares=[5, 0.6 + 0.55 * methods],
            ),
            rrb.Vertical(
                rrb.Spatial2DView(origin=image, name="image: landmarks by score"),
                rrb.TimeSeriesView(
                    origin="timing", name="time per stage (ms)", plot_legend=legend
                ),
                rrb.Tabs(
                    rrb.TimeSeriesView(
                        origin="counts", name="matches and landmarks", plot_legend=legend
                    ),
                    rrb.TextLogView(origin="log", name="changes of status"),
                ),
                row_shares=[4, 2.5, 2.5],
            ),
            column_shares=[3, 2],
        ),
        rrb.TimePanel(timeline="time", state="collapsed"),
        rrb.SelectionPanel(state="hidden"),
        rrb.BlueprintPanel(state="hidden"),
    )

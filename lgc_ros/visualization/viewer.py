"""A run in the Rerun viewer: what is logged for every frame, on a time line one can scrub.

    world/camera                 pose of the camera
    world/camera/image           its image, with the keypoints of the landmarks by score
    world/camera/inliers         landmarks that the pose rests on, by score
    world/landmarks, keyframes   the map, whenever a keyframe was added
    world/trajectory             estimate, coloured by status, with gaps where it was not tracked
    world/ground_truth           ground truth, aligned with the estimate so far
    status, log                  status of every frame, and the reason where it was not tracked
    counts, timing               matches and landmarks; milliseconds by stage

The world is the camera of the first frame: x right, y down, z forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import cv2
import numpy as np

from lgc_ros.geometry.alignment import align_poses
from lgc_ros.odometry.state import OdometryState
from lgc_ros.visualization.trajectory import STATUS_COLOURS, TRUTH_COLOUR

if TYPE_CHECKING:
    from rerun import RecordingStream
    from rerun.blueprint import Blueprint

    from lgc_ros.geometry.camera import Camera
    from lgc_ros.images.frame import Frame

JPEG_QUALITY = 80
# A trajectory is drawn in pieces of this many poses: only the last piece is sent again.
PIECE = 64
# Ground truth is aligned and sent again when this fraction of poses was added.
REALIGN_SHARE = 0.05
# Lengths of frusta relative to the median depth of landmarks; without a scale source there are no
# metres.
FRUSTUM_SHARE = 0.04
KEYFRAME_COLOUR = (51, 128, 255)
LANDMARK_COLOUR = (150, 150, 150)
# Corners of a unit frustum, visited so that its edges are one line.
FRUSTUM = np.array(
    [
        *([-1, -0.75, 1], [1, -0.75, 1], [0, 0, 0], [1, 0.75, 1], [-1, 0.75, 1]),
        *([0, 0, 0], [-1, -0.75, 1], [-1, 0.75, 1], [1, 0.75, 1], [1, -0.75, 1]),
    ],
    float,
)


class KeyframePose(Protocol):
    """A keyframe of the map: the pose of its camera, world to camera."""

    R_cw: np.ndarray
    t_cw: np.ndarray


class ShownMap(Protocol):
    """Keyframes and landmarks (L, 3) in the world."""

    @property
    def keyframes(self) -> Sequence[KeyframePose]: ...

    @property
    def points(self) -> np.ndarray: ...


class Viewer:
    """Logs frames and their odometry to a recording."""

    def __init__(self, recording: RecordingStream) -> None:
        import rerun

        self._rr = rerun
        self._recording = recording
        self._camera: Camera | None = None
        self._first_ns: int | None = None
        self._frames = 0
        self._status = ""
        self._depth = 1.0
        self._trail = _Trail(self, "world/trajectory")
        self._true: list[np.ndarray] = []
        self._estimated: list[np.ndarray] = []
        self._aligned = 0
        self._log("world", rerun.ViewCoordinates.RDF, static=True)
        colours = [_rgb(colour) for colour in STATUS_COLOURS.values()]
        self._log(
            "status",
            rerun.StateConfiguration(values=list(STATUS_COLOURS), colors=colours),
            static=True,
        )

    def add(
        self, frame: Frame | None, state: OdometryState, shown_map: ShownMap | None = None
    ) -> None:
        """Log one frame; without its image if `frame` is None."""
        self._set_time(state.stamp_ns)
        self._log_camera(state, frame)
        self._log_plots(state)
        self._trail.add(state.T_wc[:3, 3], state.status if state.tracked else None)
        if frame is not None and frame.T_wc is not None:
            self._log_ground_truth(frame.T_wc, state)
        if shown_map is not None and (state.keyframe or self._frames == 0):
            self._log_map(shown_map)
        self._frames += 1

    def _log(self, path: str, entity, static: bool = False) -> None:
        self._recording.log(path, entity, static=static)

    def _set_time(self, stamp_ns: int) -> None:
        if self._first_ns is None:
            self._first_ns = stamp_ns
        self._recording.set_time("time", duration=(stamp_ns - self._first_ns) * 1e-9)
        self._recording.set_time("frame", sequence=self._frames)

    def _log_camera(self, state: OdometryState, frame: Frame | None) -> None:
        rr = self._rr
        T_wc = state.T_wc
        self._log("world/camera", rr.Transform3D(translation=T_wc[:3, 3], mat3x3=T_wc[:3, :3]))
        if len(state.points_cam):
            self._depth = float(np.median(state.points_cam[:, 2]))
        if frame is not None:
            if frame.camera is not None and frame.camera is not self._camera:
                self._camera = frame.camera
                pinhole = rr.Pinhole(
                    image_from_camera=frame.camera.K,
                    resolution=frame.camera.size,
                    image_plane_distance=5 * FRUSTUM_SHARE * self._depth,
                )
                self._log("world/camera/image", pinhole)
            self._log("world/camera/image", _encoded(frame.image))
        colours = score_colours(state.scores)
        keypoints = rr.Points2D(state.points_px, colors=colours, radii=2.5)
        self._log("world/camera/image/inliers", keypoints)
        self._log(
            "world/camera/inliers",
            rr.Points3D(state.points_cam, colors=colours, radii=rr.Radius.ui_points(2.5)),
        )

    def _log_plots(self, state: OdometryState) -> None:
        rr = self._rr
        if state.status != self._status:
            self._log("status", rr.StateChange(state=state.status))
            level = rr.TextLogLevel.INFO if state.tracked else rr.TextLogLevel.WARN
            text = f"{state.status}: {state.message}" if state.message else state.status
            self._log("log", rr.TextLog(text, level=level))
            self._status = state.status
        for name, count in state.counts.items():
            self._log(f"counts/{name}", rr.Scalars(count))
        for stage, milliseconds in state.ms.items():
            self._log(f"timing/{stage}", rr.Scalars(milliseconds))

    def _log_ground_truth(self, T_wc_true: np.ndarray, state: OdometryState) -> None:
        if state.tracked:
            self._true.append(T_wc_true)
            self._estimated.append(state.T_wc)
        count = len(self._true)
        if count < 2 or count - self._aligned < REALIGN_SHARE * count:
            return
        self._aligned = count
        true = np.array(self._true)
        aligned = align_poses(true, np.array(self._estimated))(true[:, :3, 3])
        strip = self._rr.LineStrips3D([aligned], colors=_rgb(TRUTH_COLOUR))
        self._log("world/ground_truth", strip)

    def _log_map(self, shown_map: ShownMap) -> None:
        rr = self._rr
        points = rr.Points3D(
            shown_map.points, colors=LANDMARK_COLOUR, radii=rr.Radius.ui_points(1.5)
        )
        self._log("world/landmarks", points)
        corners = FRUSTUM_SHARE * self._depth * FRUSTUM
        frusta = [(corners - k.t_cw) @ k.R_cw for k in shown_map.keyframes]
        self._log("world/keyframes", rr.LineStrips3D(frusta, colors=KEYFRAME_COLOUR))


class _Trail:
    """A growing line, logged in pieces, so that a long run does not send all of it every time."""

    def __init__(self, viewer: Viewer, path: str) -> None:
        self._viewer = viewer
        self._path = path
        self._piece = 0
        self._points: list[tuple[np.ndarray, str | None]] = []

    def add(self, position: np.ndarray, status: str | None) -> None:
        """Append a position; there is a gap in the line where the status is None."""
        self._points.append((position, status))
        strips, colours = [], []
        for (a, _), (b, status_b) in zip(self._points, self._points[1:], strict=False):
            if status_b is not None:
                strips.append([a, b])
                colours.append(_rgb(STATUS_COLOURS[status_b]))
        rr = self._viewer._rr
        line = rr.LineStrips3D(strips, colors=colours, radii=rr.Radius.ui_points(1.5))
        self._viewer._log(f"{self._path}/{self._piece:05d}", line)
        if len(self._points) > PIECE:
            self._points = self._points[-1:]
            self._piece += 1


def layout() -> Blueprint:
    """The arrangement of the viewer: world left, image, status and plots right."""
    from rerun import blueprint as rrb

    legend = rrb.PlotLegend(corner=rrb.Corner2D.RightTop)
    return rrb.Blueprint(
        rrb.Horizontal(
            rrb.Spatial3DView(origin="world", name="map and trajectory"),
            rrb.Vertical(
                rrb.Spatial2DView(origin="world/camera/image", name="image: landmarks by score"),
                rrb.StateTimelineView(origin="/", contents="status", name="status"),
                rrb.TimeSeriesView(
                    origin="timing", name="time per stage (ms)", plot_legend=legend
                ),
                rrb.Tabs(
                    rrb.TimeSeriesView(
                        origin="counts", name="matches and landmarks", plot_legend=legend
                    ),
                    rrb.TextLogView(origin="log", name="changes of status"),
                ),
                row_shares=[4, 1, 2.5, 2.5],
            ),
            column_shares=[3, 2],
        ),
        rrb.TimePanel(timeline="time", state="collapsed"),
        rrb.SelectionPanel(state="hidden"),
        rrb.BlueprintPanel(state="hidden"),
    )


def score_colours(scores: np.ndarray) -> np.ndarray:
    """RGB (N, 3), from yellow (low score) to green (high score), as in videos of a run."""
    scores = np.clip(np.asarray(scores, float), 0, 1)
    return np.column_stack(
        [np.round(220 * (1 - scores)), np.full(len(scores), 220), np.zeros(len(scores))]
    ).astype(np.uint8)


def _rgb(colour: str) -> tuple[int, int, int]:
    """Red, green and blue of `#rrggbb`."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _encoded(image: np.ndarray):
    from rerun import EncodedImage

    data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1]
    return EncodedImage(contents=data.tobytes(), media_type="image/jpeg")

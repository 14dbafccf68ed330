"""A run in the Rerun viewer: what is logged for every frame, on a time line one can scrub.

    world/camera                 pose of the camera
    world/camera/image           its image, with the keypoints of the landmarks by score
    world/camera/inliers         landmarks used by the pose, by score
    world/landmarks, keyframes   the map, whenever a keyframe was added
    world/trajectory             estimate, colored by status, with gaps where it was not tracked
    world/ground_truth           ground truth, aligned with the estimate so far
    status, log                  status of every frame, and the reason where it was not tracked
    counts, timing               matches and landmarks; milliseconds by stage

The world is the camera of the first frame: x right, y down, z forward.

Several methods are shown in the world of the first one, which alone shows images, landmarks,
keyframes and ground truth. For each there are

    world/methods/METHOD         name and trajectory in its color, aligned with the first method
    status, counts, timing       with METHOD at the end of the path
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from lgc_ros.geometry.alignment import align_poses, align_trajectories
from lgc_ros.geometry.trajectory import Trajectory
from lgc_ros.odometry.state import OK, OdometryState
from lgc_ros.visualization.matches import score_colors
from lgc_ros.visualization.paths import LINE_COLORS, TRUTH_COLOR
from lgc_ros.visualization.trajectory import STATUS_COLORS
from lgc_ros.visualization.viewer_parts import (
    StatusLog,
    TimeLine,
    Trail,
    encoded_image,
    group_path,
    log_numbers,
    rgb,
)

if TYPE_CHECKING:
    from rerun import RecordingStream

    from lgc_ros.geometry.camera import Camera
    from lgc_ros.images.frame import Frame

IMAGE = "world/camera/image"
# Ground truth and further methods are aligned again when this fraction of poses was added.
REALIGN_SHARE = 0.05
# Sizes of keyframes and of the image in space, relative to the median depth of landmarks; without
# a scale source there are no meters.
FRUSTUM_SHARE, IMAGE_SHARE = 0.04, 0.2
KEYFRAME_COLOR = (51, 128, 255)
LANDMARK_COLOR = (150, 150, 150)
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


class ComparedMethod(NamedTuple):
    """One of several methods in a viewer."""

    name: str
    color: str  # #rrggbb
    first: Viewer | None  # the viewer of the first method, to align with; None for that one


class Viewer:
    """Logs frames and their odometry to a recording.

    With `method`, it is one of several in the same recording, see `method_viewers`.
    """

    def __init__(self, recording: RecordingStream, method: ComparedMethod | None = None) -> None:
        import rerun

        self._rr = rerun
        self._recording = recording
        self._time = TimeLine(recording)
        self._method = method
        self._first = method.first if method else None
        name = method.name if method else None
        self._root = group_path("world/methods", name) if method else "world"
        self._camera_path = f"{self._root}/camera" if self._first else "world/camera"
        self._counts, self._timing = group_path("counts", name), group_path("timing", name)
        color = method.color if method else None
        self._trail = Trail(recording, f"{self._root}/trajectory", color)
        self._revised_color = rgb(color or STATUS_COLORS[OK])
        self._status = StatusLog(recording, name)
        self._camera: Camera | None = None
        self._depth = 1.0  # median of the landmarks in view
        self._frames = 0
        self._index: dict[int, int] = {}  # of frames, by stamp
        self._poses: dict[int, np.ndarray] = {}  # T_wc of tracked frames, by stamp
        self._true: list[np.ndarray] = []
        self._estimated: list[np.ndarray] = []
        self._aligned = 0
        recording.log("world", rerun.ViewCoordinates.RDF, static=True)

    def add(
        self, frame: Frame | None, state: OdometryState, shown_map: ShownMap | None = None
    ) -> None:
        """Log one frame; without its image if `frame` is None."""
        self._index[state.stamp_ns] = self._frames
        self._set_time(state.stamp_ns, self._frames)
        if len(state.points_cam):
            self._depth = float(np.median(state.points_cam[:, 2]))
        self._log_pose(state.T_wc)
        self._trail.add(state.T_wc[:3, 3], state.status if state.tracked else None)
        self._status.add(state.status, state.message, state.tracked)
        log_numbers(self._recording, self._counts, state.counts)
        log_numbers(self._recording, self._timing, state.ms)
        if state.tracked:
            self._poses[state.stamp_ns] = state.T_wc
        if self._first is None:
            self._log_scene(frame, state, shown_map)
        else:
            self._align_with(self._first)
        self._frames += 1

    def revise(self, states: Sequence[OdometryState]) -> None:
        """Replace the poses of earlier frames, which were estimated later than the frames came."""
        known = [state for state in states if state.stamp_ns in self._index]
        for state in known:
            self._set_time(state.stamp_ns, self._index[state.stamp_ns])
            self._log_pose(state.T_wc)
            self._status.set(state.status)
            self._poses[state.stamp_ns] = state.T_wc
        if len(known) > 1:
            positions = [state.T_wc[:3, 3] for state in known]
            line = self._rr.LineStrips3D(
                [positions], colors=self._revised_color, radii=self._rr.Radius.ui_points(1.5)
            )
            self._recording.log(f"{self._root}/trajectory/revised/{self._frames:05d}", line)

    def _set_time(self, stamp_ns: int, index: int) -> None:
        self._time.set(stamp_ns)
        self._recording.set_time("frame", sequence=index)

    def add_cloud(self, path: Path) -> None:
        """Show a point cloud (PLY) in the world, at all times."""
        self._recording.log_file_from_path(path, entity_path_prefix="world", static=True)

    def _log_pose(self, T_wc: np.ndarray) -> None:
        pose = self._rr.Transform3D(translation=T_wc[:3, 3], mat3x3=T_wc[:3, :3])
        self._recording.log(self._camera_path, pose)
        if self._method:
            point = self._rr.Points3D(
                [T_wc[:3, 3]],
                labels=self._method.name,
                colors=rgb(self._method.color),
                radii=self._rr.Radius.ui_points(4),
            )
            self._recording.log(f"{self._root}/name", point)

    def _log_scene(
        self, frame: Frame | None, state: OdometryState, shown_map: ShownMap | None
    ) -> None:
        """Log image, landmarks, keyframes and ground truth."""
        if frame is not None:
            self._log_image(frame)
        self._log_inliers(state)
        if frame is not None and frame.T_wc is not None and state.tracked:
            self._log_ground_truth(frame.T_wc, state.T_wc)
        if shown_map is not None and (state.keyframe or self._frames == 0):
            self._log_map(shown_map)

    def _log_image(self, frame: Frame) -> None:
        if frame.camera is not None and frame.camera is not self._camera:
            self._camera = frame.camera
            self._log_intrinsics()
        self._recording.log(IMAGE, encoded_image(frame.image))

    def _log_intrinsics(self) -> None:
        """Log the camera; the size at which its image is shown in space follows the scene."""
        if self._camera is not None:
            pinhole = self._rr.Pinhole(
                image_from_camera=self._camera.K,
                resolution=self._camera.size,
                image_plane_distance=IMAGE_SHARE * self._depth,
            )
            self._recording.log(IMAGE, pinhole)

    def _log_inliers(self, state: OdometryState) -> None:
        colors, size = score_colors(state.scores), self._rr.Radius.ui_points(2.5)
        keypoints = self._rr.Points2D(state.points_px, colors=colors, radii=size)
        self._recording.log(f"{IMAGE}/inliers", keypoints)
        landmarks = self._rr.Points3D(state.points_cam, colors=colors, radii=size)
        self._recording.log("world/camera/inliers", landmarks)

    def _log_ground_truth(self, T_wc_true: np.ndarray, T_wc: np.ndarray) -> None:
        self._true.append(T_wc_true)
        self._estimated.append(T_wc)
        if not self._is_alignment_due(len(self._true)):
            return
        true = np.array(self._true)
        aligned = align_poses(true, np.array(self._estimated))(true[:, :3, 3])
        line = self._rr.LineStrips3D([aligned], colors=rgb(TRUTH_COLOR))
        self._recording.log("world/ground_truth", line)

    def _align_with(self, first: Viewer) -> None:
        """Move this method into the world of the first one."""
        if not self._is_alignment_due(len(self._poses)):
            return
        own, other = (Trajectory.from_poses(sorted(v._poses.items())) for v in (self, first))
        alignment = align_trajectories(own, other)
        if alignment is not None:
            scaled = alignment.scale * alignment.R
            move = self._rr.Transform3D(translation=alignment.t, mat3x3=scaled)
            self._recording.log(self._root, move)

    def _is_alignment_due(self, count: int) -> bool:
        if count < 2 or count - self._aligned < REALIGN_SHARE * count:
            return False
        self._aligned = count
        return True

    def _log_map(self, shown_map: ShownMap) -> None:
        self._log_intrinsics()
        points = self._rr.Points3D(
            shown_map.points, colors=LANDMARK_COLOR, radii=self._rr.Radius.ui_points(1.5)
        )
        self._recording.log("world/landmarks", points)
        corners = FRUSTUM_SHARE * self._depth * FRUSTUM
        frusta = [(corners - k.t_cw) @ k.R_cw for k in shown_map.keyframes]
        self._recording.log(
            "world/keyframes", self._rr.LineStrips3D(frusta, colors=KEYFRAME_COLOR)
        )


def method_viewers(recording: RecordingStream, methods: Sequence[str]) -> dict[str, Viewer]:
    """A viewer for each method, all in one recording; the first method must be shown first."""
    if len(methods) == 1:
        return {methods[0]: Viewer(recording)}
    viewers: dict[str, Viewer] = {}
    for method, color in zip(methods, cycle(LINE_COLORS), strict=False):
        first = next(iter(viewers.values()), None)
        viewers[method] = Viewer(recording, ComparedMethod(method, color, first))
    return viewers

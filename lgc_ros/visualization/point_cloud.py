"""The landmarks of a run as one colored point cloud."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lgc_ros.geometry.camera import Camera
from lgc_ros.images.encoding import image_from_message
from lgc_ros.images.frame import Frame
from lgc_ros.images.stamps import stamp_ns
from lgc_ros.odometry.state import OdometryState
from lgc_ros.runtime.output_files import write_file
from lgc_ros.sources.bag_reader import open_bag, topic_connections
from lgc_ros.sources.bag_types import IMAGE_TYPES

if TYPE_CHECKING:
    from lgc_ros.evaluation.trajectory_metrics import TrajectoryErrors

MARKER_TYPES = ("visualization_msgs/msg/MarkerArray",)
CELL_M = 0.03
# Distant points are uncertain along the ray; those beyond this multiple of the median depth are
# dropped.
MAX_DEPTH_RATIO = 2.5
# Without metric scale, cells are this share of the median depth.
CELL_DEPTHS = 0.01
MAX_POINTS = 50_000
# Between keyframes, neighboring frames show the same landmarks.
EVERY = 5


class PointCloud(NamedTuple):
    """Points (N, 3) and their RGB colors (N, 3) uint8."""

    points: np.ndarray = np.empty((0, 3))
    colors: np.ndarray = np.empty((0, 3), np.uint8)


class LandmarkCloud:
    """Collects the landmarks used by the poses of a run, in the world of its trajectory."""

    def __init__(self) -> None:
        self._frames = 0
        self._depths: list[float] = []
        self._points = [np.empty((0, 3), np.float32)]
        self._colors = [np.empty((0, 3), np.uint8)]

    def add(self, frame: Frame, state: OdometryState) -> None:
        """Add the landmarks of a tracked frame."""
        if not state.tracked or not len(state.points_cam):
            return
        self._frames += 1
        if not state.keyframe and self._frames % EVERY:
            return
        z = state.points_cam[:, 2]
        near = (z > 0) & (z < MAX_DEPTH_RATIO * np.median(z))
        if not near.any():
            return
        image = frame.image if frame.image.ndim == 3 else np.dstack([frame.image] * 3)
        last = np.array(image.shape[1::-1]) - 1
        x, y = np.clip(np.round(state.points_px[near]).astype(int), 0, last).T
        world = state.points_cam[near] @ state.T_wc[:3, :3].T + state.T_wc[:3, 3]
        self._depths.append(float(np.median(z[near])))
        self._points.append(world.astype(np.float32))
        self._colors.append(image[y, x, ::-1])

    def result(self, max_points: int = MAX_POINTS) -> PointCloud:
        """One point per cell of 1 % of the median depth; none where only one was seen."""
        if not self._depths:
            return PointCloud()
        cell = CELL_DEPTHS * float(np.median(self._depths))
        points, colors = np.concatenate(self._points), np.concatenate(self._colors)
        return PointCloud(*_thinned(points, colors, max_points, cell))


def write_ply(path: Path, cloud: PointCloud, comment: str) -> None:
    """Write a colored point cloud in binary PLY."""
    header = (
        f"ply\nformat binary_little_endian 1.0\ncomment {comment}\n"
        f"element vertex {len(cloud.points)}\n"
        "property float x\nproperty float y\nproperty float z\n"
        "property uchar red\nproperty uchar green\nproperty uchar blue\nend_header\n"
    )
    vertices = np.empty(len(cloud.points), [("xyz", "<f4", 3), ("rgb", "u1", 3)])
    vertices["xyz"], vertices["rgb"] = cloud.points, cloud.colors
    write_file(path, header.encode() + vertices.tobytes())


def landmark_cloud(
    bag: Path,
    image_topic: str,
    recording: Path,
    marker_topic: str,
    camera: Camera,
    errors: TrajectoryErrors,
    max_points: int = 9000,
) -> PointCloud:
    """The landmarks of a recording in the world of the ground truth, in meters.

    The points of the markers `inliers` are in the camera frame. The aligned poses of `errors` map
    them to the world, and the images of the bag give them colors. One point is kept per cell of
    3 cm, and none where only one was seen.
    """
    poses = dict(zip(errors.aligned.stamps_ns.tolist(), errors.aligned.T_wc, strict=True))
    views = {
        marker_ns: points
        for marker_ns, points in _markers(recording, marker_topic).items()
        if marker_ns in poses and len(points)
    }
    points, colors = [np.empty((0, 3))], [np.empty((0, 3), np.uint8)]
    with open_bag(bag, quiet=True) as reader:
        images = topic_connections(reader, bag, image_topic, IMAGE_TYPES)
        for connection, _, data in reader.messages(images):
            message: Any = reader.deserialize(data, connection.msgtype)
            image_ns = stamp_ns(message.header.stamp)
            if image_ns not in views:
                continue
            cam = views[image_ns]
            cam = cam[(cam[:, 2] > 0) & (cam[:, 2] < MAX_DEPTH_RATIO * np.median(cam[:, 2]))]
            image = image_from_message(message)
            x, y = np.round(camera.project(cam)).astype(int).T
            inside = (x >= 0) & (x < camera.width) & (y >= 0) & (y < camera.height)
            colors.append(image[y[inside], x[inside], ::-1])
            T_wc = poses[image_ns]
            points.append(cam[inside] * errors.scale @ T_wc[:3, :3].T + T_wc[:3, 3])
    return PointCloud(
        *_thinned(np.concatenate(points), np.concatenate(colors), max_points, CELL_M)
    )


def _markers(recording: Path, topic: str) -> dict[int, np.ndarray]:
    """Points (N, 3) of the markers `inliers` by stamp."""
    found = {}
    with open_bag(recording, quiet=True) as reader:
        markers = topic_connections(reader, recording, topic, MARKER_TYPES)
        for connection, _, data in reader.messages(markers):
            message: Any = reader.deserialize(data, connection.msgtype)
            for marker in message.markers:
                if marker.ns == "inliers":
                    points = [(p.x, p.y, p.z) for p in marker.points]
                    found[stamp_ns(marker.header.stamp)] = np.reshape(points, (-1, 3))
    return found


def _thinned(
    points: np.ndarray, colors: np.ndarray, max_points: int, cell: float
) -> tuple[np.ndarray, np.ndarray]:
    """One point per cell that was seen more than once, evenly selected."""
    cells = np.floor(points / cell).astype(np.int64)
    _, first, counts = np.unique(cells, axis=0, return_index=True, return_counts=True)
    kept = np.sort(first[counts > 1])
    if len(kept) > max_points:
        kept = kept[np.linspace(0, len(kept) - 1, max_points).round().astype(int)]
    return points[kept], colors[kept]

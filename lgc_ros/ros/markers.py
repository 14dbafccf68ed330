"""Views for RViz: markers of landmarks, rejected matches and keyframes, and an annotated image."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from builtin_interfaces.msg import Duration
from std_msgs.msg import ColorRGBA, Header
from visualization_msgs.msg import Marker, MarkerArray

from lgc_ros.odometry.map import Keyframe
from lgc_ros.odometry.state import OdometryState
from lgc_ros.ros.messages import point_message
from lgc_ros.visualization.matches import GREEN, RED, write_caption

REJECTED = ColorRGBA(r=0.86, g=0.16, b=0.16, a=0.5)
KEYFRAME = ColorRGBA(r=0.2, g=0.5, b=1.0, a=0.9)
# There are often more outliers than inliers: they must not hide the image.
REJECTED_OPACITY = 0.35
# Markers expire if they are not updated; this allows for a slow machine.
LIFETIME = Duration(sec=3)
# Sizes are relative to the median depth, because without a scale source there are no metres.
POINT_SIZE, LINE_WIDTH, KEYFRAME_SIZE = 0.008, 0.002, 0.05
# Rejected matches have no depth: a segment of their ray near the median depth is shown.
RAY = (0.9, 1.0)
# Corners of a unit camera frustum with its centre (last), and the edges between them.
CORNERS = np.array([[-1, -0.75, 1], [1, -0.75, 1], [1, 0.75, 1], [-1, 0.75, 1], [0, 0, 0]])
EDGES = np.array([(0, 1), (1, 2), (2, 3), (3, 0), (0, 4), (1, 4), (2, 4), (3, 4)]).ravel()


def inlier_markers(
    header: Header, state: OdometryState, keyframes: Sequence[Keyframe]
) -> MarkerArray:
    """Markers in the camera frame, given by the header.

    Landmarks used for the pose, from red to green by score; rays of rejected matches in red;
    keyframes in blue.
    """
    depth = float(np.median(state.points_cam[:, 2])) if len(state.points_cam) else 1.0
    points = _marker(header, "inliers", Marker.POINTS, state.points_cam)
    points.scale.x = points.scale.y = POINT_SIZE * depth
    points.colors = [
        ColorRGBA(r=float(1 - score), g=float(score), b=0.1, a=1.0) for score in state.scores
    ]
    rays = _marker(header, "rejected", Marker.LINE_LIST, _rejected_rays(state, depth))
    rays.scale.x, rays.color = LINE_WIDTH * depth, REJECTED
    cameras = _marker(header, "keyframes", Marker.LINE_LIST, _frusta(state, keyframes, depth))
    cameras.scale.x, cameras.color = LINE_WIDTH * depth, KEYFRAME
    return MarkerArray(markers=[points, rays, cameras])


def _marker(header: Header, namespace: str, kind: int, points: np.ndarray) -> Marker:
    """A marker of many points with a constant id, so that it replaces the previous one."""
    marker = Marker(header=header, ns=namespace, id=0, type=kind, lifetime=LIFETIME)
    marker.action = Marker.ADD if len(points) else Marker.DELETE
    marker.pose.orientation.w = 1.0
    marker.points = [point_message(point) for point in points]
    return marker


def _rejected_rays(state: OdometryState, depth: float) -> np.ndarray:
    """(2 N, 3) end points of ray segments of the rejected matches."""
    if state.relative is None:
        return np.empty((0, 3))
    x = state.relative.correspondences.x1[~state.relative.inliers]
    rays = np.column_stack([x, np.ones(len(x))])
    return (rays[:, None] * (depth * np.array(RAY)[:, None])).reshape(-1, 3)


def _frusta(state: OdometryState, keyframes: Sequence[Keyframe], depth: float) -> np.ndarray:
    """(M, 3) end points of the frustum edges of all keyframes, in the camera frame."""
    T_cw = np.linalg.inv(state.T_wc)
    corners = KEYFRAME_SIZE * depth * CORNERS[EDGES]
    edges = [corners @ keyframe.R_cw + keyframe.center for keyframe in keyframes]
    return np.concatenate(edges or [np.empty((0, 3))]) @ T_cw[:3, :3].T + T_cw[:3, 3]


def matches_picture(image: np.ndarray, state: OdometryState) -> np.ndarray:
    """BGR image with the motion of each keypoint since the keyframe: inliers green, others red."""
    picture = cv2.cvtColor(image, cv2.COLOR_GRAY2BGR) if image.ndim == 2 else image.copy()
    result = state.relative
    if result is not None:
        c = result.correspondences
        tracks = np.round(np.stack([c.p0, c.p1], axis=1)).astype(np.int32)
        clean = picture.copy()
        cv2.polylines(picture, list(tracks[~result.inliers]), False, RED, 1, cv2.LINE_AA)
        cv2.addWeighted(picture, REJECTED_OPACITY, clean, 1 - REJECTED_OPACITY, 0, dst=picture)
        cv2.polylines(picture, list(tracks[result.inliers]), False, GREEN, 1, cv2.LINE_AA)
        for x, y in tracks[result.inliers, 1]:
            cv2.circle(picture, (int(x), int(y)), 2, GREEN, -1, cv2.LINE_AA)
    inliers, matches = (state.counts.get(name, 0) for name in ("inliers", "matches"))
    write_caption(picture, [f"{state.status}: {inliers} inliers of {matches} matches"])
    return picture

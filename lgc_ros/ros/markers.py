"""Views for RViz: markers of landmarks, rejected matches and keyframes, and an annotated image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from builtin_interfaces.msg import Duration
from std_msgs.msg import ColorRGBA, Header
from visualization_msgs.msg import Marker, MarkerArray

from lgc_ros.odometry.map import Keyframe
from lgc_ros.odometry.state import OdometryState
from lgc_ros.ros.messages import point_message
from lgc_ros.visualization.matches import draw_motion

REJECTED_NAMESPACE = "rejected"
REJECTED = ColorRGBA(r=0.86, g=0.16, b=0.16, a=0.5)
KEYFRAME = ColorRGBA(r=0.2, g=0.5, b=1.0, a=0.9)
# Markers expire if they are not updated; this allows for a slow machine.
LIFETIME = Duration(sec=3)
# Sizes are relative to the median depth, because without a scale source there are no meters.
POINT_SIZE, LINE_WIDTH, KEYFRAME_SIZE = 0.008, 0.002, 0.05
# Rejected matches have no depth: a segment of their ray near the median depth is shown.
RAY = (0.9, 1.0)
# Corners of a unit camera frustum with its center (last), and the edges between them.
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
    rays = _marker(header, REJECTED_NAMESPACE, Marker.LINE_LIST, _rejected_rays(state, depth))
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
    """BGR image with the motion of keypoints since the keyframe: inliers green, others red."""
    inliers, matches = (state.counts.get(name, 0) for name in ("inliers", "matches"))
    caption = [f"{state.status}: {inliers} inliers of {matches} matches"]
    if state.relative is None:
        nothing = np.empty((0, 2))
        return draw_motion(image, nothing, nothing, np.empty(0, bool), caption)
    c = state.relative.correspondences
    return draw_motion(image, c.p0, c.p1, state.relative.inliers, caption)

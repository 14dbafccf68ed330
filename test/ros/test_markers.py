"""Markers for RViz."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from ros.motion import state
from scenes import as_correspondences, random_scene
from std_msgs.msg import Header
from visualization_msgs.msg import Marker

from lgc_ros.estimation.two_view import TwoViewResult
from lgc_ros.odometry.map import Keyframe, View
from lgc_ros.ros.markers import inlier_markers


def two_views():
    """A state whose inliers are half of its matches, and the keyframe it was matched to."""
    scene = random_scene(points=60)
    matches = as_correspondences(scene.x0, scene.x1)
    inliers = np.arange(len(matches)) < len(matches) // 2
    points = scene.X0[inliers] @ scene.R_10.T + scene.t_10
    scores = np.linspace(0, 1, len(points))
    result = TwoViewResult(matches, inliers, inliers, None, "", None, {})
    T_wc = np.linalg.inv(np.vstack([np.column_stack([scene.R_10, scene.t_10]), [0, 0, 0, 1]]))
    now = state(T_wc, relative=result, points_cam=points, scores=scores)
    view = View(0, None, None, scene.x0)
    return now, Keyframe(view, np.eye(3), np.zeros(3)), scene


def test_markers_show_landmarks_by_score_rejected_rays_and_keyframes_in_the_camera_frame():
    now, keyframe, scene = two_views()
    header = Header(frame_id="camera")
    markers = {m.ns: m for m in inlier_markers(header, now, [keyframe]).markers}
    assert markers.keys() == {"inliers", "rejected", "keyframes"}
    assert {m.header.frame_id for m in markers.values()} == {"camera"}
    assert {m.action for m in markers.values()} == {Marker.ADD}

    def points(name):
        return np.array([[p.x, p.y, p.z] for p in markers[name].points])

    np.testing.assert_allclose(points("inliers"), now.points_cam)
    worst, best = (markers["inliers"].colors[i] for i in (0, -1))
    assert (worst.r, worst.g, best.r, best.g) == (1.0, 0.0, 0.0, 1.0), "from red to green"
    rays, rejected = points("rejected"), scene.x1[~now.relative.inliers]
    np.testing.assert_allclose(rays[:, :2] / rays[:, 2:], np.repeat(rejected, 2, axis=0))
    assert markers["rejected"].color.r > markers["rejected"].color.g
    # The tips of the keyframe's edges are its center, which is the world's origin.
    distance = np.linalg.norm(points("keyframes") - scene.t_10, axis=1)
    assert np.isclose(distance, 0).sum() == 4


def test_markers_replace_earlier_ones_and_are_deleted_if_empty():
    now, keyframe, _ = two_views()
    shown = inlier_markers(Header(), now, [keyframe]).markers
    lost = replace(now, relative=None, points_cam=np.empty((0, 3)), scores=np.empty(0))
    after = inlier_markers(Header(), lost, []).markers
    assert [(m.ns, m.id) for m in shown] == [(m.ns, m.id) for m in after]
    assert {m.action for m in after} == {Marker.DELETE}
    assert all(m.lifetime.sec > 0 for m in shown), "old ones vanish when the node is silent"

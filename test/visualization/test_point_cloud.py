"""The map of a run lies where the rendered room is."""

import numpy as np

from lgc_ros.visualization.point_cloud import PointCloud, write_ply


def test_landmarks_lie_on_the_surfaces_that_the_camera_saw(finished_run, short_walk):
    """Seen from a frame of the run, they have the depth of the rendered image, up to scale."""
    errors, own = finished_run.errors, finished_run.trajectory
    frame, T_wc = short_walk[10], finished_run.states[10].T_wc
    assert frame.stamp_ns in own.stamps_ns
    cam = (finished_run.cloud.points - T_wc[:3, 3]) @ T_wc[:3, :3]
    cam = cam[cam[:, 2] > 0]
    x, y = np.round(frame.camera.project(cam)).astype(int).T
    inside = (x >= 0) & (x < frame.camera.width) & (y >= 0) & (y < frame.camera.height)
    assert np.count_nonzero(inside) > 30
    true_m = frame.depth[y[inside], x[inside]]
    relative = errors.scale * cam[inside, 2] / true_m - 1
    assert np.median(np.abs(relative)) < 0.05


def test_a_ply_file_has_its_points_and_colors(tmp_path):
    points = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    colors = np.array([[255, 0, 7], [1, 2, 3]], np.uint8)
    write_ply(tmp_path / "map.ply", PointCloud(points, colors), "a comment")
    header, _, data = (tmp_path / "map.ply").read_bytes().partition(b"end_header\n")
    assert b"element vertex 2\n" in header
    assert b"comment a comment\n" in header
    read = np.frombuffer(data, [("xyz", "<f4", 3), ("rgb", "u1", 3)])
    np.testing.assert_array_equal(read["xyz"], points)
    np.testing.assert_array_equal(read["rgb"], colors)

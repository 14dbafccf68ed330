"""What the viewer logs for a run, read back from its file."""

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from runs import CAMERA, OPTIONS

from lgc_ros.errors import ConfigError, LgcError, OutputError
from lgc_ros.odometry.state import OdometryState
from lgc_ros.odometry.visual_odometry import VisualOdometry

pytest.importorskip("rerun", reason="needs the extra `view`")

from recordings import points_of, read_recording

from lgc_ros.visualization.matches import score_colors
from lgc_ros.visualization.viewer import IMAGE, Viewer
from lgc_ros.visualization.viewer_outputs import open_output
from lgc_ros.visualization.viewer_parts import PIECE


@pytest.fixture(scope="module")
def run(short_walk, tmp_path_factory):
    """States, maps and the recording of a short run."""
    path = tmp_path_factory.mktemp("view") / "run.rrd"
    output = open_output("walk", None, path, IMAGE)
    viewer, odometry = Viewer(output.recording), VisualOdometry(OPTIONS)
    states = []
    for frame in short_walk:
        states.append(odometry.process(frame))
        viewer.add(frame, states[-1], odometry.map)
    assert not path.exists()
    output.close()
    return states, odometry.map, read_recording(path)


def test_every_frame_has_its_pose_on_the_time_line(run, short_walk):
    states, _, logged = run
    rows = logged["/world/camera"]
    seconds = [(frame.stamp_ns - short_walk[0].stamp_ns) * 1e-9 for frame in short_walk]
    np.testing.assert_allclose([time for time, _ in rows], seconds, atol=1e-6)
    positions = [points_of(values, "Transform3D:translation")[0] for _, values in rows]
    np.testing.assert_allclose(positions, [s.T_wc[:3, 3] for s in states], atol=1e-6)
    # Rerun stores matrices column by column.
    last = np.array(rows[-1][1]["Transform3D:mat3x3"]).reshape(3, 3).T
    np.testing.assert_allclose(last, states[-1].T_wc[:3, :3], atol=1e-6)


def test_images_show_their_landmarks_colored_by_score(run, short_walk):
    states, _, logged = run
    (_, encoded) = logged["/world/camera/image"][-1]
    data = np.array(encoded["EncodedImage:blob"][0], np.uint8)
    image = cv2.imdecode(data, cv2.IMREAD_COLOR)
    assert np.abs(image.astype(int) - short_walk[-1].image).mean() < 6
    _, values = logged["/world/camera/image/inliers"][-1]
    np.testing.assert_allclose(points_of(values, "Points2D:positions"), states[-1].points_px)
    red = np.array(values["Points2D:colors"]) >> 24
    np.testing.assert_array_equal(red, score_colors(states[-1].scores)[:, 0])
    landmarks = points_of(logged["/world/camera/inliers"][-1][1], "Points3D:positions")
    np.testing.assert_allclose(landmarks, states[-1].points_cam, rtol=1e-5)
    pinhole = next(v for _, v in logged["/world/camera/image"] if "Pinhole:resolution" in v)
    assert list(pinhole["Pinhole:resolution"][0]) == list(CAMERA.size)


def test_the_map_is_logged_with_the_keyframes(run):
    states, shown_map, logged = run
    keyframes = [state for state in states if state.keyframe]
    assert len(keyframes) > 1
    assert len(logged["/world/landmarks"]) == len({0} | {states.index(k) for k in keyframes})
    _, values = logged["/world/keyframes"][-1]
    frusta = values["LineStrips3D:strips"]
    assert len(frusta) <= len(shown_map.keyframes)
    # The third corner of the line that draws a frustum is the center of the camera.
    centers = [list(frustum[2]) for frustum in frusta]
    known = np.array([keyframe.center for keyframe in shown_map.keyframes])
    for center in centers:
        assert np.linalg.norm(known - center, axis=1).min() < 0.05


def test_status_counts_and_times_are_plotted(run):
    states, _, logged = run
    changes = [
        values["StateChange:state"][0] for time, values in logged["/status"] if time is not None
    ]
    statuses = [state.status for state in states]
    expected = [s for i, s in enumerate(statuses) if i == 0 or s != statuses[i - 1]]
    assert changes == expected
    inliers = [values["Scalars:scalars"][0] for _, values in logged["/counts/inliers"]]
    assert inliers == [state.counts["inliers"] for state in states]
    assert logged.keys() >= {f"/timing/{stage}" for state in states for stage in state.ms}


def test_ground_truth_is_aligned_with_the_estimate(run):
    states, _, logged = run
    _, values = logged["/world/ground_truth"][-1]
    true = np.array([list(point) for point in values["LineStrips3D:strips"][0]])
    tracked = np.array([state.T_wc[:3, 3] for state in states if state.tracked])[: len(true)]
    extent = np.ptp(tracked, axis=0).max()
    assert np.linalg.norm(true - tracked, axis=1).max() < 0.1 * extent


def test_untracked_frames_leave_a_gap_in_the_trajectory_which_is_sent_in_pieces(tmp_path):
    output = open_output("gap", None, tmp_path / "gap.rrd", IMAGE)
    viewer = Viewer(output.recording)
    count = PIECE + 20
    for i in range(count):
        T_wc = np.eye(4)
        T_wc[0, 3] = i
        status = "lost" if i in (10, 11) else "ok"
        viewer.add(None, OdometryState(i * 10**8, status, "", T_wc, np.eye(6), np.zeros(6)))
    output.close()
    logged = read_recording(tmp_path / "gap.rrd")
    pieces = sorted(path for path in logged if path.startswith("/world/trajectory/"))
    assert len(pieces) == 2
    drawn = set()
    for piece in pieces:
        for a, b in logged[piece][-1][1]["LineStrips3D:strips"]:
            drawn.add((round(a[0]), round(b[0])))
    assert drawn == {(i, i + 1) for i in range(count - 1)} - {(9, 10), (10, 11)}


def test_poses_that_are_estimated_later_replace_the_earlier_ones(tmp_path):
    output = open_output("revised", None, tmp_path / "revised.rrd", IMAGE)
    viewer = Viewer(output.recording)
    held = [
        OdometryState(i * 10**8, "initializing", "", np.eye(4), np.eye(6), np.zeros(6))
        for i in range(4)
    ]
    for state in held:
        viewer.add(None, state)
    poses = np.tile(np.eye(4), (4, 1, 1))
    poses[:, 0, 3] = range(4)
    known = zip(held[1:], poses[1:], strict=True)
    viewer.revise([replace(state, status="ok", T_wc=T_wc) for state, T_wc in known])
    output.close()
    logged = read_recording(tmp_path / "revised.rrd")
    shown = [points_of(v, "Transform3D:translation")[0, 0] for _, v in logged["/world/camera"]]
    assert shown == [0, 1, 2, 3]
    statuses = [v["StateChange:state"][0] for t, v in logged["/status"] if t is not None]
    assert statuses == ["initializing", "ok", "ok", "ok"]
    (line,) = [path for path in logged if "revised" in path]
    assert len(logged[line][-1][1]["LineStrips3D:strips"][0]) == 3


def test_a_place_that_cannot_be_shown_is_an_error_that_names_the_remedy(tmp_path, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    with pytest.raises(LgcError, match=r"no display for a window: use --view web"):
        open_output("walk", "window", None, IMAGE)
    with pytest.raises(ConfigError, match="--view tv is unknown"):
        open_output("walk", "tv", None, IMAGE)


def test_a_file_that_cannot_be_written_is_called_by_its_name():
    with pytest.raises(OutputError, match=r"^cannot write /sys/run\.rrd: permission denied"):
        open_output("name", None, Path("/sys/run.rrd"), IMAGE)


def test_states_read_back_from_results_are_shown_without_images(run, tmp_path):
    states, _, _ = run
    output = open_output("states", None, tmp_path / "states.rrd", IMAGE)
    viewer = Viewer(output.recording)
    for state in states:
        viewer.add(None, replace(state.without_matches(), ms={}))
    output.close()
    logged = read_recording(tmp_path / "states.rrd")
    assert len(logged["/world/camera"]) == len(states)
    assert "/world/camera/image" not in logged

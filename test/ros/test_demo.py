"""The demonstration, short: real node, real DDS, and a report that needs nothing but a browser."""

import json
import re
import sys
from io import StringIO

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")
pytest.importorskip("evo", reason="evo is not installed: trajectories are not evaluated")

from lgc_ros.cli.main import main
from lgc_ros.cli.ros import demo_columns
from lgc_ros.errors import LgcError, OutputError
from lgc_ros.evaluation.trajectory_input import load_trajectory
from lgc_ros.geometry.camera import Camera
from lgc_ros.odometry.state import STATUSES
from lgc_ros.ros.demo import LOOP_FRAMES, RATE_HZ, ROOM, STEPS, DemoOptions, live_remark, run_demo
from lgc_ros.ros.live import LiveOptions, LiveRun, run_live
from lgc_ros.sources.bag_writer import CAMERA_FRAME, IMAGE_TOPIC, INFO_TOPIC, write_bag
from lgc_ros.sources.synthetic import SyntheticSource

FRAMES = 30


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The folder that `lgc demo` leaves behind."""
    out = tmp_path_factory.mktemp("demo")
    words = "demo", "--out", str(out), "--frames", str(FRAMES), "--width", "320"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["lgc", *words])
        with pytest.raises(SystemExit) as stopped:
            main()
    assert not stopped.value.code
    return out


@pytest.mark.parametrize("dropped", ["0", "359"])
@pytest.mark.parametrize("status", STATUSES)
def test_progress_fits_into_80_columns(status, dropped):
    diagnostics = {"status": status, "inliers": "1000", "dropped": dropped}
    remark = live_remark(LiveRun(0, "", reports=[diagnostics]))
    assert status in remark
    assert dropped == "0" or f"{dropped} dropped" in remark
    console = Console(width=80, file=StringIO(), force_terminal=True)
    bar = Progress(*demo_columns(), console=console)
    for step in STEPS:
        bar.add_task(step, total=LOOP_FRAMES, completed=LOOP_FRAMES, remark=remark)
    console.print(bar)
    printed = console.file.getvalue()
    assert "…" not in printed
    assert printed.count(remark) == len(STEPS)
    assert len(printed.splitlines()) == len(STEPS)


def test_every_image_is_answered_and_the_trajectory_is_accurate(demo):
    metrics = json.loads((demo / "metrics.json").read_text())
    assert (metrics["frames"], metrics["answered"], metrics["dropped"]) == (FRAMES, FRAMES, 0)
    assert metrics["ate_rmse_m"] < 0.1 * metrics["path_m"]
    assert metrics["latency_ms"]["median"] > 0
    assert len(load_trajectory(demo / "trajectory_tum.txt")) == FRAMES


def test_the_filter_finds_a_motion_that_ransac_does_not(demo):
    error_deg = json.loads((demo / "metrics.json").read_text())["pair_error_deg"]
    assert error_deg["cn"] < 3
    assert error_deg["ransac"] > 10
    assert list(error_deg) == ["ransac", "poselib+ratio+unique", "cn"]


def test_the_report_is_self_contained(demo):
    page = (demo / "report.html").read_text()
    assert re.findall(r'(?:src|href)="(?!data:image/jpeg;base64,)', page) == []
    assert set(re.findall(r"https?://[^\"' ]*", page)) == {"http://www.w3.org/2000/svg"}
    assert re.findall(r"url\((?!#)", page) == []
    assert "@import" not in page
    assert re.findall(r"\$[a-z]\w*", page) == []
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    content = json.loads(data[1])
    assert len(content["frames"]) == FRAMES
    assert content["cloud"]["points"]


def test_landmarks_lie_on_surfaces_of_the_room(demo):
    """Seen from where the walk began, they are as far away as the renderer says."""
    frame = SyntheticSource("loop", LOOP_FRAMES, rate_hz=RATE_HZ, seed=ROOM)[0]
    points = read_ply(demo / "inliers.ply")
    T_cw = np.linalg.inv(frame.T_wc)
    cam = points @ T_cw[:3, :3].T + T_cw[:3, 3]
    x, y = frame.camera.project(cam).T
    with np.errstate(invalid="ignore"):
        seen = (x > 0) & (x < frame.camera.width - 1) & (y > 0) & (y < frame.camera.height - 1)
    rows, columns = y[seen].round().astype(int), x[seen].round().astype(int)
    ratio = cam[seen, 2] / frame.depth[rows, columns]
    assert seen.sum() > 100
    assert np.median(np.abs(ratio - 1)) < 0.1


def read_ply(path):
    """Points (N, 3) of a binary file with three floats and three bytes a point."""
    header, body = path.read_bytes().split(b"end_header\n", 1)
    assert b"format binary_little_endian 1.0" in header
    return np.frombuffer(body, [("xyz", "<f4", 3), ("rgb", "u1", 3)])["xyz"].astype(float)


def test_images_and_recordings_are_written_beside_the_report(demo):
    for name in ("trajectory.svg", "latency.svg", "matches.jpg", "matches_cn.jpg", "inliers.ply"):
        assert (demo / name).stat().st_size > 1000, name
    assert len(load_trajectory(f"{demo / 'recording.mcap'}:/lgc_odometry/odometry")) == FRAMES
    assert len(load_trajectory(f"{demo / 'sequence'}:/ground_truth")) == FRAMES


def test_a_foreign_folder_is_refused_and_unchanged(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    (tmp_path / "sequence").mkdir()
    with pytest.raises(OutputError, match=r"not of a demo \(thesis\.tex\)"):
        run_demo(tmp_path, DemoOptions(), lambda *progress: None)
    assert {path.name for path in tmp_path.iterdir()} == {"thesis.tex", "sequence"}


@pytest.fixture(scope="module")
def bag(tmp_path_factory, world):
    K = [[131.0, 0, 79.5], [0, 131.0, 59.5], [0, 0, 1]]
    path = tmp_path_factory.mktemp("bag") / "walk"
    write_bag(SyntheticSource("walk", 8, camera=Camera.from_K(K, 160, 120), world=world), path)
    return path


def test_the_error_for_a_node_that_ends_includes_its_log(bag, tmp_path):
    options = LiveOptions(IMAGE_TOPIC, INFO_TOPIC, {"profile": "nonsense"})
    with pytest.raises(LgcError, match=r"(?s)the node ended with code 1.*nonsense"):
        run_live(bag, tmp_path / "out.mcap", tmp_path / "node.log", options)


def test_the_error_for_a_silent_node_includes_its_diagnostics(bag, tmp_path):
    options = LiveOptions(IMAGE_TOPIC, INFO_TOPIC, {"base_frame": "wheels"}, answer_s=2.0)
    with pytest.raises(LgcError, match=rf"answered 0 of 3 images.* says: .*{CAMERA_FRAME}"):
        run_live(bag, tmp_path / "out.mcap", tmp_path / "node.log", options)

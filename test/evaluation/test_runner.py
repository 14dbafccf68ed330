"""`lgc run` and its relatives: the folder of results, the same bytes twice, and the commands."""

import csv
import json
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace

import cv2
import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from lgc_ros.cli.main import app
from lgc_ros.errors import ConfigError, LgcError, SourceError
from lgc_ros.evaluation.results import results_folder, write_run
from lgc_ros.evaluation.runner import METRICS, run_odometry
from lgc_ros.evaluation.trajectory_input import load_trajectory
from lgc_ros.geometry.camera import Camera
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.profiles import load_profile
from lgc_ros.odometry.scale import ScaleOptions
from lgc_ros.sources.synthetic import SyntheticSource
from lgc_ros.sources.tum import write_tum
from lgc_ros.visualization.trajectory import draw_run, widest_plane

CAMERA = Camera.from_K([[262.5, 0, 159.5], [0, 262.5, 119.5], [0, 0, 1]], 320, 240)
OPTIONS = OdometryOptions(method="poselib+ratio", max_keypoints=500, max_iterations=100)
SETTINGS = ["--set", "max_keypoints=500", "--set", "max_iterations=100"]
RESULTS = {
    "trajectory_tum.txt",
    "trajectory_kitti.txt",
    "states.csv",
    "trajectory.png",
    "config.yaml",
    "metrics.json",
}


class Frames(list):
    """Frames in memory, with the name a source has."""

    name = "walk"


@pytest.fixture(scope="module")
def walk():
    return Frames(SyntheticSource("walk", 14, rate_hz=10.0, camera=CAMERA, noise=1.5))


@pytest.fixture(scope="module")
def done(walk):
    return run_odometry(walk, OPTIONS)


@pytest.fixture(scope="module")
def sequence(walk, tmp_path_factory):
    """The same frames as a TUM folder."""
    folder = tmp_path_factory.mktemp("tum") / "walk"
    write_tum(walk, folder)
    return folder


def lgc(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_run_leaves_what_design_and_documentation_name(done, tmp_path):
    write_run(tmp_path / "run", done)
    assert {path.name for path in (tmp_path / "run").iterdir()} == RESULTS


def test_files_agree_with_the_states(walk, done, tmp_path):
    write_run(tmp_path, done)
    known = [0, *(i for i in range(1, len(walk)) if done.states[i].tracked)]
    tum = load_trajectory(tmp_path / "trajectory_tum.txt")
    assert tum.stamps_ns.tolist() == [walk[i].stamp_ns for i in known]
    np.testing.assert_allclose(tum.T_wc, [done.states[i].T_wc for i in known], atol=1e-6)
    kitti = load_trajectory(tmp_path / "trajectory_kitti.txt")
    np.testing.assert_allclose(kitti.T_wc, [state.T_wc for state in done.states], atol=1e-7)
    with (tmp_path / "states.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["stamp_ns"]) for row in rows] == [frame.stamp_ns for frame in walk]
    assert [row["status"] for row in rows] == [state.status for state in done.states]
    assert cv2.imread(str(tmp_path / "trajectory.png")).shape[0] > 800


def test_the_settings_of_a_run_can_be_used_again(done, tmp_path):
    write_run(tmp_path, done)
    assert load_profile(tmp_path / "config.yaml") == OPTIONS


def test_metrics_have_the_promised_keys(done):
    metrics = done.metrics()
    assert metrics.keys() >= set(METRICS)
    assert metrics["frames"] == 14
    assert metrics["tracked"] == sum(state.tracked for state in done.states) > 8
    assert 0 < metrics["ate_rmse_m"] < 0.05
    assert metrics["kitti_trans_percent"] is None
    assert metrics["fps"] > 0


def test_without_ground_truth_there_are_no_errors_but_all_else(walk, tmp_path):
    blind = Frames(replace(frame, T_wc=None) for frame in walk[:6])
    run = run_odometry(blind, OPTIONS)
    write_run(tmp_path, run)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["ate_rmse_m"] is None
    assert metrics["frames"] == 6
    assert {path.name for path in tmp_path.iterdir()} == RESULTS


def test_the_same_run_twice_gives_the_same_bytes(walk, done, tmp_path):
    write_run(tmp_path / "a", done)
    write_run(tmp_path / "b", run_odometry(walk, OPTIONS))
    for name in ("trajectory_tum.txt", "trajectory_kitti.txt", "states.csv", "config.yaml"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_run_keeps_little_of_each_frame(done):
    """So that days of frames fit into memory: no matches, no landmarks."""
    assert len(pickle.dumps(done.states)) < 2000 * len(done.states)


def test_latest_points_to_the_newest_results_once_they_are_there(tmp_path):
    with results_folder(None, "walk", tmp_path) as first:
        assert not (tmp_path / "latest").exists()
    with results_folder(None, "walk", tmp_path) as second:
        assert (tmp_path / "latest").resolve() == first.resolve()
    assert first != second
    assert (tmp_path / "latest").resolve() == second.resolve()


def test_who_fails_leaves_no_empty_folder_and_latest_where_it_was(tmp_path):
    with results_folder(None, "walk", tmp_path) as good:
        (good / "trajectory_tum.txt").write_text("")
    with pytest.raises(ConfigError), results_folder(None, "walk", tmp_path):
        run_odometry([], replace(OPTIONS, method="magic"))
    assert {path.name for path in tmp_path.iterdir()} == {good.name, "latest"}
    assert (tmp_path / "latest").resolve() == good.resolve()


def test_a_first_run_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(LgcError), results_folder(tmp_path / "new" / "out", "walk"):
        raise LgcError
    with pytest.raises(LgcError), results_folder(None, "walk", tmp_path / "results"):
        raise LgcError
    assert not any(tmp_path.iterdir())


def test_a_folder_of_the_user_is_not_removed(tmp_path):
    with pytest.raises(LgcError), results_folder(tmp_path, "walk"):
        raise LgcError
    assert tmp_path.is_dir()


class InterruptedFrames(Frames):
    """The user presses Ctrl-C at the sixth frame."""

    def __iter__(self):
        yield from self[:5]
        raise KeyboardInterrupt


def test_after_ctrl_c_the_frames_so_far_are_the_run(walk, caplog):
    run = run_odometry(InterruptedFrames(walk), OPTIONS)
    assert run.interrupted
    assert 0 < len(run.states) <= 5
    assert f"interrupted after {len(run.states)} frames" in caplog.text


def test_an_unknown_alignment_is_refused_before_the_run(walk):
    frames = iter(walk)
    with pytest.raises(ConfigError, match="sim3"):
        run_odometry(frames, OPTIONS, align="foo")
    assert next(frames) is walk[0]


def test_a_run_says_why_frames_were_not_tracked(done):
    fine = [replace(state, status="ok") for state in done.states]
    begun = replace(fine[0], status="initializing")  # as every run begins
    assert replace(done, states=[begun, *fine]).untracked() == ""
    held = [
        replace(fine[0], status=status, message=message)
        for status, message in (
            ("lost", "the image is blank"),
            ("few_matches", "only 12 matches"),
            ("few_matches", "only 7 matches"),
        )
    ]
    assert replace(done, states=[begun, *fine[:4], *held]).untracked() == (
        "3 of 8 frames were not tracked (2 few_matches, 1 lost), mostly because: only 12 matches"
    )


def test_the_way_of_an_estimate_is_drawn_from_above_its_first_camera(done):
    top = draw_run("walk", done.states, done.trajectory, None).axes[0]
    assert (top.get_xlabel(), top.get_ylabel()) == ("x", "z")
    np.testing.assert_array_equal(top.lines[0].get_xydata(), done.trajectory.T_wc[:, [0, 2], 3])


@pytest.mark.parametrize("ground", ["xy", "xz"])
def test_with_errors_the_way_is_drawn_from_above_the_ground_of_the_truth(done, ground):
    top = draw_run("walk", done.states, done.trajectory, done.errors, ground).axes[0]
    assert (top.get_xlabel(), top.get_ylabel()) == (f"{ground[0]} (m)", f"{ground[1]} (m)")
    axes = ["xyz".index(axis) for axis in ground]
    np.testing.assert_array_equal(top.lines[0].get_xydata(), done.errors.truth.T_wc[:, axes, 3])


def test_where_nobody_knows_what_is_up_the_widest_plane_is_drawn():
    assert widest_plane(np.array([[0, 0, 0], [3, 0.1, -9]])) == "xz"
    assert widest_plane(np.array([[0, 0, 0], [0.1, 5, 1]])) == "yz"


def test_lgc_run_takes_a_dataset_and_reports(sequence, tmp_path):
    result = lgc("run", sequence, "--method", "ransac+ratio", "--out", tmp_path / "out", *SETTINGS)
    assert result.exit_code == 0, result.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == RESULTS
    assert "ransac+ratio" in result.output
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["frames"] == 14


def test_lgc_run_puts_results_into_a_new_folder_by_default(sequence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = lgc("run", sequence, "--limit", 3, "--profile", "fast")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "results" / "latest" / "trajectory_tum.txt").is_file()


def test_lgc_run_compares_methods_side_by_side(sequence, tmp_path):
    methods = ("poselib+ratio", "ransac+ratio")
    chosen = [word for method in methods for word in ("--method", method)]
    result = lgc("run", sequence, "--limit", 5, *chosen, "--out", tmp_path, *SETTINGS)
    assert result.exit_code == 0, result.output
    for method in methods:
        assert method in result.output
        assert {path.name for path in (tmp_path / method).iterdir()} == RESULTS


def test_lgc_run_skips_a_damaged_frame_and_says_so(sequence, walk, tmp_path):
    copy = tmp_path / "copy"
    write_tum(walk, copy)
    images = sorted((copy / "rgb").iterdir())
    images[7].write_bytes(images[7].read_bytes()[:200])
    arguments = ("--method", "poselib+ratio", "--out", tmp_path / "out", *SETTINGS)
    result = lgc("run", copy, *arguments)
    assert result.exit_code == 0, result.output
    assert result.output.count(images[7].name) == 1
    assert "could not be read: 1" in result.output
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert (metrics["frames"], metrics["skipped"]) == (13, 1)


def test_lgc_run_writes_a_video(sequence, tmp_path):
    arguments = ("--method", "poselib+ratio", "--limit", 5, *SETTINGS)
    result = lgc("run", sequence, "--video", "--out", tmp_path, *arguments)
    assert result.exit_code == 0, result.output
    video = cv2.VideoCapture(str(tmp_path / "video.mp4"))
    assert int(video.get(cv2.CAP_PROP_FRAME_COUNT)) == 5


def test_a_source_of_scale_that_knows_nothing_is_named(walk, caplog):
    blind = Frames(replace(frame, depth=None) for frame in walk)
    run_odometry(blind, replace(OPTIONS, scale=ScaleOptions("depth")))
    assert "depth knew nothing at" in caplog.text
    assert "choose another --scale" in caplog.text


def test_lgc_run_takes_metric_scale_from_depth(sequence, tmp_path):
    arguments = ("--method", "poselib+ratio", "--scale", "depth", "--align", "se3", *SETTINGS)
    result = lgc("run", sequence, "--out", tmp_path, *arguments)
    assert result.exit_code == 0, result.output
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["ate_rmse_m"] < 0.05


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "widow=3"), "did you mean 'window'"),
        (("--scale", "depth", "--set", "scale=3"), "give one only"),
        (("--scale", "depth:3"), "takes no number"),
        (("--scale", "constant_speed"), "--scale constant_speed:MPS"),
        (("--align", "foo"), "use one of sim3"),
        (("--image-topic", "/image"), "no option --image-topic"),
        (("--kind", "avi"), "known are kitti"),
        (("--scale", "odom"), "only bags hold"),
        (("--method", "magic"), "unknown method"),
        (("--profile", "fats"), "did you mean 'fast'"),
    ],
)
def test_lgc_run_names_mistakes(sequence, tmp_path, arguments, message):
    result = lgc("run", sequence, "--out", tmp_path / "out", *arguments)
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)
    assert "default:" not in str(result.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(sequence, tmp_path, place):
    (tmp_path / "file").write_text("")
    for arguments in (
        ("run", sequence, "--out", tmp_path / place),
        ("evaluate", "bag", sequence, "--json", tmp_path / place / "results.json"),
        ("evaluate", "trajectory", "a.txt", "b.txt", "--json", tmp_path / place / "e.json"),
        ("bench", "--json", tmp_path / place / "bench.json"),
    ):
        result = lgc(*arguments)
        assert isinstance(result.exception, ConfigError)
        assert f"{tmp_path / 'file'} is a file, not a folder" in str(result.exception)
    result = lgc("bench", "--json", tmp_path)
    assert "is a folder: name a file" in str(result.exception)


def test_lgc_run_keeps_what_there_is_after_ctrl_c(tmp_path):
    arguments = ("synthetic:walk", "--method", "poselib+ratio", "--video", "--out", tmp_path)
    # Tests started in the background ignore Ctrl-C, and what they start would inherit that.
    program = """
import signal
from lgc_ros.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""
    command = [sys.executable, "-c", program, "run", *arguments]
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (tmp_path / "video.mp4").exists():
        time.sleep(0.05)  # until the first frame is done
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    frames = json.loads((tmp_path / "metrics.json").read_text())["frames"]
    assert 0 < frames < 200
    assert f"interrupted after {frames} frames" in said
    assert {path.name for path in tmp_path.iterdir()} == RESULTS | {"video.mp4"}


def test_a_run_records_what_repeats_it(sequence, tmp_path):
    chosen = ("--every", 2, "--limit", 3, "--align", "se3", "--profile", "fast")
    result = lgc("run", sequence, *chosen, "--out", tmp_path / "a")
    assert result.exit_code == 0, result.output
    config = yaml.safe_load((tmp_path / "a" / "config.yaml").read_text())
    assert (config["every"], config["limit"], config["align"]) == (2, 3, "se3")
    source, settings = config["source"], tmp_path / "a" / "config.yaml"
    again = ("--profile", settings, "--every", 2, "--limit", 3, "--align", "se3")
    result = lgc("run", source, *again, "--out", tmp_path / "b")
    assert result.exit_code == 0, result.output
    for name in ("states.csv", "config.yaml"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_truth_of_another_clock_is_named(sequence, tmp_path):
    (tmp_path / "gt.txt").write_text("0.0 0 0 0 0 0 0 1\n9.0 3 0 0 0 0 0 1\n")
    arguments = ("--gt", tmp_path / "gt.txt", "--limit", 4, "--profile", "fast")
    result = lgc("run", sequence, *arguments, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "fewer than 3 of 4 frames fall between the poses of" in result.output
    assert "same clock" in result.output


def test_lgc_evaluate_trajectory_prints_and_writes_errors(sequence, done, tmp_path):
    pytest.importorskip("evo")
    write_run(tmp_path, done)
    result = lgc(
        "evaluate",
        "trajectory",
        tmp_path / "trajectory_tum.txt",
        sequence / "groundtruth.txt",
        "--json",
        tmp_path / "errors.json",
    )
    assert result.exit_code == 0, result.output
    errors = json.loads((tmp_path / "errors.json").read_text())
    assert errors["ate_rmse_m"] == pytest.approx(done.errors.ate_rmse_m, abs=1e-6)
    assert errors["path_m"] == pytest.approx(done.errors.truth.length_m, abs=1e-6)
    assert errors["rpe_over"] == "1 s"
    assert "ATE" in result.output
    assert "RPE over 1 s" in result.output


def test_lgc_evaluate_trajectory_says_when_files_have_no_stamps(done, tmp_path):
    pytest.importorskip("evo")
    write_run(tmp_path, done)
    file = tmp_path / "trajectory_kitti.txt"
    result = lgc("evaluate", "trajectory", file, file, "--json", tmp_path / "errors.json")
    assert "RPE over 1 frame" in result.output
    assert json.loads((tmp_path / "errors.json").read_text())["rpe_over"] == "1 frame"


def odometry_and_depth(frames, path):
    """The frames as a bag with wheel odometry and depth, as a robot records them."""
    rosbag2 = pytest.importorskip("rosbags.rosbag2")
    from rosbags.typesys import Stores, get_typestore

    from lgc_ros.sources import bag_writer

    store = get_typestore(Stores.ROS2_JAZZY)
    types = store.types
    kinds = {
        **bag_writer.TYPES,
        "/odom": "nav_msgs/msg/Odometry",
        "/camera/depth": "sensor_msgs/msg/Image",
    }

    def messages(frame):
        yield from bag_writer._messages(frame, types, None)
        stamp = types["builtin_interfaces/msg/Time"](*divmod(frame.stamp_ns, 10**9))
        header = types["std_msgs/msg/Header"](stamp, bag_writer.CAMERA_FRAME)
        depth = types["sensor_msgs/msg/Image"](
            header, *frame.depth.shape, "32FC1", 0, 4 * frame.depth.shape[1], _bytes(frame.depth)
        )
        yield "/camera/depth", depth
        pose = bag_writer._pose(frame.T_wc, header, types).pose
        zero = types["geometry_msgs/msg/Vector3"](0.0, 0.0, 0.0)
        twist = types["geometry_msgs/msg/Twist"](zero, zero)
        yield (
            "/odom",
            types["nav_msgs/msg/Odometry"](
                header,
                bag_writer.CAMERA_FRAME,
                types["geometry_msgs/msg/PoseWithCovariance"](pose, np.zeros(36)),
                types["geometry_msgs/msg/TwistWithCovariance"](twist, np.zeros(36)),
            ),
        )

    plugin = rosbag2.StoragePlugin.MCAP
    with rosbag2.Writer(path, version=9, storage_plugin=plugin) as writer:
        connections = {}
        for frame in frames:
            for topic, message in messages(frame):
                if topic not in connections:
                    connections[topic] = writer.add_connection(
                        topic, kinds[topic], typestore=store
                    )
                data = store.serialize_cdr(message, kinds[topic])
                writer.write(connections[topic], frame.stamp_ns, data)


def _bytes(array):
    return np.ascontiguousarray(array).view(np.uint8).ravel()


@pytest.mark.parametrize("scale", ["odom", "depth"])
def test_lgc_run_takes_metres_from_what_a_bag_holds(walk, tmp_path, scale):
    odometry_and_depth(walk, tmp_path / "bag")
    arguments = ("--method", "poselib+ratio", "--scale", scale, "--align", "se3", *SETTINGS)
    result = lgc("run", tmp_path / "bag", "--out", tmp_path / "out", *arguments)
    assert result.exit_code == 0, result.output
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["ate_rmse_m"] < 0.05


def test_lgc_run_lists_the_topics_when_one_is_wrong(walk, tmp_path):
    odometry_and_depth(walk[:2], tmp_path / "bag")
    arguments = ("--scale", "odom", "--odom-topic", "/wheels", "--out", tmp_path / "out")
    result = lgc("run", tmp_path / "bag", *arguments)
    assert isinstance(result.exception, SourceError)
    assert "/odom (nav_msgs/msg/Odometry)" in str(result.exception)


def test_lgc_evaluate_bag_compares_methods(walk, tmp_path):
    pytest.importorskip("rosbags")
    from lgc_ros.sources.bag_writer import write_bag

    write_bag(walk, tmp_path / "bag")
    methods = ("poselib+ratio", "ransac+ratio")
    chosen = [word for method in methods for word in ("--method", method)]
    target = ("--out", tmp_path / "out", "--json", tmp_path / "bag.json")
    result = lgc("evaluate", "bag", tmp_path / "bag", *chosen, *target, *SETTINGS)
    assert result.exit_code == 0, result.output
    results = json.loads((tmp_path / "bag.json").read_text())
    assert results["methods"].keys() == set(methods)
    for metrics in results["methods"].values():
        assert metrics.keys() >= set(METRICS)
        assert metrics["frames"] == len(walk)
        assert metrics["ate_rmse_m"] is not None
    assert "no ground truth" not in result.output


def test_help_teaches_by_examples_and_names_what_is_written():
    said = lgc("run", "--help").output
    assert all(name in said for name in RESULTS)
    for command in (("run",), ("evaluate", "trajectory"), ("evaluate", "bag")):
        said = " ".join(lgc(*command, "--help").output.split())
        assert f"Examples: lgc {' '.join(command)} " in said
    assert "Default: cn and" in said


def test_lgc_evaluate_bag_asks_for_ground_truth(walk, tmp_path):
    pytest.importorskip("rosbags")
    from lgc_ros.sources.bag_writer import write_bag

    write_bag([replace(frame, T_wc=None) for frame in walk[:3]], tmp_path / "bag")
    result = lgc("evaluate", "bag", tmp_path / "bag", "--profile", "fast", "--out", tmp_path / "o")
    assert result.exit_code == 0, result.output
    assert "no ground truth: give --gt" in result.output

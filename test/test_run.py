"""`lgc run` and its relatives: the folder of results, the same bytes twice, and the commands."""

import csv
import json
from dataclasses import replace

import cv2
import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from lgc_ros.camera import Camera
from lgc_ros.cli import app
from lgc_ros.errors import ConfigError, SourceError
from lgc_ros.odometry import OdometryOptions
from lgc_ros.profiles import load_profile
from lgc_ros.run import METRICS, new_results_folder, run_odometry, write_run
from lgc_ros.sources.synthetic import SyntheticSource
from lgc_ros.sources.tum import write_tum
from lgc_ros.trajectory import read_track

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
    tum = read_track(tmp_path / "trajectory_tum.txt")
    assert tum.stamps_ns.tolist() == [walk[i].stamp_ns for i in known]
    np.testing.assert_allclose(tum.T_wc, [done.states[i].T_wc for i in known], atol=1e-6)
    kitti = read_track(tmp_path / "trajectory_kitti.txt")
    np.testing.assert_allclose(kitti.T_wc, [state.T_wc for state in done.states], atol=1e-7)
    with (tmp_path / "states.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["stamp_ns"]) for row in rows] == [frame.stamp_ns for frame in walk]
    assert [row["status"] for row in rows] == [state.status for state in done.states]
    assert cv2.imread(str(tmp_path / "trajectory.png")).shape[0] > 800


def test_the_settings_of_a_run_can_be_used_again(done, tmp_path):
    write_run(tmp_path, done)
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert load_profile(overrides=config["odometry"]) == OPTIONS


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


def test_latest_points_to_the_newest_results(tmp_path):
    first = new_results_folder(tmp_path, "walk")
    second = new_results_folder(tmp_path, "walk")
    assert first != second
    assert (tmp_path / "latest").resolve() == second.resolve()


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
    assert images[7].name in result.output
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["frames"] == 13


def test_lgc_run_writes_a_video(sequence, tmp_path):
    arguments = ("--method", "poselib+ratio", "--limit", 5, *SETTINGS)
    result = lgc("run", sequence, "--video", "--out", tmp_path, *arguments)
    assert result.exit_code == 0, result.output
    video = cv2.VideoCapture(str(tmp_path / "video.mp4"))
    assert int(video.get(cv2.CAP_PROP_FRAME_COUNT)) == 5


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
        (("--scale", "depth:3"), "takes no number"),
        (("--scale", "constant_speed"), "speed_mps"),
        (("--scale", "odom"), "only bags hold"),
        (("--method", "magic"), "unknown method"),
        (("--profile", "fats"), "did you mean 'fast'"),
    ],
)
def test_lgc_run_names_mistakes(sequence, tmp_path, arguments, message):
    result = lgc("run", sequence, "--out", tmp_path, *arguments)
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)


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
    assert "ATE" in result.output


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

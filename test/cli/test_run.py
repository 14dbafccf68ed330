"""`lgc run`: results, comparisons, scale, mistakes and interruption."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace

import cv2
import numpy as np
import pytest
import yaml
from runs import RESULTS, SETTINGS

from lgc_ros.errors import ConfigError, OutputError, SourceError
from lgc_ros.sources.tum import write_tum


def test_run_processes_a_dataset_and_reports(invoke, tum_folder, tmp_path):
    result = invoke(
        "run", tum_folder, "--method", "ransac+ratio", "--out", tmp_path / "out", *SETTINGS
    )
    assert result.exit_code == 0, result.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == RESULTS
    assert "ransac+ratio" in result.output
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["frames"] == 14


def test_run_tracks_with_the_extractor_file_of_options_settings_or_a_profile(
    invoke, tum_folder, tmp_path, heads_model
):
    model = heads_model(trackable=True, contrast=100.0)
    profile = tmp_path / "own.yaml"
    profile.write_text(f"base: default\nfeatures: own\nextractor_model: {model}\n")
    settings = ("--set", "features=own", "--set", f"extractor_model={model}")
    options = ("--features", "own", "--extractor-model", model)
    common = ("run", tum_folder, "--method", "poselib+ratio", *SETTINGS, "--out")
    given = {"set": settings, "options": options, "profile": ("--profile", profile)}
    for name, chosen in given.items():
        result = invoke(*common, tmp_path / name, *chosen)
        assert result.exit_code == 0, result.output
    metrics = json.loads((tmp_path / "set" / "metrics.json").read_text())
    assert metrics["tracked"] == 14
    assert metrics["ate_rmse_m"] < 0.05
    states = [(tmp_path / name / "states.csv").read_bytes() for name in given]
    assert states[0] == states[1] == states[2]


def test_run_writes_to_a_new_folder_by_default(invoke, tum_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke("run", tum_folder, "--limit", 3, "--profile", "fast")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "results" / "latest" / "trajectory_tum.txt").is_file()


def test_run_compares_methods(invoke, tum_folder, tmp_path):
    methods = ("poselib+ratio", "ransac+ratio")
    chosen = [word for method in methods for word in ("--method", method)]
    result = invoke("run", tum_folder, "--limit", 5, *chosen, "--out", tmp_path, *SETTINGS)
    assert result.exit_code == 0, result.output
    for method in methods:
        assert method in result.output
        assert {path.name for path in (tmp_path / method).iterdir()} == RESULTS
    together = json.loads((tmp_path / "comparison.json").read_text())
    assert list(together["methods"]) == list(methods)
    for method in methods:
        alone = json.loads((tmp_path / method / "metrics.json").read_text())
        assert together["methods"][method] == alone
    assert (tmp_path / "comparison.png").stat().st_size > 1000


def test_run_writes_a_report_for_each_method(invoke, tum_folder, tmp_path):
    arguments = ("--method", "poselib+ratio", "--limit", 6, "--report", *SETTINGS)
    result = invoke("run", tum_folder, "--out", tmp_path / "out", *arguments)
    assert result.exit_code == 0, result.output
    page = (tmp_path / "out" / "report.html").read_text()
    assert "frames tracked" in page
    assert f"lgc run {tum_folder}" in page


def test_run_skips_a_damaged_frame_and_reports_it(invoke, tum_folder, short_walk, tmp_path):
    copy = tmp_path / "copy"
    write_tum(short_walk, copy)
    images = sorted((copy / "rgb").iterdir())
    images[7].write_bytes(images[7].read_bytes()[:200])
    arguments = ("--method", "poselib+ratio", "--out", tmp_path / "out", *SETTINGS)
    result = invoke("run", copy, *arguments)
    assert result.exit_code == 0, result.output
    assert result.output.count(images[7].name) == 1
    assert "could not be read: 1" in result.output
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert (metrics["frames"], metrics["skipped"]) == (13, 1)


def test_a_mostly_untracked_run_does_not_look_like_a_success(invoke, short_walk, tmp_path):
    blank = [
        replace(frame, image=np.zeros_like(frame.image)) if k >= 4 else frame
        for k, frame in enumerate(short_walk)
    ]
    write_tum(blank, tmp_path / "blank")
    arguments = ("--method", "poselib+ratio", "--out", tmp_path / "out", *SETTINGS)
    result = invoke("run", tmp_path / "blank", *arguments)
    assert result.exit_code == 0, result.output
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["tracked"] <= 4
    assert metrics["tracked_share"] == metrics["tracked"] / 14
    printed = " ".join(result.output.split())
    share = f"{round(100 * metrics['tracked_share'])} %"
    assert f"only {metrics['tracked']} of 14 frames tracked ({share})" in printed
    assert f"{14 - metrics['tracked']} of 14 frames were not tracked" in printed
    poses = (tmp_path / "out" / "trajectory_tum.txt").read_text().splitlines()[1:]
    assert len(poses) == metrics["tracked"]


def test_existing_results_are_replaced_only_with_force(invoke, tum_folder, tmp_path):
    arguments = ("run", tum_folder, "--limit", 3, "--profile", "fast", "--out", tmp_path / "out")
    both = ("--method", "poselib+ratio", "--method", "ransac+ratio")
    assert invoke(*arguments, *both).exit_code == 0
    result = invoke(*arguments)
    assert isinstance(result.exception, OutputError)
    assert "already holds results" in str(result.exception)
    assert "--force" in str(result.exception)
    (tmp_path / "out" / "notes.txt").write_text("mine")
    result = invoke(*arguments, "--force", "--method", "poselib+ratio")
    assert result.exit_code == 0, result.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*RESULTS, "notes.txt"}


def test_what_a_failed_comparison_left_is_replaced_only_with_force(invoke, tum_folder, tmp_path):
    left = tmp_path / "out" / "ransac+ratio" / "trajectory_tum.txt"
    left.parent.mkdir(parents=True)
    left.write_text("0 0 0 0 0 0 0 1")
    arguments = ("run", tum_folder, "--limit", 3, "--profile", "fast", "--out", tmp_path / "out")
    result = invoke(*arguments, "--method", "poselib+ratio")
    assert "already holds results (ransac+ratio)" in str(result.exception)
    result = invoke(*arguments, "--method", "poselib+ratio", "--force")
    assert result.exit_code == 0, result.output
    assert not left.exists()


@pytest.mark.parametrize("rate_hz", [5.0, 10.0])
def test_a_video_keeps_the_rate_of_the_source(invoke, short_walk, tmp_path, rate_hz):
    frames = [replace(f, stamp_ns=round(k * 1e9 / rate_hz)) for k, f in enumerate(short_walk)]
    write_tum(frames, tmp_path / "walk")
    arguments = ("--method", "poselib+ratio", "--out", tmp_path / "out", "--video", *SETTINGS)
    result = invoke("run", tmp_path / "walk", *arguments)
    assert result.exit_code == 0, result.output
    video = cv2.VideoCapture(str(tmp_path / "out" / "video.mp4"))
    assert video.get(cv2.CAP_PROP_FPS) == pytest.approx(rate_hz)
    assert int(video.get(cv2.CAP_PROP_FRAME_COUNT)) == 14


def test_run_writes_a_video(invoke, tum_folder, tmp_path):
    arguments = ("--method", "poselib+ratio", "--limit", 5, *SETTINGS)
    result = invoke("run", tum_folder, "--video", "--out", tmp_path, *arguments)
    assert result.exit_code == 0, result.output
    video = cv2.VideoCapture(str(tmp_path / "video.mp4"))
    assert int(video.get(cv2.CAP_PROP_FRAME_COUNT)) == 5


def test_run_takes_metric_scale_from_depth(invoke, tum_folder, tmp_path):
    arguments = ("--method", "poselib+ratio", "--scale", "depth", "--align", "se3", *SETTINGS)
    result = invoke("run", tum_folder, "--out", tmp_path, *arguments)
    assert result.exit_code == 0, result.output
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["ate_rmse_m"] < 0.05


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "widow=3"), "did you mean 'window'"),
        (("--scale", "depth", "--set", "scale=3"), "give only one"),
        (("--scale", "depth:3"), "takes no number"),
        (("--scale", "constant_speed"), "--scale constant_speed:MPS"),
        (("--align", "foo"), "use one of sim3"),
        (("--image-topic", "/image"), "no option --image-topic"),
        (("--kind", "avi"), "use one of kitti"),
        (("--scale", "odom"), "only bags hold"),
        (("--method", "magic"), "unknown method"),
        (("--profile", "fats"), "did you mean 'fast'"),
    ],
)
def test_run_rejects_invalid_options_before_writing(
    invoke, tum_folder, tmp_path, arguments, message
):
    result = invoke("run", tum_folder, "--out", tmp_path / "out", *arguments)
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)
    assert "default:" not in str(result.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_run_writes_results_after_ctrl_c(tmp_path):
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
    while process.poll() is None and not list(tmp_path.glob(".video.*.mp4")):
        time.sleep(0.05)  # until some frames are done
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 130, printed
    frames = json.loads((tmp_path / "metrics.json").read_text())["frames"]
    assert 0 < frames < 200
    assert f"interrupted after {frames} frames" in printed
    assert {path.name for path in tmp_path.iterdir()} == RESULTS | {"video.mp4"}


def test_config_yaml_repeats_the_run(invoke, tum_folder, tmp_path):
    chosen = ("--every", 2, "--limit", 3, "--align", "se3", "--profile", "fast")
    result = invoke("run", tum_folder, *chosen, "--out", tmp_path / "a")
    assert result.exit_code == 0, result.output
    config = yaml.safe_load((tmp_path / "a" / "config.yaml").read_text())
    assert (config["every"], config["limit"], config["align"]) == (2, 3, "se3")
    used = config["camera_used"]
    assert (used["width"], used["height"]) == (320, 240)
    assert used["fx_fy_cx_cy"] == [262.5, 262.5, 159.5, 119.5]
    source, settings = config["source"], tmp_path / "a" / "config.yaml"
    again = ("--profile", settings, "--every", 2, "--limit", 3, "--align", "se3")
    result = invoke("run", source, *again, "--out", tmp_path / "b")
    assert result.exit_code == 0, result.output
    for name in ("states.csv", "config.yaml"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_pattern_selects_images_of_a_folder(invoke, short_walk, tmp_path):
    folder = tmp_path / "mixed"
    write_tum(short_walk[:4], tmp_path / "walk")
    (tmp_path / "walk" / "rgb").rename(folder)
    (folder / "shot.jpg").write_bytes(b"")
    (tmp_path / "walk" / "camera.yaml").rename(folder / "camera.yaml")
    arguments = ("--profile", "fast", "--out", tmp_path / "out")
    result = invoke("run", folder, *arguments)
    assert f"'{folder / '*.jpg'}'" in str(result.exception) or f"'{folder / '*.png'}'" in str(
        result.exception
    )
    result = invoke("run", folder / "*.png", *arguments)
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["frames"] == 4


def test_ground_truth_with_another_clock_is_reported(invoke, tum_folder, tmp_path):
    (tmp_path / "gt.txt").write_text("0.0 0 0 0 0 0 0 1\n9.0 3 0 0 0 0 0 1\n")
    arguments = ("--gt", tmp_path / "gt.txt", "--limit", 4, "--profile", "fast")
    result = invoke("run", tum_folder, *arguments, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "fewer than 3 of 4 frames fall between the poses of" in result.output
    assert "same clock" in result.output


def odometry_and_depth(frames, path, missing=0):
    """The frames as a bag with wheel odometry and depth, as a robot records them.

    The first `missing` frames have neither, as if wheels and depth camera had started later.
    """
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
        if frame.index < missing:
            return
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


@pytest.mark.parametrize("missing", [0, 4])
@pytest.mark.parametrize("scale", ["odom", "depth"])
def test_run_takes_metric_scale_from_topics_of_a_bag(invoke, short_walk, tmp_path, scale, missing):
    odometry_and_depth(short_walk, tmp_path / "bag", missing)
    arguments = ("--method", "poselib+ratio", "--scale", scale, "--align", "se3", *SETTINGS)
    result = invoke("run", tmp_path / "bag", "--out", tmp_path / "out", *arguments)
    assert result.exit_code == 0, result.output
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["ate_rmse_m"] < 0.05


def test_run_lists_the_topics_if_one_is_missing(invoke, short_walk, tmp_path):
    odometry_and_depth(short_walk[:2], tmp_path / "bag")
    arguments = ("--scale", "odom", "--odom-topic", "/wheels", "--out", tmp_path / "out")
    result = invoke("run", tmp_path / "bag", *arguments)
    assert isinstance(result.exception, SourceError)
    assert "/odom (nav_msgs/msg/Odometry)" in str(result.exception)

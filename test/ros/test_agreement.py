"""Live and offline agree: one bag through the node and through `lgc evaluate bag`, same poses."""

import csv
import subprocess

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")
pytest.importorskip("evo", reason="evo is not installed: trajectories are not evaluated")

from ros.processes import (
    DEADLINE_S,
    environment,
    free_domain,
    lgc_command,
    running_node,
    running_process,
)
from transforms3d.quaternions import quat2mat

from lgc_ros.evaluation.trajectory_input import load_trajectory
from lgc_ros.geometry.camera import Camera
from lgc_ros.sources.bag_writer import CAMERA_FRAME, IMAGE_TOPIC, INFO_TOPIC, write_bag
from lgc_ros.sources.synthetic import SyntheticSource

ODOMETRY = "/lgc_odometry/odometry"
FRAMES, KEYPOINTS = 20, 600
RELIABLE = {
    f"qos_overrides.{topic}.subscription.reliability": "reliable"
    for topic in (IMAGE_TOPIC, INFO_TOPIC)
}


@pytest.fixture(scope="module")
def bag(tmp_path_factory, world):
    """A walk of small images; frames far enough apart for keyframes to come and go."""
    K = np.array([[262.0, 0, 159.5], [0, 262.0, 119.5], [0, 0, 1]])
    camera = Camera.from_K(K, 320, 240)
    source = SyntheticSource("walk", FRAMES, rate_hz=5, camera=camera, world=world)
    path = tmp_path_factory.mktemp("bag") / "walk"
    write_bag(source, path)
    return path


def run(folder, *words, domain):
    subprocess.run(
        lgc_command(*words), env=environment(domain, folder), check=True, timeout=DEADLINE_S
    )


@pytest.mark.parametrize("method", ["cn", "poselib+ratio"])
def test_the_node_and_the_offline_replay_give_the_same_poses(bag, method, tmp_path):
    domain, recorded = free_domain(), tmp_path / "live.mcap"
    topics = "-r", f"image:={IMAGE_TOPIC}", "-r", f"camera_info:={INFO_TOPIC}"
    settings = {"method": method, "max_keypoints": KEYPOINTS, "base_frame": CAMERA_FRAME}
    with (
        running_node(tmp_path / "node", *topics, domain=domain, **settings, **RELIABLE),
        running_process(
            tmp_path / "record", lgc_command("record", recorded, ODOMETRY), domain
        ) as recorder,
    ):
        waited = IMAGE_TOPIC, INFO_TOPIC, ODOMETRY
        waits = [word for topic in waited for word in ("--wait-for-subscribers", topic)]
        step = "--in-step-with", ODOMETRY
        run(tmp_path, "play", bag, "--reliable", "--rate", 10, *waits, *step, domain=domain)
        assert recorder.end() == 0
    offline = tmp_path / "offline"
    settings = "--method", method, "--set", f"max_keypoints={KEYPOINTS}"
    run(tmp_path, "evaluate", "bag", bag, *settings, "--out", offline, domain=domain)
    states = list(csv.DictReader((offline / "states.csv").open()))
    live = load_trajectory(f"{recorded}:{ODOMETRY}")
    assert live.stamps_ns.tolist() == [int(state["stamp_ns"]) for state in states]
    positions = [[float(state[axis]) for axis in "xyz"] for state in states]
    rotations = [quat2mat([float(state[f"q{axis}"]) for axis in "wxyz"]) for state in states]
    np.testing.assert_allclose(live.T_wc[:, :3, 3], positions, atol=1e-6)
    np.testing.assert_allclose(live.T_wc[:, :3, :3], rotations, atol=1e-6)
    assert sum(state["status"] == "ok" for state in states) > FRAMES / 2

"""Our commands give Fast DDS room for large images, unless the user has configured it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from rclpy.utilities import get_rmw_implementation_identifier
from ros.processes import DEADLINE_S, completed, free_domain, lgc_command, running_process

from lgc_ros.odometry.profiles import config_folder
from lgc_ros.ros.dds_profile import RMW, TRANSPORTS, VARIABLES, choose_dds_profile
from lgc_ros.sources.bag_poses import read_poses
from lgc_ros.sources.bag_writer import CAMERA_FRAME, IMAGE_TOPIC, INFO_TOPIC, write_bag
from lgc_ros.sources.synthetic import SyntheticSource

if "fastrtps" not in get_rmw_implementation_identifier():
    pytest.skip("ROS uses another DDS than Fast DDS here", allow_module_level=True)

ODOMETRY = "/lgc_odometry/odometry"
FRAMES = 20
SEGMENT_BYTES = 128 * 2**20
USED = f"using the Fast DDS profile {config_folder() / 'fastdds.xml'}"
NODE = [
    *(sys.executable, "-m", "lgc_ros.ros.odometry_node", "--ros-args"),
    *("-r", f"image:={IMAGE_TOPIC}", "-r", f"camera_info:={INFO_TOPIC}"),
    *("-p", f"base_frame:={CAMERA_FRAME}", "-p", "method:=poselib+ratio"),
]


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch):
    """The environment of a user who has not configured DDS."""
    for name in (RMW, TRANSPORTS, *VARIABLES):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def bag(tmp_path_factory, world):
    """20 color images of 640x480."""
    pytest.importorskip("rosbags", reason="rosbags is not installed: no bags")
    path = tmp_path_factory.mktemp("bag") / "walk"
    write_bag(SyntheticSource("walk", FRAMES, rate_hz=10.0, world=world), path)
    return path


def wait_for_shared_memory(robot, low, high=float("inf")) -> None:
    """Until a running process has shared memory of Fast DDS of at least `low` bytes, below `high`.

    It also has the memory of those it talks to, such as this test, in no particular order.
    """

    def fitting():
        maps = Path(f"/proc/{robot.process.pid}/maps").read_text()
        mapped = re.findall(r"^(\w+)-(\w+) .*/dev/shm/fast\w+_[0-9a-f]{16}$", maps, re.MULTILINE)
        return [1 for begin, end in mapped if low <= int(end, 16) - int(begin, 16) < high]

    robot.spin_until(fitting, "shared memory of this size")


# After Ctrl-C: playback was interrupted, recording nothing is an error, and the node just ends.
EXIT_CODES = {"play": 130, "record": 1, "node": 0}


def commands(bag, folder):
    return {
        "play": lgc_command("play", bag, "--wait-for-subscribers", "/nobody"),
        "record": lgc_command("record", folder / "out.mcap", "/nothing"),
        "node": NODE,
    }


@pytest.mark.parametrize("command", EXIT_CODES)
def test_every_command_uses_the_dds_profile_and_logs_it_once(bag, tmp_path, command):
    with running_process(tmp_path, commands(bag, tmp_path)[command]) as robot:
        wait_for_shared_memory(robot, SEGMENT_BYTES)
        robot.spin_until(lambda: USED in robot.log, "the line in the log")
        assert robot.log.count("Fast DDS") == 1
        assert robot.end() == EXIT_CODES[command]


def test_a_profile_of_the_user_is_left_alone(bag, tmp_path, monkeypatch):
    mine = tmp_path / "mine.xml"
    mine.write_text(
        (config_folder() / "fastdds.xml").read_text().replace(">134217728<", ">4194304<")
    )
    for name in VARIABLES:
        monkeypatch.setenv(name, str(mine))
    with running_process(tmp_path, commands(bag, tmp_path)["record"]) as robot:
        wait_for_shared_memory(robot, 4 * 2**20, 8 * 2**20)
        assert robot.end() == 1, "recording nothing is an error"
        assert "Fast DDS" not in robot.log


@pytest.mark.parametrize(
    "chosen",
    [
        {RMW: "rmw_cyclonedds_cpp"},
        {VARIABLES[0]: "mine.xml"},
        {VARIABLES[1]: "mine.xml"},
        {TRANSPORTS: "UDPv4"},
    ],
    ids=str,
)
def test_the_dds_configuration_of_the_user_is_kept(chosen):
    choice = choose_dds_profile(chosen, config_folder())
    assert not choice.environment
    assert not choice.message
    assert choose_dds_profile({RMW: "rmw_fastrtps_cpp"}, config_folder()).environment


def test_a_dds_file_in_the_working_folder_counts_as_user_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert choose_dds_profile({}, config_folder()).environment
    (tmp_path / "DEFAULT_FASTRTPS_PROFILES.xml").write_text("<profiles/>")
    assert not choose_dds_profile({}, config_folder()).environment


def test_with_little_shared_memory_the_default_transport_is_used_with_a_warning(bag, tmp_path):
    """A container has 64 MB of /dev/shm by default."""
    contained = [
        *("unshare", "--map-root-user", "--mount", "sh", "-c"),
        'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"',
        "sh",
    ]
    if shutil.which("unshare") is None or subprocess.run([*contained, "true"]).returncode:
        pytest.skip("no small /dev/shm: mount namespaces are not permitted here")
    done = completed(tmp_path, [*contained, *lgc_command("play", bag, "--rate", 10)])
    assert done.returncode == 0
    assert "too little for fastdds.xml (128 MB per process): using the default" in done.stderr
    assert "--shm-size=1g" in done.stderr
    assert "RTPS" not in done.stdout + done.stderr, "errors of Fast DDS"
    assert done.stdout.split()[-2:] == ["/ground_truth", str(FRAMES)]


def test_a_live_replay_in_three_terminals_loses_no_image(bag, tmp_path):
    """The commands of docs/evaluate.md."""
    domain, out = free_domain(), tmp_path / "live.mcap"
    step = "--in-step-with", ODOMETRY, "--wait-for-subscribers", ODOMETRY
    with (
        running_process(tmp_path / "node", NODE, domain),
        running_process(tmp_path / "record", lgc_command("record", out, ODOMETRY), domain) as rec,
        running_process(tmp_path / "play", lgc_command("play", bag, *step), domain) as player,
    ):
        assert player.process.wait(DEADLINE_S) == 0, player.log
        assert rec.end() == 0, rec.log
    assert "has not answered" not in player.log
    assert len(read_poses(out, ODOMETRY).stamps_ns) == FRAMES

"""`lgc play`: topics, clock, QoS, and waiting for subscribers."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from rclpy.qos import DurabilityPolicy, QoSProfile
from ros.bags.bag_commands import (
    APPLES,
    FRAMES,
    IMAGES,
    INFOS,
    NOTE,
    STAMPS_NS,
    START_NS,
    STORE,
    TYPES,
    content,
    lgc,
    messages,
    playing,
    recording,
    stamps,
)
from ros.processes import DEADLINE_S, free_domain, lgc_command, running_process
from rosbags.interfaces import (
    QosDurability,
)
from rosbags.rosbag2 import StoragePlugin, Writer
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo
from std_msgs.msg import String

from lgc_ros.images.stamps import serialized_stamp_ns, stamp_ns
from lgc_ros.sources.bag_reader import open_bag


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_a_played_bag_is_recorded_byte_by_byte(bags, storage, tmp_path):
    domain, out = free_domain(), tmp_path / "out.mcap"
    waits = [word for topic in TYPES for word in ("--wait-for-subscribers", topic)]
    with recording(tmp_path, out, *TYPES, domain=domain) as recorder:
        code, printed = lgc(tmp_path, "play", bags[storage], *waits, domain=domain)
        assert code == 0, printed
        assert recorder.end() == 0, recorder.log
    assert content(out) == content(bags[storage])
    assert [serialized_stamp_ns(data) for data in content(out)[IMAGES]] == STAMPS_NS
    with open_bag(out) as reader:
        recorded = {connection.topic: connection for connection in reader.connections}
    assert {topic: c.msgtype for topic, c in recorded.items()} == TYPES
    durability = {t: c.ext.offered_qos_profiles[0].durability for t, c in recorded.items()}
    assert durability[NOTE] == QosDurability.TRANSIENT_LOCAL
    assert durability[IMAGES] == QosDurability.VOLATILE


def test_the_clock_follows_the_bag_and_jumps_back_with_it(bag, tmp_path):
    words = bag, "--loop", "--rate", 2, "--clock-hz", 100, "--wait-for-subscribers", INFOS
    with playing(tmp_path, *words) as player:
        ticks = player.listen(Clock, "/clock")
        infos = player.listen(CameraInfo, INFOS)

        def times():
            return [stamp_ns(tick.clock) for tick in ticks]

        def jumps():
            return np.flatnonzero(np.diff(times()) < 0)

        player.spin_until(lambda: len(jumps()) == 2, "a second jump back of the clock")
        first, second = jumps()
        assert second - first > 10
        assert min(times()) >= START_NS
        assert max(times()) <= STAMPS_NS[-1] + 1  # the bag ends behind its last message
        player.spin_until(lambda: len(infos) > FRAMES, "a second pass")
        assert stamps(infos)[: FRAMES + 1] == [*STAMPS_NS, START_NS]
        assert player.end() == 130, "interrupted"


def test_a_part_is_played_under_another_name(bag, tmp_path):
    remapped = "--remap", f"{INFOS}:=infos", "--wait-for-subscribers", "infos"
    part = "--start-offset", 0.1, "--duration", 0.2
    with playing(tmp_path, bag, "--topics", INFOS, *remapped, *part) as player:
        infos = player.listen(CameraInfo, "/infos")
        player.spin_until(lambda: len(infos) == 4, "four messages")
        assert player.process.wait(DEADLINE_S) == 0
        assert stamps(infos) == STAMPS_NS[2:6]
        assert IMAGES not in player.log


def test_a_late_subscriber_receives_transient_local_messages(bag, tmp_path):
    with playing(tmp_path, bag, "--loop") as player:
        infos = player.listen(CameraInfo, INFOS)
        player.spin_until(lambda: infos, "the bag being played")
        qos = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        notes = []
        player.node.create_subscription(String, NOTE, notes.append, qos)
        player.spin_until(lambda: notes, "the note")
        assert notes[0].data == "a robot"


def test_playback_can_wait_for_subscribers_of_any_topic(bag, tmp_path):
    with playing(tmp_path, bag, "--wait-for-subscribers", "/elsewhere") as player:
        infos = player.listen(CameraInfo, INFOS)
        player.spin_until(lambda: "waiting for a subscriber of /elsewhere" in player.log)
        assert not infos
        player.node.create_subscription(String, "/elsewhere", print, 1)
        player.spin_until(lambda: len(infos) == FRAMES, "the bag being played")


@pytest.mark.parametrize(
    ("option", "awaited"),
    [("--wait-for-subscribers", "subscriber"), ("--in-step-with", "publisher")],
)
def test_waiting_for_a_misspelled_topic_ends_with_the_topic_that_exists(
    bag, tmp_path, option, awaited
):
    words = "play", bag, option, "/answre", "--wait-timeout", 5
    with running_process(tmp_path, lgc_command(*words)) as player:
        player.node.create_publisher(CameraInfo, "/answer", 1)
        player.node.create_subscription(CameraInfo, "/answer", print, 1)
        assert player.process.wait(DEADLINE_S) == 1
        reason = f"waited 5 s for a {awaited} of /answre: did you mean '/answer'?"
        assert reason in " ".join(player.log.split())


def test_waiting_where_no_other_node_runs_ends_with_what_to_check(bag, tmp_path):
    code, printed = lgc(tmp_path, "play", bag, "--in-step-with", "/answer", "--wait-timeout", 0.5)
    assert code == 1
    assert (
        "there is none of any topic; check that the other node runs, and ROS_DOMAIN_ID" in printed
    )


def test_unknown_topics_are_refused_with_the_available_ones(bag, tmp_path):
    for words in (("--topics", "/nope"), ("--remap", "/nope:=/x")):
        code, printed = lgc(tmp_path, "play", bag, *words)
        assert code == 1
        assert "has no /nope; it has" in printed
        assert all(topic in printed for topic in TYPES)


@pytest.mark.parametrize(
    "words",
    [
        ("--remap", f"{IMAGES}:=/two words"),
        ("--wait-for-subscribers", "/a//b"),
        ("--in-step-with", "1st"),
    ],
    ids=str,
)
def test_the_player_refuses_invalid_topic_names(bag, tmp_path, words):
    code, printed = lgc(tmp_path, "play", bag, *words)
    assert code == 1
    assert f"error: '{words[1].rpartition(':=')[2]}' is not a valid topic name" in printed
    assert "Traceback" not in printed


def test_a_message_type_that_is_not_installed_is_skipped_with_the_remedy(tmp_path):
    kinds = {INFOS: TYPES[INFOS], APPLES: "fruit_msgs/msg/Apple"}
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        for topic, kind in kinds.items():
            connection = writer.add_connection(topic, kind, typestore=STORE)
            message = STORE.types[kind](5) if topic == APPLES else messages(START_NS)[INFOS]
            writer.write(connection, START_NS, bytes(STORE.serialize_cdr(message, kind)))
    code, printed = lgc(tmp_path, "play", tmp_path / "bag")
    assert code == 0
    assert "skipping /apples: the message type fruit_msgs/msg/Apple is not installed" in printed
    assert "ros-$ROS_DISTRO-fruit-msgs" in printed
    code, printed = lgc(tmp_path, "play", tmp_path / "bag", "--topics", APPLES)
    assert code == 1
    assert "no topic of this bag can be published" in printed


@pytest.mark.parametrize(
    "command", ["lgc play bag", "lgc record out.mcap --all", "lgc demo", "odometry_node"]
)
def test_without_ros_the_error_names_the_remedy(command, tmp_path):
    """A process in which importing rclpy fails, as where it is not installed."""
    name, *words = command.split()
    entry = {
        "lgc": "lgc_ros.cli.main import main",
        "odometry_node": "lgc_ros.cli.ros import odometry_node as main",
    }
    script = f"import sys; sys.modules['rclpy'] = None; from {entry[name]}; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 1
    printed = " ".join(done.stderr.split())
    assert "ROS 2 is not installed" in printed
    assert "pip install 'lgc_ros[jazzy]'" in printed
    assert "Traceback" not in printed

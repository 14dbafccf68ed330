"""`lgc play` and `lgc record`: separate processes that talk over real DDS."""

import signal
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.qos import DurabilityPolicy, QoSProfile
from ros.processes import DEADLINE_S, completed, free_domain, lgc_command, running_process
from rosbags.interfaces import (
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, Image
from std_msgs.msg import String

from lgc_ros.images.stamps import serialized_stamp_ns, stamp_ns
from lgc_ros.ros.bags.topics import typestore_of
from lgc_ros.sources.bag_reader import open_bag
from lgc_ros.sources.mcap_salvage import is_cut_off

STORE = get_typestore(Stores.ROS2_JAZZY)
STORE.register(get_types_from_msg("int32 weight", "fruit_msgs/msg/Apple"))
FRAMES, INTERVAL_NS, START_NS = 12, 50_000_000, 1_700_000_000_000_000_000
STAMPS_NS = [START_NS + k * INTERVAL_NS for k in range(FRAMES)]
IMAGES, INFOS, NOTE, APPLES = "/camera/image_raw", "/camera/camera_info", "/note", "/apples"
TYPES = {
    IMAGES: "sensor_msgs/msg/Image",
    INFOS: "sensor_msgs/msg/CameraInfo",
    NOTE: "std_msgs/msg/String",
}
ENDLESS = QosTime(2**31 - 1, 2**32 - 1)


def offered(durability):
    """The QoS of a reliable publisher, as it is recorded."""
    kept = QosHistory.KEEP_LAST, 1, QosReliability.RELIABLE, durability
    return Qos(*kept, ENDLESS, ENDLESS, QosLiveliness.AUTOMATIC, ENDLESS, False)


def messages(stamp):
    """An image of 640x480 and its camera_info, different for each stamp."""
    types = STORE.types
    time = types["builtin_interfaces/msg/Time"](*divmod(stamp, 10**9))
    header = types["std_msgs/msg/Header"](time, "camera_optical")
    pixels = np.random.default_rng(stamp).integers(0, 255, 640 * 480, np.uint8)
    K, P = np.full(9, stamp % 7.0), np.zeros(12)
    roi = types["sensor_msgs/msg/RegionOfInterest"](0, 0, 0, 0, False)
    return {
        INFOS: types[TYPES[INFOS]](
            header, 480, 640, "plumb_bob", np.zeros(5), K, np.zeros(9), P, 0, 0, roi
        ),
        IMAGES: types[TYPES[IMAGES]](header, 480, 640, "mono8", 0, 640, pixels),
    }


@pytest.fixture(scope="module")
def bags(tmp_path_factory):
    """By storage: images with camera_info, and a note that stays for whoever comes late."""
    folder = tmp_path_factory.mktemp("bags")
    paths = {kind: folder / kind for kind in ("mcap", "sqlite3")}
    for kind, path in paths.items():
        with Writer(path, version=9, storage_plugin=StoragePlugin[kind.upper()]) as writer:
            durabilities = {NOTE: QosDurability.TRANSIENT_LOCAL}
            connections = {
                topic: writer.add_connection(
                    topic,
                    kind,
                    typestore=STORE,
                    offered_qos_profiles=[
                        offered(durabilities.get(topic, QosDurability.VOLATILE))
                    ],
                )
                for topic, kind in TYPES.items()
            }
            note = STORE.types[TYPES[NOTE]]("a robot")
            writer.write(connections[NOTE], START_NS, STORE.serialize_cdr(note, TYPES[NOTE]))
            for stamp in STAMPS_NS:
                for topic, message in messages(stamp).items():
                    data = bytes(STORE.serialize_cdr(message, TYPES[topic]))
                    writer.write(connections[topic], stamp, data)
    return paths


@pytest.fixture
def bag(bags):
    return bags["mcap"]


def content(path):
    """Serialized messages by topic, in their order.

    DDS fills the last word of a message, so they are compared with that filled.
    """
    held = {}
    with open_bag(path) as reader:
        for connection, _, data in reader.messages():
            filled = bytes(data).ljust(-(-len(data) // 4) * 4, b"\0")
            held.setdefault(connection.topic, []).append(filled)
    return held


def stamps(heard):
    return [stamp_ns(message.header.stamp) for message in heard]


def lgc(folder, *words, domain=None):
    """Runs a command to its end; exit code and all it said, white space folded."""
    done = completed(folder, lgc_command(*words), domain)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def playing(folder, *words, domain=None):
    return running_process(folder / "play", lgc_command("play", *words), domain)


def recording(folder, *words, domain=None):
    return running_process(folder / "record", lgc_command("record", *words), domain)


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_a_played_bag_is_recorded_byte_by_byte(bags, storage, tmp_path):
    domain, out = free_domain(), tmp_path / "out.mcap"
    waits = [word for topic in TYPES for word in ("--wait-for-subscribers", topic)]
    with recording(tmp_path, out, *TYPES, domain=domain) as recorder:
        code, said = lgc(tmp_path, "play", bags[storage], *waits, domain=domain)
        assert code == 0, said
        assert recorder.end() == 0, recorder.log
    assert content(out) == content(bags[storage])
    assert [serialized_stamp_ns(data) for data in content(out)[IMAGES]] == STAMPS_NS
    with open_bag(out) as reader:
        recorded = {connection.topic: connection for connection in reader.connections}
    assert {topic: c.msgtype for topic, c in recorded.items()} == TYPES
    durability = {t: c.ext.offered_qos_profiles[0].durability for t, c in recorded.items()}
    assert durability[NOTE] == QosDurability.TRANSIENT_LOCAL
    assert durability[IMAGES] == QosDurability.VOLATILE


@pytest.mark.parametrize("signals", [(signal.SIGINT,), (signal.SIGTERM,), (signal.SIGINT,) * 2])
def test_a_recording_is_complete_after_a_signal(bag, tmp_path, signals):
    domain, out = free_domain(), tmp_path / "out.mcap"
    with (
        playing(tmp_path, bag, "--loop", domain=domain),
        recording(tmp_path, out, IMAGES, "/silent", domain=domain) as recorder,
    ):
        recorder.spin_until(lambda: part_size(out) > 2**20, "the first chunk on disk")
        assert recorder.end(*signals) == 0, recorder.log
    assert not is_cut_off(out)
    images = content(out)[IMAGES]
    assert set(images) <= set(content(bag)[IMAGES])
    said = " ".join(recorder.log.split())
    assert f"{IMAGES} {len(images)}" in said
    assert "no messages on /silent" in said
    assert list(tmp_path.glob("*.part")) == []


def test_the_file_of_a_killed_recorder_is_readable(bag, tmp_path):
    domain, out = free_domain(), tmp_path / "out.mcap"
    with (
        playing(tmp_path, bag, "--loop", domain=domain),
        recording(tmp_path, out, IMAGES, domain=domain) as recorder,
    ):
        recorder.spin_until(lambda: part_size(out) > 2**22, "the first chunks on disk")
        recorder.end(signal.SIGKILL)
    assert not out.exists()
    assert set(content(tmp_path / "out.mcap.part")[IMAGES]) <= set(content(bag)[IMAGES])


def part_size(out):
    """Bytes on disk of a recording under way."""
    return sum(file.stat().st_size for file in out.parent.glob(f"{out.name}.part/*.mcap"))


def test_everything_is_recorded_into_a_folder(bag, tmp_path):
    domain, out = free_domain(), tmp_path / "folder"
    waits = [word for topic in TYPES for word in ("--wait-for-subscribers", topic)]
    with recording(tmp_path, out, "--all", domain=domain) as recorder:
        code, said = lgc(tmp_path, "play", bag, *waits, domain=domain)
        assert code == 0, said
        assert recorder.end() == 0, recorder.log
    assert (out / "metadata.yaml").is_file()
    recorded = content(out)
    assert {topic: recorded[topic] for topic in TYPES} == content(bag)


def test_a_recording_ends_after_an_idle_time(bag, tmp_path):
    domain, out = free_domain(), tmp_path / "out.mcap"
    words = bag, "--topics", NOTE, "--wait-for-subscribers", NOTE
    with (
        recording(tmp_path, out, NOTE, "--stop-after-idle", 2, domain=domain) as recorder,
        playing(tmp_path, *words, domain=domain),
    ):
        assert recorder.process.wait(DEADLINE_S) == 0, recorder.log
    assert not is_cut_off(out)


def test_a_recording_ends_after_a_given_duration(bag, tmp_path):
    domain, out = free_domain(), tmp_path / "out.mcap"
    with playing(tmp_path, bag, "--topics", NOTE, "--loop", domain=domain) as player:
        player.listen(String, NOTE)
        with recording(tmp_path, out, NOTE, "--duration", 10, domain=domain) as recorder:
            assert recorder.process.wait(DEADLINE_S) == 0, recorder.log
    assert not is_cut_off(out)


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


def test_in_step_playback_waits_for_the_answer_to_each_image(bag, tmp_path):
    words = bag, "--topics", IMAGES, "--wait-for-subscribers", IMAGES, "--in-step-with", "/answer"
    with playing(tmp_path, *words, "--rate", 100) as player:
        images = player.listen(Image, IMAGES)
        answers = player.speak(CameraInfo, "/answer")
        for number in range(1, FRAMES + 1):
            player.spin_until(lambda number=number: len(images) >= number, "the next image")
            assert stamps(images) == STAMPS_NS[:number]
            answers.publish(CameraInfo(header=images[-1].header))
        assert player.process.wait(DEADLINE_S) == 0


def test_in_step_playback_sends_an_image_and_its_camera_info_again(bag, tmp_path):
    """Whoever answers did not receive the first images: best-effort QoS loses some."""
    words = bag, "--topics", IMAGES, "--topics", INFOS, "--wait-for-subscribers", IMAGES
    step = "--in-step-with", "/answer", "--answer-timeout", 4
    with playing(tmp_path, *words, *step, "--duration", 0.08) as player:
        images, infos = player.listen(Image, IMAGES), player.listen(CameraInfo, INFOS)
        answers = player.speak(CameraInfo, "/answer")
        for sent_ns in STAMPS_NS[:2]:
            for heard in (images, infos):
                player.spin_until(lambda h=heard, ns=sent_ns: stamps(h).count(ns) == 2, "it again")
            answers.publish(CameraInfo(header=images[-1].header))
        assert player.process.wait(DEADLINE_S) == 0
        assert "has not answered" not in player.log


def test_unanswered_image_topics_are_not_held_if_the_answered_one_is_named(tmp_path):
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        for topic in (IMAGES, "/other/image"):
            connection = writer.add_connection(topic, TYPES[IMAGES], typestore=STORE)
            for shift, stamp in enumerate(STAMPS_NS[:3]):
                message = messages(stamp if topic == IMAGES else stamp + shift)[IMAGES]
                data = bytes(STORE.serialize_cdr(message, TYPES[IMAGES]))
                writer.write(connection, stamp, data)
    named = "--wait-for-subscribers", IMAGES, "--in-step-with", "/answer"
    with playing(tmp_path, tmp_path / "bag", *named) as player:
        images = player.listen(Image, IMAGES)
        answers = player.speak(CameraInfo, "/answer")
        for number in range(1, 4):
            player.spin_until(lambda number=number: len(images) >= number, "the next image")
            answers.publish(CameraInfo(header=images[-1].header))
        assert player.process.wait(DEADLINE_S) == 0
        assert "has not answered" not in player.log


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
    code, said = lgc(tmp_path, "play", bag, "--in-step-with", "/answer", "--wait-timeout", 0.5)
    assert code == 1
    assert "there is none of any topic; check that the other node runs, and ROS_DOMAIN_ID" in said


def test_unknown_topics_are_refused_with_the_available_ones(bag, tmp_path):
    for words in (("--topics", "/nope"), ("--remap", "/nope:=/x")):
        code, said = lgc(tmp_path, "play", bag, *words)
        assert code == 1
        assert "has no /nope; it has" in said
        assert all(topic in said for topic in TYPES)


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
    code, said = lgc(tmp_path, "play", bag, *words)
    assert code == 1
    assert f"error: '{words[1].rpartition(':=')[2]}' is not a valid topic name" in said
    assert "Traceback" not in said


def test_the_recorder_refuses_invalid_topic_names(tmp_path):
    code, said = lgc(tmp_path, "record", tmp_path / "out.mcap", IMAGES, "/two words")
    assert code == 1
    assert "error: '/two words' is not a valid topic name" in said
    assert "Traceback" not in said
    assert not list(tmp_path.glob("out*")), "nothing is half written"


def test_a_node_that_never_answers_ends_playback_with_its_diagnostics(bag, tmp_path):
    words = bag, "--topics", IMAGES, "--wait-for-subscribers", IMAGES
    step = "--in-step-with", "/robot/answer", "--answer-timeout", 1
    with playing(tmp_path, *words, *step) as player:
        images = player.listen(Image, IMAGES)
        player.speak(CameraInfo, "/robot/answer")
        reports = player.speak(DiagnosticArray, "/diagnostics")

        def report(name, message, faults):
            values = [KeyValue(key="faults", value=str(faults))]
            status = DiagnosticStatus(name=name, message=message, values=values)
            reports.publish(DiagnosticArray(status=[status]))

        player.spin_until(lambda: images, "an image")
        report("battery: charge", "full", 0)
        report("robot: odometry", "no transform to the camera", 1)
        player.spin_until(lambda: len(set(stamps(images))) == 2, "the next image")
        report("robot: odometry", "nobody publishes images", 1)
        assert player.process.wait(DEADLINE_S) == 1
        said = " ".join(player.log.split())
        assert "error: /robot/answer answered 0 of 3 images, and none of the last 3" in said
        assert "/diagnostics says: no transform to the camera" in said


def test_a_message_type_that_is_not_installed_is_skipped_with_the_remedy(tmp_path):
    kinds = {INFOS: TYPES[INFOS], APPLES: "fruit_msgs/msg/Apple"}
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        for topic, kind in kinds.items():
            connection = writer.add_connection(topic, kind, typestore=STORE)
            message = STORE.types[kind](5) if topic == APPLES else messages(START_NS)[INFOS]
            writer.write(connection, START_NS, bytes(STORE.serialize_cdr(message, kind)))
    code, said = lgc(tmp_path, "play", tmp_path / "bag")
    assert code == 0
    assert "skipping /apples: the message type fruit_msgs/msg/Apple is not installed" in said
    assert "ros-$ROS_DISTRO-fruit-msgs" in said
    code, said = lgc(tmp_path, "play", tmp_path / "bag", "--topics", APPLES)
    assert code == 1
    assert "no topic of this bag can be published" in said


def test_an_existing_file_is_not_overwritten(tmp_path):
    (tmp_path / "out.mcap").touch()
    code, said = lgc(tmp_path, "record", tmp_path / "out.mcap", "--all")
    assert code == 1
    assert "already exists" in said


def test_definitions_of_installed_types_match_ros():
    from diagnostic_msgs.msg import DiagnosticArray
    from nav_msgs.msg import Odometry
    from rcl_interfaces.msg import ParameterDescriptor, ParameterEvent
    from visualization_msgs.msg import MarkerArray

    kinds = CameraInfo, DiagnosticArray, Odometry, MarkerArray, ParameterDescriptor, ParameterEvent
    for kind in kinds:
        name = f"{kind.__module__.partition('.')[0]}/msg/{kind.__name__}"
        assert typestore_of(kind).hash_rihs01(name) == STORE.hash_rihs01(name)


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
    said = " ".join(done.stderr.split())
    assert "ROS 2 is not installed" in said
    assert "pip install 'lgc_ros[jazzy]'" in said
    assert "Traceback" not in said

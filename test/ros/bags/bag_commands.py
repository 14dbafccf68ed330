"""Bags to play, and `lgc play` and `lgc record` in processes of their own."""

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from ros.processes import completed, lgc_command, running_process
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

from lgc_ros.images.stamps import stamp_ns
from lgc_ros.sources.bag_reader import open_bag

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


def write_example_bag(path, storage):
    """Images with camera_info, and a note that stays for whoever comes late."""
    with Writer(path, version=9, storage_plugin=StoragePlugin[storage.upper()]) as writer:
        durabilities = {NOTE: QosDurability.TRANSIENT_LOCAL}
        connections = {
            topic: writer.add_connection(
                topic,
                kind,
                typestore=STORE,
                offered_qos_profiles=[offered(durabilities.get(topic, QosDurability.VOLATILE))],
            )
            for topic, kind in TYPES.items()
        }
        note = STORE.types[TYPES[NOTE]]("a robot")
        writer.write(connections[NOTE], START_NS, STORE.serialize_cdr(note, TYPES[NOTE]))
        for stamp in STAMPS_NS:
            for topic, message in messages(stamp).items():
                data = bytes(STORE.serialize_cdr(message, TYPES[topic]))
                writer.write(connections[topic], stamp, data)


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
    """Runs a command to its end; exit code and all it printed, white space folded."""
    done = completed(folder, lgc_command(*words), domain)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def playing(folder, *words, domain=None):
    return running_process(folder / "play", lgc_command("play", *words), domain)


def recording(folder, *words, domain=None):
    return running_process(folder / "record", lgc_command("record", *words), domain)

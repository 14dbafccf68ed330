"""A bag of one's own robot with a trajectory file (TUM format); pairs by frame gap."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from lgc_ros.camera import Camera
from lgc_ros.errors import ConfigError, DatasetError
from training.data.files import existing
from training.data.scene import Scene, pairs_by_gap
from training.data.tracked import tracked_images
from training.data.trajectory import read_trajectory

# Channels of the encodings, and how to turn them into gray or BGR.
_ENCODINGS = {
    "mono8": (1, None),
    "8UC1": (1, None),
    "bgr8": (3, None),
    "8UC3": (3, None),
    "rgb8": (3, cv2.COLOR_RGB2BGR),
    "bgra8": (4, cv2.COLOR_BGRA2BGR),
    "rgba8": (4, cv2.COLOR_RGBA2BGR),
}


def read_rosbag(
    path: Path,
    trajectory: str,
    image_topic: str,
    camera_info_topic: str | None = None,
    camera: str | None = None,
    T_body_camera: list[float] | None = None,
    every: int = 1,
    min_gap: int = 1,
    max_gap: int = 10,
    max_pose_gap_s: float = 0.05,
) -> Scene:
    """Every `every`-th image of a topic, raw or compressed, with poses interpolated at its stamp.

    The camera comes from its YAML file (`camera`) or from the first message of
    `camera_info_topic`. `T_body_camera` (16 numbers, row by row) is needed when the trajectory is
    not that of the camera's optical frame. Files are relative to the bag's folder.
    """
    path = Path(path)
    with _open(path) as reader:
        model = _camera(reader, path, camera, camera_info_topic)
        connections = _topic(reader, path, image_topic)
        frames = []
        for number, (connection, log_time_ns, data) in enumerate(reader.messages(connections)):
            if number % every == 0:
                stamp = reader.deserialize(data, connection.msgtype).header.stamp
                stamp_ns = stamp.sec * 1_000_000_000 + stamp.nanosec
                load = partial(_load, path, image_topic, log_time_ns, stamp_ns)
                frames.append((f"{stamp_ns}.png", stamp_ns, load, None))
    images, numbers = tracked_images(
        frames,
        model,
        read_trajectory(path.parent / trajectory),
        max_pose_gap_s,
        path,
        _transform(T_body_camera),
    )
    return Scene(path.resolve().stem, images, pairs_by_gap(numbers, min_gap, max_gap))


def decode_image(message: Any) -> np.ndarray:
    """Pixels, gray or BGR, of a sensor_msgs Image or CompressedImage."""
    if hasattr(message, "format"):
        image = cv2.imdecode(np.asarray(message.data, np.uint8), cv2.IMREAD_ANYCOLOR)
        if image is None:
            raise DatasetError("a compressed image of the bag cannot be decoded: record it again.")
        return image
    if message.encoding not in _ENCODINGS:
        raise DatasetError(
            f"image encoding '{message.encoding}' is not supported: "
            f"use one of {', '.join(_ENCODINGS)}."
        )
    channels, conversion = _ENCODINGS[message.encoding]
    rows = np.asarray(message.data, np.uint8).reshape(message.height, message.step)
    image = rows[:, : message.width * channels].reshape(message.height, message.width, channels)
    if conversion is not None:
        return cv2.cvtColor(image, conversion)
    return np.ascontiguousarray(image[..., 0] if channels == 1 else image)


def _load(path: Path, topic: str, log_time_ns: int, stamp_ns: int) -> np.ndarray:
    with _open(path) as reader:
        connections = _topic(reader, path, topic)
        for connection, _, data in reader.messages(connections, log_time_ns, log_time_ns + 1):
            message = reader.deserialize(data, connection.msgtype)
            if message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec == stamp_ns:
                return decode_image(message)
    raise DatasetError(f"{path} has lost its image at {stamp_ns} ns: it was changed meanwhile.")


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    try:
        from rosbags.highlevel import AnyReader
        from rosbags.typesys import Stores, get_typestore
    except ImportError as error:
        raise ConfigError("reading bags needs rosbags: install the 'bags' extra.") from error
    remedy = "give a rosbag2 folder (with metadata.yaml) or an .mcap file"
    existing(path, remedy)
    try:
        reader = AnyReader([path], default_typestore=get_typestore(Stores.ROS2_JAZZY))
        reader.open()
    except Exception as error:  # each storage has errors of its own
        raise DatasetError(f"{path} is not a readable bag ({error}): {remedy}.") from error
    try:
        yield reader
    finally:
        reader.close()


def _topic(reader, path: Path, topic: str) -> list:
    connections = [connection for connection in reader.connections if connection.topic == topic]
    if not connections:
        topics = ", ".join(sorted({connection.topic for connection in reader.connections}))
        raise DatasetError(f"{path} has no topic {topic}: use one of {topics}.")
    return connections


def _camera(reader, path: Path, camera: str | None, camera_info_topic: str | None) -> Camera:
    if camera is not None:
        return Camera.from_yaml(path.parent / camera)
    if camera_info_topic is None:
        raise ConfigError(
            "a bag needs its camera: give 'camera' (YAML file) or 'camera_info_topic'."
        )
    connections = _topic(reader, path, camera_info_topic)
    for connection, _, data in reader.messages(connections):
        return Camera.from_camera_info(reader.deserialize(data, connection.msgtype))
    raise DatasetError(f"{path}: topic {camera_info_topic} is empty: give 'camera' instead.")


def _transform(values: list[float] | None) -> np.ndarray | None:
    if values is None:
        return None
    if len(values) != 16:
        raise ConfigError(f"T_body_camera has {len(values)} numbers: give 16, row by row.")
    return np.reshape(values, (4, 4)).astype(float)

"""A rosbag2 with a trajectory file (TUM format); pairs by frame gap."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from lgc_ros.errors import ConfigError, DatasetError
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.encoding import image_from_message
from lgc_ros.images.stamps import stamp_ns
from lgc_ros.sources.bag_reader import open_bag, topic_connections
from lgc_ros.sources.bag_topics import read_camera
from lgc_ros.sources.bag_types import IMAGE_TYPES
from lgc_ros.sources.trajectory import read_trajectory
from training.data.scene import PosedScene, pairs_by_gap
from training.data.tracked import tracked_images


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
    max_pose_gap_s: float = 0.1,
) -> PosedScene:
    """Every `every`-th image of a topic, raw or compressed, with interpolated poses.

    The camera comes from its YAML file (`camera`) or from the first message of
    `camera_info_topic`. `T_body_camera` (16 numbers, row by row) is needed when the trajectory is
    not that of the camera's optical frame. Files are relative to the folder the bag lies in;
    `{sequence}` in the trajectory's name stands for that of the bag.
    """
    path = Path(path)
    name = path.resolve().stem
    with open_bag(path) as reader:
        model = _camera(reader, path, camera, camera_info_topic)
        connections = topic_connections(reader, path, image_topic, IMAGE_TYPES)
        frames = []
        for number, (connection, log_time_ns, data) in enumerate(reader.messages(connections)):
            if number % every == 0:
                image_ns = stamp_ns(reader.deserialize(data, connection.msgtype).header.stamp)
                load = partial(_load, path, image_topic, log_time_ns, image_ns)
                frames.append((f"{image_ns}.png", image_ns, load, None))
    images, numbers = tracked_images(
        frames,
        model,
        read_trajectory(path.parent / trajectory.replace("{sequence}", name)),
        max_pose_gap_s,
        path,
        _transform(T_body_camera),
    )
    return PosedScene(name, images, pairs_by_gap(numbers, min_gap, max_gap))


def _load(path: Path, topic: str, log_time_ns: int, image_ns: int) -> np.ndarray:
    with open_bag(path) as reader:
        connections = topic_connections(reader, path, topic, IMAGE_TYPES)
        for connection, _, data in reader.messages(connections, log_time_ns, log_time_ns + 1):
            message = reader.deserialize(data, connection.msgtype)
            if stamp_ns(message.header.stamp) == image_ns:
                return image_from_message(message)
    raise DatasetError(f"{path} has no image at {image_ns} ns any more: the bag was changed")


def _camera(reader, path: Path, camera: str | None, camera_info_topic: str | None) -> Camera:
    if camera is not None:
        return Camera.from_yaml(path.parent / camera)
    if camera_info_topic is None:
        raise ConfigError(
            "a bag needs its camera: give 'camera' (YAML file) or 'camera_info_topic'"
        )
    return read_camera(reader, path, camera_info_topic, rectified=False)


def _transform(values: list[float] | None) -> np.ndarray | None:
    if values is None:
        return None
    if len(values) != 16:
        raise ConfigError(f"T_body_camera has {len(values)} numbers: give 16, row by row")
    return np.reshape(values, (4, 4)).astype(float)

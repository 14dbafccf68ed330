"""Frames of a rosbag2 recording: raw or compressed images with camera, depth and poses."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lgc_ros.errors import ConfigError, ImageError, SourceError
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.encoding import image_from_message
from lgc_ros.images.frame import Frame
from lgc_ros.sources.bag_depth import pair_with_depth, read_depth
from lgc_ros.sources.bag_poses import CameraPoses, read_camera_poses
from lgc_ros.sources.bag_reader import (
    Message,
    header_stamp_ns,
    open_bag,
    topic_connections,
    topic_listing,
    topic_types,
)
from lgc_ros.sources.bag_topics import (
    find_camera_info_topic,
    find_depth_topic,
    find_image_topic,
    find_odom_topic,
    read_camera,
)
from lgc_ros.sources.bag_types import GROUND_TRUTH_TOPIC, IMAGE_TYPES, RAW_IMAGE_TYPE
from lgc_ros.sources.base import GroundTruth, Loader, Source
from lgc_ros.sources.trajectory import read_trajectory

if TYPE_CHECKING:
    from rosbags.highlevel import AnyReader
    from rosbags.interfaces import Connection

log = logging.getLogger(__name__)


def open_rosbag(
    path: Path,
    camera: Camera | None = None,
    image_topic: str | None = None,
    camera_info_topic: str | None = None,
    gt: str | Path | None = None,
    T_bc: np.ndarray | None = None,
    rectified: bool | None = None,
    odom_topic: str | None = None,
    depth_topic: str | None = None,
) -> Source:
    """The images of one topic; topics that are not given are found by type.

    camera_info_topic  default: `camera_info` beside the image topic; its first message is used
    gt         topic with poses, or trajectory file (TUM); default: /ground_truth if it exists
    T_bc       (4, 4) pose of the camera on the body whose poses `gt` contains; default: from
               /tf_static if the poses name their body frame
    rectified  whether the images are rectified; default: whether the topic contains image_rect
    odom_topic   wheel odometry, added to the frames; `auto` selects the only such topic
    depth_topic  depth images aligned with the images, added likewise

    Frames have the stamp of their header, or the recording time if the header has no stamp.
    """
    path = Path(path)
    if T_bc is not None and np.shape(T_bc) != (4, 4):
        raise ConfigError(f"T_bc must be a 4x4 matrix, but has the shape {np.shape(T_bc)}")
    with open_bag(path) as reader:
        image_topic = find_image_topic(reader, path, image_topic)
        images = topic_connections(reader, path, image_topic, IMAGE_TYPES)
        length = _message_count(reader, path, images)
        info_topic = None
        if camera is None:
            info_topic = find_camera_info_topic(reader, path, image_topic, camera_info_topic)
            if rectified is None:
                rectified = "image_rect" in image_topic
            camera = read_camera(reader, path, info_topic, rectified)
        if gt is None and GROUND_TRUTH_TOPIC in topic_types(reader):
            gt = GROUND_TRUTH_TOPIC
        true_poses = None if gt is None else _ground_truth(reader, path, gt, images, T_bc)
        odom_poses = None
        if odom_topic is not None:
            odom_topic = find_odom_topic(reader, path, odom_topic, gt)
            odom_poses = read_camera_poses(reader, path, odom_topic, images, "odometry")
        if depth_topic is not None:
            depth_topic = find_depth_topic(reader, path, depth_topic)
    chosen = {
        "images": image_topic,
        "camera": info_topic,
        "wheel odometry": odom_topic,
        "depth": depth_topic,
        "ground truth": gt,
    }
    # Users must be able to see which of the topics found by type a result is based on.
    log.info("%s: %s", path, ", ".join(f"{what} from {t}" for what, t in chosen.items() if t))
    recording = _Recording(path, image_topic, depth_topic, camera, length, true_poses, odom_poses)
    ground_truth = None if gt is None else GroundTruth(str(gt))
    return Source(path.resolve().stem, camera, recording.loaders, length, ground_truth)


def _message_count(reader: AnyReader, path: Path, images: list[Connection]) -> int:
    """Number of images; SourceError if there are none."""
    count = sum(connection.msgcount for connection in images)
    if not count:
        raise SourceError(
            f"{path}: topic {images[0].topic} is empty, nothing was recorded on it; the bag has "
            f"{topic_listing(reader)}"
        )
    return count


def _ground_truth(
    reader: AnyReader,
    path: Path,
    gt: str | Path,
    images: list[Connection],
    T_bc: np.ndarray | None,
) -> CameraPoses:
    """Ground-truth camera poses from a TUM file or a pose topic."""
    T_bc = None if T_bc is None else np.asarray(T_bc, np.float64)
    if Path(gt).is_file():
        return CameraPoses(read_trajectory(gt), np.eye(4) if T_bc is None else T_bc)
    return read_camera_poses(reader, path, str(gt), images, "ground truth", T_bc)


@dataclass(frozen=True, eq=False)
class _Recording:
    """Images of a bag with everything their frames need; each pass opens the bag again."""

    path: Path
    image_topic: str
    depth_topic: str | None
    camera: Camera
    length: int
    true_poses: CameraPoses | None
    odom_poses: CameraPoses | None

    def loaders(self) -> Iterator[Loader]:
        """One loader per image; SourceError where the bag is damaged or lacks images."""
        with open_bag(self.path, quiet=True) as reader:
            connections = topic_connections(reader, self.path, self.image_topic, IMAGE_TYPES)
            if self.depth_topic:
                connections += topic_connections(
                    reader, self.path, self.depth_topic, [RAW_IMAGE_TYPE]
                )
            count = 0
            try:
                messages = reader.messages(connections)
                for image, depth in pair_with_depth(messages, self.depth_topic):
                    yield partial(self._load, reader, count, image, depth)
                    count += 1
            except Exception as error:  # each storage raises its own errors
                raise SourceError(
                    f"{self.path} is damaged after {count} images: {error}"
                ) from error
            if count < self.length:
                missing = self.length - count
                raise SourceError(f"{self.path} lacks {missing} of {self.length} images")

    def _load(self, reader: AnyReader, index: int, image: Message, depth: Message | None) -> Frame:
        connection, recorded_ns, data = image
        try:
            message = reader.deserialize(data, connection.msgtype)
            stamp_ns = header_stamp_ns(message, recorded_ns)
        except Exception as error:  # damaged bytes can raise anything
            raise ImageError(
                f"message {index} of {self.image_topic} is damaged ({error!r})"
            ) from error
        name = f"{self.image_topic} {stamp_ns}"
        try:
            pixels = image_from_message(message)
        except ImageError as error:
            raise ImageError(f"{name}: {error}") from error
        return Frame(
            index,
            stamp_ns,
            pixels,
            self.camera,
            T_wc=self.true_poses.at(stamp_ns) if self.true_poses else None,
            depth=None if depth is None else read_depth(reader, depth, name),
            name=name,
            T_oc=self.odom_poses.at(stamp_ns) if self.odom_poses else None,
        )

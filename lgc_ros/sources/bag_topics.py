"""Choose the topics of a bag: as requested, or the only one of its type."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lgc_ros.errors import CameraError, SourceError
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.encoding import DEPTH_ENCODINGS
from lgc_ros.sources.bag_reader import (
    first_message,
    topic_connections,
    topic_listing,
    topic_types,
)
from lgc_ros.sources.bag_types import (
    COMPRESSED_IMAGE_TYPE,
    FIND,
    GROUND_TRUTH_TOPIC,
    IMAGE_TYPES,
    INFO_TYPES,
    ODOM_TYPES,
    RAW_IMAGE_TYPE,
)

if TYPE_CHECKING:
    from rosbags.highlevel import AnyReader


def find_image_topic(reader: AnyReader, path: Path, topic: str | None) -> str:
    """The requested topic, or the only one with images that are not depth."""
    if topic is not None:
        return topic
    types = topic_types(reader)
    images = [topic for topic in sorted(types) if types[topic] in IMAGE_TYPES]
    filled = {connection.topic for connection in reader.connections if connection.msgcount}
    topics = [topic for topic in images if topic in filled]
    # The same images may be recorded both raw and compressed.
    topics = [t for t in topics if (raw := _base_topic(t, types[t])) == t or raw not in topics]
    if len(topics) > 1:
        topics = [topic for topic in topics if not is_depth(reader, topic)]
    if len(topics) == 1:
        return topics[0]
    if topics:
        raise SourceError(
            f"{path} has images on several topics: choose with --image-topic one of "
            f"{', '.join(topics)}"
        )
    if images:
        raise SourceError(f"{path} has no images: {', '.join(images)} is empty")
    raise SourceError(
        f"{path} has no images ({' or '.join(IMAGE_TYPES)}), only {topic_listing(reader)}"
    )


def find_odom_topic(reader: AnyReader, path: Path, topic: str, gt: str | Path | None) -> str:
    """The requested topic, or the only one with odometry that is not ground truth."""
    if topic != FIND:
        return topic
    types = topic_types(reader)
    ground_truth = GROUND_TRUTH_TOPIC.strip("/")
    topics = [
        t for t in sorted(types) if types[t] in ODOM_TYPES and t != gt and ground_truth not in t
    ]
    what = f"wheel odometry ({ODOM_TYPES[0]} other than ground truth)"
    return _only(topics, what, "--odom-topic", reader, path)


def find_depth_topic(reader: AnyReader, path: Path, topic: str) -> str:
    """The requested topic, or the only one with depth images."""
    if topic != FIND:
        topic_connections(reader, path, topic, [RAW_IMAGE_TYPE])
        return topic
    filled = {c.topic for c in reader.connections if c.msgcount and c.msgtype == RAW_IMAGE_TYPE}
    topics = [topic for topic in sorted(filled) if is_depth(reader, topic)]
    return _only(topics, "depth images", "--depth-topic", reader, path)


def find_camera_info_topic(
    reader: AnyReader, path: Path, image_topic: str, topic: str | None
) -> str:
    """The requested topic, the one beside the images, or the only CameraInfo topic."""
    if topic is not None:
        return topic
    types = topic_types(reader)
    namespace = _base_topic(image_topic, types[image_topic]).rpartition("/")[0]
    beside = f"{namespace}/camera_info"
    topics = [topic for topic, kind in types.items() if kind in INFO_TYPES]
    if beside in topics:
        return beside
    if len(topics) == 1:
        return topics[0]
    if not topics:
        raise CameraError(
            f"no camera: {path} has neither {beside} for {image_topic} nor any other CameraInfo "
            "topic; give the camera with --camera CAM.yaml"
        )
    raise CameraError(
        f"no camera: {path} has no {beside} for {image_topic}, only {', '.join(sorted(topics))}; "
        "choose one with --camera-info-topic, or give the camera with --camera CAM.yaml"
    )


def read_camera(reader: AnyReader, path: Path, info_topic: str, rectified: bool) -> Camera:
    """The camera of the first message of a CameraInfo topic."""
    info = first_message(reader, topic_connections(reader, path, info_topic, INFO_TYPES))
    if info is None:
        raise CameraError(
            f"no camera: {info_topic} of {path} is empty; give the camera with --camera CAM.yaml"
        )
    try:
        return Camera.from_camera_info(info, rectified)
    except CameraError as error:
        raise CameraError(
            f"{info_topic} of {path}: {error}; or give another camera with --camera CAM.yaml"
        ) from error


def _only(topics: list[str], what: str, option: str, reader: AnyReader, path: Path) -> str:
    """The single candidate for metric scale; otherwise an error that says how to choose."""
    if len(topics) == 1:
        return topics[0]
    remedy = f"choose one with {option}" if topics else "choose another --scale"
    raise SourceError(
        f"{path} has {len(topics)} topics with {what}: {remedy}; the bag has "
        f"{topic_listing(reader)}"
    )


def _base_topic(topic: str, kind: str) -> str:
    """The raw image topic, to which image_transport appends the name of the transport."""
    return topic.rpartition("/")[0] if kind == COMPRESSED_IMAGE_TYPE else topic


def is_depth(reader: AnyReader, topic: str) -> bool:
    """Whether the images of a topic, which must not be empty, are depth."""
    connections = [connection for connection in reader.connections if connection.topic == topic]
    message = first_message(reader, connections)
    if hasattr(message, "format"):
        return "compressedDepth" in message.format or message.format.startswith("16UC1")
    return message.encoding in DEPTH_ENCODINGS and message.encoding != "mono16"

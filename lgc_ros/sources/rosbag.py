"""rosbag2 recordings (mcap and sqlite3): raw or compressed images, CameraInfo, ground truth."""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from transforms3d.quaternions import quat2mat

from lgc_ros.errors import CameraError, ConfigError, ImageError, SourceError
from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.trajectory import Trajectory
from lgc_ros.images import stamps
from lgc_ros.images.encoding import DEPTH_ENCODINGS, depth_from_message, image_from_message
from lgc_ros.images.frame import Frame
from lgc_ros.runtime.safe_yaml import YamlError, read_yaml
from lgc_ros.sources.base import GroundTruth, Loader, Source
from lgc_ros.sources.mcap_salvage import SalvagedMcap, check_exists, is_cut_off
from lgc_ros.sources.trajectory import read_trajectory

if TYPE_CHECKING:
    from rosbags.highlevel import AnyReader
    from rosbags.interfaces import Connection

log = logging.getLogger(__name__)

STORAGE_SUFFIXES = {".mcap", ".db3"}
REPAIR = {
    ".mcap": "`mcap recover IN.mcap -o OUT.mcap` and ",
    ".db3": "`sqlite3 IN.db3 .recover | sqlite3 OUT.db3` and ",
}
IMAGE_TYPES = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage")
INFO_TYPES = ("sensor_msgs/msg/CameraInfo",)
POSE_TYPES = (
    "geometry_msgs/msg/PoseStamped",
    "geometry_msgs/msg/PoseWithCovarianceStamped",
    "geometry_msgs/msg/TransformStamped",
    "nav_msgs/msg/Odometry",
)
ODOM_TYPES = ("nav_msgs/msg/Odometry",)
TF_TYPES = ("tf2_msgs/msg/TFMessage",)
READ_TYPES = {*IMAGE_TYPES, *INFO_TYPES, *POSE_TYPES, *TF_TYPES}
GROUND_TRUTH_TOPIC = "/ground_truth"
# In place of a topic's name: the only one there is of its type.
FIND = "auto"
# A depth image this far from an image still belongs to it; so many images may wait for theirs.
DEPTH_WINDOW_NS = 20_000_000
DEPTHS = 10
# Split recordings list thousands of files.
METADATA_BYTES = 8 << 20
# No recording is longer; damaged counts and stamps are.
MAX_MESSAGES = 2**48
MAX_STAMP_NS = 2**63 - 1
# Values of metadata.yaml without which rosbags does not work, and their types.
METADATA_TYPES = {
    ("version",): int,
    ("storage_identifier",): str,
    ("relative_file_paths",): list,
    ("message_count",): int,
    ("duration", "nanoseconds"): int,
    ("starting_time", "nanoseconds_since_epoch"): int,
    ("topics_with_message_count",): list,
}
TOPIC_TYPES = {
    ("topic_metadata", "name"): str,
    ("topic_metadata", "type"): str,
    ("topic_metadata", "serialization_format"): str,
    ("message_count",): int,
}

Message = tuple["Connection", int, bytes]
"""A recorded message: where from, when recorded (ns), what."""


def is_rosbag(path: Path) -> bool:
    return bool(storage_files(path)) or path.suffix == ".bag"


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
    """The images of one topic; topics that are not named are found by type.

    camera_info_topic  by default `camera_info` beside the image topic; its first message counts
    gt         topic with poses, or trajectory file (TUM); by default /ground_truth if it is there
    T_bc       (4, 4) pose of the camera in the body whose poses `gt` holds; by default from
               /tf_static if the poses name their body
    rectified  whether images are; by default if their topic is named image_rect...
    odom_topic   wheel odometry, which frames then carry; `auto` is the only one there
    depth_topic  depth images aligned with the images, likewise

    Frames are stamped by their headers, or by the recording where a header has no stamp.
    """
    path = Path(path)
    if T_bc is not None and np.shape(T_bc) != (4, 4):
        raise ConfigError(f"T_bc must be a 4x4 matrix, but has the shape {np.shape(T_bc)}")
    with open_bag(path) as reader:
        image_topic = _image_topic(reader, path, image_topic)
        images = topic_connections(reader, path, image_topic, IMAGE_TYPES)
        length = sum(connection.msgcount for connection in images)
        if not length:
            raise SourceError(
                f"{path}: topic {image_topic} is empty, nothing was recorded on it; the bag has "
                f"{topic_listing(reader)}"
            )
        if rectified is None:
            rectified = "image_rect" in image_topic
        info_topic = None
        if camera is None:
            info_topic = _info_topic(reader, path, image_topic, camera_info_topic)
            camera = _camera(reader, path, info_topic, rectified)
        trajectory = None
        if gt is None and GROUND_TRUTH_TOPIC in topic_types(reader):
            gt = GROUND_TRUTH_TOPIC
        if gt is not None and Path(gt).is_file():
            trajectory = read_trajectory(gt)
        elif gt is not None:
            trajectory, body = _topic_poses(reader, path, str(gt))
            if T_bc is None:
                T_bc = _T_body_camera(reader, body, first_message(reader, images), "ground truth")
        T_bc = np.eye(4) if T_bc is None else np.asarray(T_bc, np.float64)
        odom, T_wheels_camera = None, np.eye(4)
        if odom_topic is not None:
            odom_topic = _odom_topic(reader, path, odom_topic, gt)
            odom, body = _topic_poses(reader, path, odom_topic)
            mounted = _T_body_camera(reader, body, first_message(reader, images), "odometry")
            T_wheels_camera = T_wheels_camera if mounted is None else mounted
        if depth_topic is not None:
            depth_topic = _depth_topic(reader, path, depth_topic)
    _log_choice(
        path,
        images=image_topic,
        camera=info_topic,
        wheel_odometry=odom_topic,
        depth=depth_topic,
        ground_truth=gt,
    )

    def load(reader: AnyReader, index: int, image: Message, depth: Message | None) -> Frame:
        connection, recorded_ns, data = image
        try:
            message = reader.deserialize(data, connection.msgtype)
            stamp_ns = _stamp_ns(message, recorded_ns)
        except Exception as error:  # whatever damaged bytes lead to
            raise ImageError(f"message {index} of {image_topic} is damaged ({error!r})") from error
        name = f"{image_topic} {stamp_ns}"
        try:
            pixels = image_from_message(message)
        except ImageError as error:
            raise ImageError(f"{name}: {error}") from error
        T_wb = trajectory.pose_at(stamp_ns) if trajectory else None
        T_wc = None if T_wb is None else T_wb @ T_bc
        T_ob = odom.pose_at(stamp_ns) if odom else None
        T_oc = None if T_ob is None else T_ob @ T_wheels_camera
        depth_m = None if depth is None else _read_depth(reader, depth, name)
        return Frame(index, stamp_ns, pixels, camera, T_wc, depth_m, name, T_oc)

    def loaders() -> Iterator[Loader]:
        with open_bag(path, quiet=True) as reader:
            connections = topic_connections(reader, path, image_topic, IMAGE_TYPES)
            if depth_topic:
                connections += topic_connections(reader, path, depth_topic, IMAGE_TYPES[:1])
            count = 0
            try:
                for image, depth in _with_depth(reader.messages(connections), depth_topic):
                    yield partial(load, reader, count, image, depth)
                    count += 1
            except Exception as error:  # each storage has errors of its own
                raise SourceError(f"{path} is damaged after {count} images: {error}") from error
            if count < length:
                raise SourceError(f"{path} has lost {length - count} of {length} images")

    truth = None if gt is None else GroundTruth(str(gt))
    return Source(path.resolve().stem, camera, loaders, length, truth)


def read_poses(path: str | Path, topic: str) -> Trajectory:
    """All poses of a topic of a bag."""
    with open_bag(path) as reader:
        return _topic_poses(reader, Path(path), topic)[0]


@contextmanager
def open_bag(path: str | Path, quiet: bool = False) -> Iterator[AnyReader]:
    """A reader of a rosbag2 folder or storage file; of one cut off, what is complete.

    That it is cut off is logged, unless `quiet`.
    """
    try:
        from rosbags.highlevel import AnyReader
        from rosbags.typesys import Stores, get_typestore
    except ImportError as error:
        raise ConfigError("bags need the package rosbags: pip install 'lgc_ros[bags]'") from error
    path = Path(path)
    check_exists(path)
    if path.suffix == ".bag":
        raise SourceError(
            f"{path} is a ROS 1 bag: convert it with "
            f"`rosbags-convert --src {path} --dst {path.with_suffix('')}`"
        )
    files = storage_files(path)
    if not files:
        raise SourceError(f"{path} is not a bag: give a rosbag2 folder, an .mcap or a .db3 file")
    if (path / "metadata.yaml").exists():
        _check_metadata(path / "metadata.yaml")
        paths = [path]
    elif len({re.sub(r"_\d+$", "", file.stem) for file in files}) == 1:
        paths = files
    else:
        names = ", ".join(file.name for file in files)
        raise SourceError(f"{path} holds several bags: give one of {names}")
    broken = [file for file in files if file.suffix == ".mcap" and is_cut_off(file)]
    if broken:
        if not quiet:
            names = ", ".join(map(str, broken))
            log.warning("%s: the recording was cut off; reading what is complete", names)
        paths = [SalvagedMcap(file) if file in broken else file for file in files]
    store = get_typestore(Stores.ROS2_JAZZY)
    try:
        reader = AnyReader(paths, default_typestore=store)
        reader.open()
    except Exception as error:  # each storage has errors of its own
        repair = REPAIR.get(files[0].suffix, "")
        raise SourceError(
            f"{path} is not a readable bag ({error}): copy it again, or repair it with "
            f"{repair}`ros2 bag reindex FOLDER`"
        ) from error
    try:
        if broken and not reader.message_count:
            raise SourceError(f"{path}: no message was recorded before the file was cut off")
        _check_connections(reader, path, store.fielddefs)
        yield reader
    finally:
        reader.close()


def _check_metadata(path: Path) -> None:
    """Raises SourceError for a metadata.yaml with values that rosbags would trip over later."""
    try:
        content = read_yaml(path, METADATA_BYTES)
        information = _entry(content, ("rosbag2_bagfile_information",), dict)
        for keys, kind in METADATA_TYPES.items():
            _entry(information, keys, kind)
        if "files" in information:
            _entry(information, ("files",), list)
        for topic in information["topics_with_message_count"]:
            for keys, kind in TOPIC_TYPES.items():
                _entry(topic, keys, kind)
    except (OSError, YamlError, TypeError) as error:
        raise SourceError(
            f"{path} cannot be used ({error}): restore it with `ros2 bag reindex {path.parent}`, "
            "or remove it to read the recording without it"
        ) from error


def _entry(content: Any, keys: tuple[str, ...], kind: type) -> Any:
    """The value under these keys; TypeError if there is none of this kind."""
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    if type(content) is not kind:
        raise TypeError(f"{'.'.join(keys)} is {content!r:.80}, not of type {kind.__name__}")
    return content


def _check_connections(reader: AnyReader, path: Path, ros: Mapping[str, Any]) -> None:
    """Raises SourceError for impossible counts of messages, and types unlike those of `ros`."""
    for connection in reader.connections:
        kind = connection.msgtype
        if not 0 <= connection.msgcount <= MAX_MESSAGES:
            raise SourceError(
                f"{path} is damaged: it claims {connection.msgcount} messages on "
                f"{connection.topic}; copy it again"
            )
        if kind in READ_TYPES and not _same_fields(kind, reader.typestore.fielddefs, ros):
            raise SourceError(
                f"{path} is damaged: it defines {kind} ({connection.topic}) with other fields "
                "than ROS does; copy it again"
            )


def _same_fields(kind: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    """Whether a message type and those within it have the same names and types of fields."""
    if kind not in found or found[kind][1] != expected[kind][1]:
        return False
    inner = re.findall(r"'(\w+/msg/\w+)'", repr(expected[kind][1]))
    return all(_same_fields(name, found, expected) for name in inner)


def decoded(
    reader: AnyReader, connections: list[Connection]
) -> Iterator[tuple[Connection, int, Any]]:
    """Messages with their connection and time of recording; SourceError where damaged."""
    messages = reader.messages(connections)
    while True:
        try:
            connection, recorded_ns, data = next(messages)
            message = reader.deserialize(data, connection.msgtype)
            if recorded_ns > MAX_STAMP_NS:
                raise ValueError(f"recorded at {recorded_ns} ns")
        except StopIteration:
            return
        except Exception as error:  # each storage has errors of its own
            raise SourceError(
                f"the bag is damaged on {connections[0].topic} ({error!r:.200}): copy it again"
            ) from error
        yield connection, recorded_ns, message


def storage_files(path: Path) -> list[Path]:
    """The storage files of a bag, in the order of recording; none if this is not a bag."""
    if path.is_dir():
        files = [file for file in path.iterdir() if STORAGE_SUFFIXES & set(file.suffixes)]
        return sorted(files, key=lambda file: (len(file.name), file.name))
    return [path] if path.suffix in STORAGE_SUFFIXES else []


def topic_types(reader: AnyReader) -> dict[str, str]:
    """Message type of each topic of an open bag."""
    return {connection.topic: connection.msgtype for connection in reader.connections}


def topic_connections(
    reader: AnyReader, path: Path, topic: str, types: Collection[str]
) -> list[Connection]:
    """Where a topic is recorded, if it is of one of these types."""
    found = [connection for connection in reader.connections if connection.topic == topic]
    wanted = [connection for connection in found if connection.msgtype in types]
    if not wanted:
        problem = f"is {found[0].msgtype}, not {' or '.join(types)}" if found else "is not there"
        raise SourceError(f"{path}: topic {topic} {problem}; the bag has {topic_listing(reader)}")
    return wanted


def topic_listing(reader: AnyReader) -> str:
    """Topics with their types, for messages to users."""
    topics = sorted(topic_types(reader).items())
    return ", ".join(f"{topic} ({kind})" for topic, kind in topics) or "no topics"


def _log_choice(path: Path, **chosen: str | Path | None) -> None:
    """Topics found by type are told, so that nobody has to guess what a result rests on."""
    told = [f"{what.replace('_', ' ')} from {where}" for what, where in chosen.items() if where]
    log.info("%s: %s", path, ", ".join(told))


def _image_topic(reader: AnyReader, path: Path, topic: str | None) -> str:
    """The topic asked for, or the only one with images that are not depth."""
    if topic is not None:
        return topic
    types = topic_types(reader)
    images = [topic for topic in sorted(types) if types[topic] in IMAGE_TYPES]
    filled = {connection.topic for connection in reader.connections if connection.msgcount}
    topics = [topic for topic in images if topic in filled]
    # The same images may be there raw and compressed.
    topics = [t for t in topics if (raw := _base_topic(t, types[t])) == t or raw not in topics]
    if len(topics) > 1:
        topics = [topic for topic in topics if not _is_depth(reader, topic)]
    if len(topics) == 1:
        return topics[0]
    if topics:
        raise SourceError(
            f"{path} has images on several topics: choose with --image-topic one of "
            f"{', '.join(topics)}"
        )
    if images:
        raise SourceError(
            f"{path} has no images: {', '.join(images)} is empty, nothing was recorded on it"
        )
    raise SourceError(
        f"{path} has no images ({' or '.join(IMAGE_TYPES)}), but {topic_listing(reader)}"
    )


def _odom_topic(reader: AnyReader, path: Path, topic: str, gt: str | Path | None) -> str:
    """The topic asked for, or the only one with wheel odometry, which truth is not."""
    if topic != FIND:
        return topic
    types = topic_types(reader)
    truth = GROUND_TRUTH_TOPIC.strip("/")
    topics = [t for t in sorted(types) if types[t] in ODOM_TYPES and t != gt and truth not in t]
    what = f"wheel odometry ({ODOM_TYPES[0]} that is no ground truth)"
    return _only(topics, what, "--odom-topic", reader, path)


def _depth_topic(reader: AnyReader, path: Path, topic: str) -> str:
    """The topic asked for, or the only one with depth images."""
    if topic != FIND:
        topic_connections(reader, path, topic, IMAGE_TYPES[:1])
        return topic
    filled = {c.topic for c in reader.connections if c.msgcount and c.msgtype == IMAGE_TYPES[0]}
    topics = [topic for topic in sorted(filled) if _is_depth(reader, topic)]
    return _only(topics, "depth images", "--depth-topic", reader, path)


def _only(topics: list[str], what: str, option: str, reader: AnyReader, path: Path) -> str:
    """The one topic that metres can come from; otherwise an error that says how to choose."""
    if len(topics) == 1:
        return topics[0]
    remedy = f"choose one with {option}" if topics else "choose another --scale"
    raise SourceError(
        f"{path} has {len(topics)} topics with {what}: {remedy}; the bag has "
        f"{topic_listing(reader)}"
    )


def _with_depth(
    messages: Iterator[Message], depth_topic: str | None
) -> Iterator[tuple[Message, Message | None]]:
    """Images in order, each with the depth image nearest to it in time, if one is near.

    An image waits until depth as new as itself has come, because either may be recorded first.
    """
    depths: deque[tuple[int, Message]] = deque(maxlen=DEPTHS)
    waiting: deque[tuple[int, Message]] = deque()

    def first() -> tuple[Message, Message | None]:
        stamp_ns, image = waiting.popleft()
        apart = [(abs(depth_ns - stamp_ns), i) for i, (depth_ns, _) in enumerate(depths)]
        apart_ns, nearest = min(apart, default=(DEPTH_WINDOW_NS + 1, 0))
        return image, depths[nearest][1] if apart_ns <= DEPTH_WINDOW_NS else None

    for message in messages:
        stamped = (_raw_stamp_ns(message), message)
        (depths if message[0].topic == depth_topic else waiting).append(stamped)
        newest_ns = depths[-1][0] if depths else -1
        while waiting and (
            depth_topic is None or newest_ns >= waiting[0][0] or len(waiting) > DEPTHS
        ):
            yield first()
    while waiting:
        yield first()


def _raw_stamp_ns(message: Message) -> int:
    """The stamp of a serialized message whose first field is a header (CDR); else of recording."""
    _, recorded_ns, data = message
    return stamps.serialized_stamp_ns(data) or recorded_ns


def _read_depth(reader: AnyReader, message: Message, name: str) -> np.ndarray | None:
    """Metres; a damaged depth image costs the depth, not the frame."""
    connection, _, data = message
    try:
        return depth_from_message(reader.deserialize(data, connection.msgtype))
    except Exception as error:  # whatever damaged bytes lead to
        log.warning("%s has no depth: %s", name, error)
        return None


def _base_topic(topic: str, kind: str) -> str:
    """The raw image's name: image_transport appends the name of the transport to it."""
    return topic.rpartition("/")[0] if kind == IMAGE_TYPES[1] else topic


def _is_depth(reader: AnyReader, topic: str) -> bool:
    connections = [connection for connection in reader.connections if connection.topic == topic]
    message = first_message(reader, connections)
    if hasattr(message, "format"):
        return "compressedDepth" in message.format or message.format.startswith("16UC1")
    return message.encoding in DEPTH_ENCODINGS and message.encoding != "mono16"


def first_message(reader: AnyReader, connections: list[Connection]) -> Any:
    """The first message of a topic, or None if it is empty."""
    for _, _, message in decoded(reader, connections):
        return message
    return None


def _info_topic(reader: AnyReader, path: Path, image_topic: str, topic: str | None) -> str:
    """The topic asked for, the one beside the images, or the only one with a camera."""
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
            f"no camera: {path} has no {beside} for {image_topic}, nor any other topic of type "
            "CameraInfo; give the camera with --camera CAM.yaml"
        )
    raise CameraError(
        f"no camera: {path} has no {beside} for {image_topic}, but {', '.join(sorted(topics))}; "
        "choose one with --camera-info-topic, or give the camera with --camera CAM.yaml"
    )


def _camera(reader: AnyReader, path: Path, info_topic: str, rectified: bool) -> Camera:
    info = first_message(reader, topic_connections(reader, path, info_topic, INFO_TYPES))
    if info is None:
        raise CameraError(
            f"no camera: {info_topic} of {path} holds no message; give it with --camera CAM.yaml"
        )
    try:
        return Camera.from_camera_info(info, rectified)
    except CameraError as error:
        raise CameraError(
            f"{info_topic} of {path}: {error}; or give another with --camera CAM.yaml"
        ) from error


def _topic_poses(reader: AnyReader, path: Path, topic: str) -> tuple[Trajectory, str]:
    """All poses of a topic, and the frame they are of ("" where messages do not say)."""
    if topic not in topic_types(reader) and not topic.startswith("/"):
        raise SourceError(
            f"{topic} is neither a file nor a topic of {path}, which has {topic_listing(reader)}"
        )
    stamps_ns, positions, quaternions, body = [], [], [], ""
    connections = topic_connections(reader, path, topic, POSE_TYPES)
    for _, recorded_ns, message in decoded(reader, connections):
        stamps_ns.append(_stamp_ns(message, recorded_ns))
        position, rotation = _pose(message)
        positions.append([position.x, position.y, position.z])
        quaternions.append([rotation.w, rotation.x, rotation.y, rotation.z])
        body = getattr(message, "child_frame_id", "")
    return Trajectory.from_samples(stamps_ns, positions, quaternions, f"{topic} of {path}"), body


def _pose(message: Any) -> tuple[Any, Any]:
    """Position and quaternion of a message of one of POSE_TYPES."""
    if hasattr(message, "transform"):
        return message.transform.translation, message.transform.rotation
    pose = message.pose
    pose = getattr(pose, "pose", pose)  # with covariance there is one more level
    return pose.position, pose.orientation


def _T_body_camera(reader: AnyReader, body: str, image: Any, what: str) -> np.ndarray | None:
    """Where the camera sits on the body, as far as the bag tells."""
    camera = image.header.frame_id if image is not None else ""
    if not body or not camera or body == camera:
        return None
    T_bc = _static_transform(reader, body, camera)
    if T_bc is None:
        log.warning(
            "%s is of frame '%s', images are of '%s', and /tf_static does not connect them: both "
            "are taken as the same",
            what,
            body,
            camera,
        )
    return T_bc


def _static_transform(reader: AnyReader, target: str, source: str) -> np.ndarray | None:
    """T_target_source from /tf_static, or None if it does not connect the two frames."""
    parents: dict[str, tuple[str, np.ndarray]] = {}
    static = [
        connection
        for connection in reader.connections
        if connection.topic == "/tf_static" and connection.msgtype in TF_TYPES
    ]
    for _, _, message in decoded(reader, static) if static else ():
        for transform in message.transforms:
            position, q = _pose(transform)
            T = np.eye(4)
            T[:3, :3] = quat2mat([q.w, q.x, q.y, q.z])
            T[:3, 3] = position.x, position.y, position.z
            if not np.isfinite(T).all():
                raise SourceError(
                    f"/tf_static places '{transform.child_frame_id}' at NaN or infinity: correct "
                    "the publisher of this transform"
                )
            parents[transform.child_frame_id] = (transform.header.frame_id, T)

    def to_root(frame: str) -> tuple[str, np.ndarray]:
        T_root = np.eye(4)
        for _ in range(len(parents)):
            if frame not in parents:
                break
            frame, T = parents[frame]
            T_root = T @ T_root
        return frame, T_root

    (root_target, T_rt), (root_source, T_rs) = to_root(target), to_root(source)
    return np.linalg.inv(T_rt) @ T_rs if root_target == root_source else None


def _stamp_ns(message: Any, recorded_ns: int) -> int:
    """The stamp of a message; where it has none, the time of recording."""
    stamp_ns = stamps.stamp_ns(message.header.stamp) or recorded_ns
    if stamp_ns > MAX_STAMP_NS:
        raise ValueError(f"{stamp_ns} ns is no time")
    return stamp_ns

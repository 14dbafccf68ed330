"""Poses recorded in a bag: pose topics, and the camera's mounting from /tf_static."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from transforms3d.quaternions import quat2mat

from lgc_ros.errors import SourceError
from lgc_ros.geometry.trajectory import Trajectory
from lgc_ros.sources.bag_reader import (
    decoded,
    first_message,
    header_stamp_ns,
    open_bag,
    topic_connections,
    topic_listing,
    topic_types,
)
from lgc_ros.sources.bag_types import POSE_TYPES, TF_TYPES
from lgc_ros.sources.trajectory import trajectory_from_samples

if TYPE_CHECKING:
    from rosbags.highlevel import AnyReader
    from rosbags.interfaces import Connection

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class CameraPoses:
    """Poses of a camera mounted on a body: the body's trajectory and T_body_camera (4, 4)."""

    body: Trajectory
    T_bc: np.ndarray

    def at(self, stamp_ns: int) -> np.ndarray | None:
        """Interpolated camera pose (4, 4); None where the body's pose is unknown."""
        T_wb = self.body.pose_at(stamp_ns)
        return None if T_wb is None else T_wb @ self.T_bc


def read_poses(path: str | Path, topic: str) -> Trajectory:
    """All poses of a topic of a bag."""
    with open_bag(path) as reader:
        return _topic_poses(reader, Path(path), topic)[0]


def read_camera_poses(
    reader: AnyReader,
    path: Path,
    topic: str,
    images: list[Connection],
    what: str,
    T_bc: np.ndarray | None = None,
) -> CameraPoses:
    """Camera poses from the poses of a body.

    The camera's pose on the body is `T_bc`, or by default that of /tf_static between the frames
    that the poses and the images name, or identity if the bag does not define it. `what` names
    the poses in the warning about the last case.
    """
    trajectory, body = _topic_poses(reader, path, topic)
    if T_bc is None:
        T_bc = _T_body_camera(reader, body, first_message(reader, images), what)
    return CameraPoses(trajectory, np.eye(4) if T_bc is None else T_bc)


def _topic_poses(reader: AnyReader, path: Path, topic: str) -> tuple[Trajectory, str]:
    """All poses of a topic, and their body frame ("" if the messages do not name it)."""
    if topic not in topic_types(reader) and not topic.startswith("/"):
        raise SourceError(
            f"{topic} is neither a file nor a topic of {path}, which has {topic_listing(reader)}"
        )
    stamps_ns, positions, quaternions, body = [], [], [], ""
    connections = topic_connections(reader, path, topic, POSE_TYPES)
    for _, recorded_ns, message in decoded(reader, connections):
        stamps_ns.append(header_stamp_ns(message, recorded_ns))
        position, rotation = _position_and_rotation(message)
        positions.append([position.x, position.y, position.z])
        quaternions.append([rotation.w, rotation.x, rotation.y, rotation.z])
        body = getattr(message, "child_frame_id", "")
    return trajectory_from_samples(stamps_ns, positions, quaternions, f"{topic} of {path}"), body


def _position_and_rotation(message: Any) -> tuple[Any, Any]:
    """Position and quaternion of a message of one of POSE_TYPES."""
    if hasattr(message, "transform"):
        return message.transform.translation, message.transform.rotation
    pose = message.pose
    pose = getattr(pose, "pose", pose)  # messages with covariance have one more level
    return pose.position, pose.orientation


def _T_body_camera(reader: AnyReader, body: str, image: Any, what: str) -> np.ndarray | None:
    """Pose (4, 4) of the camera on the body from /tf_static, or None if it is not defined."""
    camera = image.header.frame_id if image is not None else ""
    if not body or not camera or body == camera:
        return None
    T_bc = _static_transform(reader, body, camera)
    if T_bc is None:
        log.warning(
            "%s has frame '%s', images have frame '%s', and /tf_static does not connect them: "
            "assuming that both frames are the same",
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
            position, q = _position_and_rotation(transform)
            T = np.eye(4)
            T[:3, :3] = quat2mat([q.w, q.x, q.y, q.z])
            T[:3, 3] = position.x, position.y, position.z
            if not np.isfinite(T).all():
                raise SourceError(
                    f"the transform to '{transform.child_frame_id}' in /tf_static contains NaN or "
                    "infinity: correct the publisher of this transform"
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

"""ROS messages without ROS, for tests that record bags."""

import cv2
import numpy as np
import pytest
from sequences import START_NS, STEP_NS, picture
from transforms3d.quaternions import mat2quat

rosbag2 = pytest.importorskip("rosbags.rosbag2", reason="rosbags is not installed")
typesys = pytest.importorskip("rosbags.typesys")
STORE = typesys.get_typestore(typesys.Stores.ROS2_JAZZY)


def write_messages(folder, messages, storage="MCAP", compression="NONE"):
    """Write (topic, recording time in ns, message) as a bag."""
    plugin = getattr(rosbag2.StoragePlugin, storage)
    writer = rosbag2.Writer(folder, version=9, storage_plugin=plugin)
    mode = getattr(rosbag2.CompressionMode, compression)
    writer.set_compression(mode, rosbag2.CompressionFormat.ZSTD)
    with writer:
        connections = {}
        for topic, time_ns, message in messages:
            kind = message.__msgtype__
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, kind, typestore=STORE)
            writer.write(connections[topic], time_ns, STORE.serialize_cdr(message, kind))


def make(kind, *fields, **named):
    return STORE.types[kind](*fields, **named)


def header(stamp_ns, frame_id="camera"):
    stamp = make("builtin_interfaces/msg/Time", *divmod(stamp_ns, 10**9))
    return make("std_msgs/msg/Header", stamp, frame_id)


def image_message(image, encoding="bgr8", stamp_ns=START_NS, frame_id="camera"):
    rows = image.reshape(len(image), -1).view(np.uint8)
    return make(
        "sensor_msgs/msg/Image",
        header=header(stamp_ns, frame_id),
        height=image.shape[0],
        width=image.shape[1],
        encoding=encoding,
        is_bigendian=0,
        step=rows.shape[1],
        data=rows.ravel(),
    )


def compressed_message(image, stamp_ns=START_NS):
    data = cv2.imencode(".jpg", image)[1].ravel()
    return make("sensor_msgs/msg/CompressedImage", header(stamp_ns), "jpeg", data)


def info_message(camera, P_focal=None):
    P = np.column_stack([camera.K, np.zeros(3)])
    if P_focal:
        P[0, 0] = P[1, 1] = P_focal
    return make(
        "sensor_msgs/msg/CameraInfo",
        header=header(START_NS),
        height=camera.height,
        width=camera.width,
        distortion_model="plumb_bob",
        d=np.append(camera.D, 0.0),
        k=camera.K.ravel(),
        r=np.eye(3).ravel(),
        p=P.ravel(),
        binning_x=0,
        binning_y=0,
        roi=make("sensor_msgs/msg/RegionOfInterest", 0, 0, 0, 0, False),
    )


def geometry(T, vector="Point"):
    w, x, y, z = mat2quat(T[:3, :3])
    return (
        make(f"geometry_msgs/msg/{vector}", *T[:3, 3]),
        make("geometry_msgs/msg/Quaternion", x, y, z, w),
    )


def pose_message(kind, T, stamp_ns=START_NS, child="camera"):
    top = header(stamp_ns, "world")
    if kind == "geometry_msgs/msg/TransformStamped":
        transform = make("geometry_msgs/msg/Transform", *geometry(T, "Vector3"))
        return make(kind, top, child, transform)
    pose = make("geometry_msgs/msg/Pose", *geometry(T))
    if kind == "geometry_msgs/msg/PoseStamped":
        return make(kind, top, pose)
    pose = make("geometry_msgs/msg/PoseWithCovariance", pose, np.zeros(36))
    if kind == "geometry_msgs/msg/PoseWithCovarianceStamped":
        return make(kind, top, pose)
    zero = make("geometry_msgs/msg/Vector3", 0.0, 0.0, 0.0)
    twist = make("geometry_msgs/msg/Twist", zero, zero)
    twist = make("geometry_msgs/msg/TwistWithCovariance", twist, np.zeros(36))
    return make(kind, top, child, pose, twist)


def camera_topics(camera, count=6, image="/cam/image_raw", info="/cam/camera_info"):
    messages = [(info, START_NS, info_message(camera))] if info else []
    for i in range(count):
        stamp_ns = START_NS + i * STEP_NS
        make_message = compressed_message if image.endswith("/compressed") else image_message
        # Recorded 20 ms late: the header has the time of capture.
        message = make_message(picture(i), stamp_ns=stamp_ns)
        messages.append((image, stamp_ns + 20_000_000, message))
    return messages

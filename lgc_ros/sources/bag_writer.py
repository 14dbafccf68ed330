"""Write frames as a rosbag2 (mcap): images, CameraInfo and, where known, depth and poses."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from transforms3d.quaternions import mat2quat

from lgc_ros.errors import ConfigError, SourceError
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import Frame
from lgc_ros.runtime.output_files import complete_file, complete_folder
from lgc_ros.sources.bag_reader import STORAGE_SUFFIXES
from lgc_ros.sources.bag_types import GROUND_TRUTH_TOPIC

IMAGE_TOPIC = "/camera/image_raw"
INFO_TOPIC = "/camera/camera_info"
DEPTH_TOPIC = "/camera/depth/image_raw"
WORLD_FRAME, CAMERA_FRAME = "world", "camera_optical_frame"
TYPES = {
    IMAGE_TOPIC: "sensor_msgs/msg/Image",
    f"{IMAGE_TOPIC}/compressed": "sensor_msgs/msg/CompressedImage",
    INFO_TOPIC: "sensor_msgs/msg/CameraInfo",
    DEPTH_TOPIC: "sensor_msgs/msg/Image",
    GROUND_TRUTH_TOPIC: "geometry_msgs/msg/PoseStamped",
}
MCAP = ".mcap"
CODECS = {"jpeg": ".jpg", "png": ".png"}


def write_bag(
    frames: Iterable[Frame],
    path: str | Path,
    compression: str | None = None,
    depth: bool = False,
) -> None:
    """Write frames into a new rosbag2 that `ros2 bag play` and `open_source` read.

    A path that ends in .mcap becomes a single file, any other a folder. Images go to
    /camera/image_raw, or with a `compression` (jpeg, png) to /camera/image_raw/compressed; the
    camera to /camera/camera_info; poses of the camera's optical frame in the world to
    /ground_truth; with `depth`, known depth in meters (32FC1, NaN where unknown) to
    /camera/depth/image_raw. The recording time of a message is its stamp.
    """
    try:
        from rosbags.rosbag2 import StoragePlugin, Writer
        from rosbags.typesys import Stores, get_typestore
    except ImportError as error:
        raise ConfigError(
            "writing bags requires the package rosbags: pip install 'lgc_ros[bags]'"
        ) from error
    if compression is not None and compression not in CODECS:
        raise ConfigError(f"unknown compression '{compression}'; use one of {', '.join(CODECS)}")
    path = Path(path)
    if path.exists():
        raise SourceError(f"{path} already exists; choose a new name for the bag")
    if path.suffix in STORAGE_SUFFIXES and path.suffix != MCAP:
        raise SourceError(f"bags are written as {MCAP}, not {path.suffix}: give another suffix")
    store = get_typestore(Stores.ROS2_JAZZY)
    connections = {}
    with (
        _complete_bag(path) as unfinished,
        Writer(unfinished, version=9, storage_plugin=StoragePlugin.MCAP) as writer,
    ):
        for frame in frames:
            for topic, message in _messages(frame, store.types, compression, depth):
                if topic not in connections:
                    connections[topic] = writer.add_connection(
                        topic, TYPES[topic], typestore=store
                    )
                data = store.serialize_cdr(message, TYPES[topic])
                writer.write(connections[topic], frame.stamp_ns, data)


@contextmanager
def _complete_bag(path: Path) -> Iterator[Path]:
    """The name of a bag folder to write; at the end it, or the file in it, is moved to `path`."""
    if path.suffix != MCAP:
        with complete_folder(path) as folder:
            yield folder
        return
    with complete_file(path) as file:
        folder = file.with_suffix("")
        try:
            yield folder
            (folder / f"{folder.name}{MCAP}").replace(file)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _messages(
    frame: Frame, types: Mapping[str, type], compression: str | None, depth: bool = False
) -> Iterator[tuple[str, Any]]:
    """Topics and messages of a frame; CameraInfo comes first, because subscribers wait for it."""
    Time, Header = types["builtin_interfaces/msg/Time"], types["std_msgs/msg/Header"]
    stamp = Time(*divmod(frame.stamp_ns, 10**9))
    header = Header(stamp, CAMERA_FRAME)
    if frame.camera is not None:
        yield INFO_TOPIC, _camera_info(frame.camera, header, types)
    if compression is None:
        yield IMAGE_TOPIC, _raw_image(frame.image, _encoding(frame.image), header, types)
    else:
        topic = f"{IMAGE_TOPIC}/compressed"
        yield topic, _compressed_image(frame.image, header, types, compression)
    if depth and frame.depth is not None:
        # Unknown depth is NaN, as in REP-118.
        known = np.where(frame.depth > 0, frame.depth, np.nan).astype("<f4")
        yield DEPTH_TOPIC, _raw_image(known, "32FC1", header, types)
    if frame.T_wc is not None:
        yield GROUND_TRUTH_TOPIC, _pose(frame.T_wc, Header(stamp, WORLD_FRAME), types)


def _raw_image(image: np.ndarray, encoding: str, header: Any, types: Mapping[str, type]) -> Any:
    height, width = image.shape[:2]
    return types["sensor_msgs/msg/Image"](
        header=header,
        height=height,
        width=width,
        encoding=encoding,
        is_bigendian=0,
        step=image.nbytes // height,
        data=np.ascontiguousarray(image).ravel().view(np.uint8),
    )


def _compressed_image(
    image: np.ndarray, header: Any, types: Mapping[str, type], compression: str
) -> Any:
    encoding = _encoding(image)
    return types["sensor_msgs/msg/CompressedImage"](
        header=header,
        format=f"{encoding}; {compression} compressed {encoding}",
        data=cv2.imencode(CODECS[compression], image)[1].ravel(),
    )


def _encoding(image: np.ndarray) -> str:
    return "mono8" if image.ndim == 2 else "bgr8"


def _camera_info(camera: Camera, header: Any, types: Mapping[str, type]) -> Any:
    # ROS has no model without distortion; plumb_bob with zeros is equivalent.
    pinhole = camera.model == "pinhole"
    return types["sensor_msgs/msg/CameraInfo"](
        header=header,
        height=camera.height,
        width=camera.width,
        distortion_model="plumb_bob" if pinhole else camera.model,
        d=np.zeros(5) if pinhole else camera.D,
        k=camera.K.ravel(),
        r=np.eye(3).ravel(),
        p=np.column_stack([camera.K, np.zeros(3)]).ravel(),
        binning_x=0,
        binning_y=0,
        roi=types["sensor_msgs/msg/RegionOfInterest"](0, 0, 0, 0, False),
    )


def _pose(T_wc: np.ndarray, header: Any, types: Mapping[str, type]) -> Any:
    w, x, y, z = mat2quat(T_wc[:3, :3])
    pose = types["geometry_msgs/msg/Pose"](
        types["geometry_msgs/msg/Point"](*T_wc[:3, 3]),
        types["geometry_msgs/msg/Quaternion"](x, y, z, w),
    )
    return types["geometry_msgs/msg/PoseStamped"](header, pose)

"""Bags written from frames."""

from dataclasses import replace

import numpy as np
import pytest
from bag_messages import (
    STORE,
    rosbag2,
)
from sequences import STEP_NS, picture, pose

from lgc_ros.errors import ConfigError, SourceError
from lgc_ros.images.frame import Frame
from lgc_ros.sources import open_source
from lgc_ros.sources.bag_writer import write_bag


@pytest.mark.parametrize("compression", [None, "png", "jpeg"])
def test_a_written_bag_is_read_unchanged(tmp_path, frames, camera, compression, levels):
    gray = Frame(10, frames[9].stamp_ns + STEP_NS, picture(10)[..., 0], camera, pose(10))
    frames.append(gray)
    write_bag(frames, tmp_path / "out", compression)
    source = open_source(tmp_path / "out")
    np.testing.assert_array_equal(source.camera.K, camera.K)
    np.testing.assert_array_equal(source.camera.D, camera.D)
    for read, written in zip(source, frames, strict=True):
        assert read.stamp_ns == written.stamp_ns
        np.testing.assert_allclose(read.T_wc, written.T_wc, atol=1e-12)
        assert read.image.shape == written.image.shape
        difference = np.abs(read.image.astype(int) - written.image)
        assert np.median(difference) <= (2 if compression == "jpeg" else 0)


def test_a_written_bag_has_camera_topics(tmp_path, frames):
    write_bag(frames, tmp_path / "out", "jpeg")
    with rosbag2.Reader(tmp_path / "out") as reader:
        topics = {connection.topic: connection for connection in reader.connections}
        assert {topic: c.msgtype for topic, c in topics.items()} == {
            "/camera/camera_info": "sensor_msgs/msg/CameraInfo",
            "/camera/image_raw/compressed": "sensor_msgs/msg/CompressedImage",
            "/ground_truth": "geometry_msgs/msg/PoseStamped",
        }
        for connection, time_ns, data in reader.messages():
            message = STORE.deserialize_cdr(data, connection.msgtype)
            stamp = message.header.stamp
            assert stamp.sec * 10**9 + stamp.nanosec == time_ns
        assert connection.msgcount == 10


def test_a_bag_may_be_a_single_file_and_holds_depth_in_meters(tmp_path, frames):
    depths = [np.full((48, 64), 1.2345 + i, np.float32) for i in range(len(frames))]
    deep = [replace(frame, depth=depth) for frame, depth in zip(frames, depths, strict=True)]
    write_bag(deep, tmp_path / "out.mcap", depth=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out.mcap"]
    source = open_source(tmp_path / "out.mcap", depth_topic="auto")
    for read, written in zip(source, deep, strict=True):
        assert read.stamp_ns == written.stamp_ns
        np.testing.assert_array_equal(read.depth, written.depth)


def test_writing_refuses_existing_folders_other_formats_and_unknown_compression(tmp_path, frames):
    with pytest.raises(SourceError, match="already exists"):
        write_bag(frames, tmp_path)
    with pytest.raises(SourceError, match=r"bags are written as \.mcap, not \.db3"):
        write_bag(frames, tmp_path / "out.db3")
    with pytest.raises(ConfigError, match="unknown compression 'gif'; use one of jpeg, png"):
        write_bag(frames, tmp_path / "out", "gif")
    assert not (tmp_path / "out").exists()

"""Frames of bags: both storages, raw and compressed images, topics found by type."""

import numpy as np
import pytest
from bag_messages import (
    STORE,
    camera_topics,
    image_message,
    info_message,
    rosbag2,
)
from sequences import START_NS, STEP_NS, picture

from lgc_ros.errors import CameraError, SourceError
from lgc_ros.sources import open_source

STORAGES = ["MCAP", "SQLITE3"]


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("topic", ["/cam/image_raw", "/cam/image_raw/compressed"])
def test_images_and_camera_are_found_by_type(record, camera, levels, storage, topic):
    bag = record(camera_topics(camera, image=topic), storage)
    files = [path for path in bag.iterdir() if path.suffix in (".mcap", ".db3")]
    for path in (bag, *files):
        source = open_source(path)
        assert (source.name, len(source), levels(source)) == ("bag", 6, list(range(6)))
        assert [frame.stamp_ns for frame in source] == [START_NS + i * STEP_NS for i in range(6)]
        np.testing.assert_allclose(source.camera.K, camera.K)
        np.testing.assert_allclose(source.camera.D[:4], camera.D)
    assert levels(open_source(bag, every=2, limit=2)) == [0, 2]


def test_raw_images_are_preferred_to_the_same_ones_compressed(record, camera):
    compressed = camera_topics(camera, image="/cam/image_raw/compressed", info=None)
    source = open_source(record(camera_topics(camera) + compressed))
    assert next(iter(source)).name == f"/cam/image_raw {START_NS}"


def test_depth_topics_are_not_image_topics(record, camera, levels):
    depth = image_message(np.full((48, 64), 900, np.uint16), "16UC1")
    bag = record([("/cam/depth", START_NS, depth), *camera_topics(camera)])
    assert levels(open_source(bag)) == list(range(6))


def test_the_error_for_several_image_topics_lists_them(record, camera, levels):
    right = camera_topics(camera, 3, "/right/image", "/right/camera_info")
    bag = record(camera_topics(camera) + right)
    with pytest.raises(SourceError, match=r"--image-topic one of /cam/image_raw, /right/image$"):
        open_source(bag)
    assert levels(open_source(bag, image_topic="/right/image")) == [0, 1, 2]


def test_the_error_for_a_wrong_topic_lists_the_existing_ones(record, camera):
    bag = record(camera_topics(camera))
    listing = r"/cam/camera_info \(sensor_msgs/msg/CameraInfo\), /cam/image_raw \(sensor_msgs"
    with pytest.raises(SourceError, match=rf"topic /image does not exist; the bag has {listing}"):
        open_source(bag, image_topic="/image")
    with pytest.raises(SourceError, match=r"is sensor_msgs/msg/CameraInfo, not sensor_msgs/msg/I"):
        open_source(bag, image_topic="/cam/camera_info")
    with pytest.raises(SourceError, match=r"topic /info does not exist; the bag has /cam"):
        open_source(bag, camera_info_topic="/info")
    with pytest.raises(SourceError, match=r"topic /gt does not exist; the bag has /cam"):
        open_source(bag, gt="/gt")
    with pytest.raises(SourceError, match=r"gt\.txt is neither a file nor a topic of"):
        open_source(bag, gt="gt.txt")
    bag = record(camera_topics(camera, count=0), name="blind")
    with pytest.raises(SourceError, match=r"has no images .*only /cam/camera_info"):
        open_source(bag)


def test_a_bag_without_camera_info_needs_a_camera(record, camera):
    bag = record(camera_topics(camera, info=None))
    with pytest.raises(CameraError, match=r"nor any other .*give the camera with --camera CAM"):
        open_source(bag)
    assert open_source(bag, camera).camera is camera
    others = [(f"/{side}/camera_info", START_NS, info_message(camera)) for side in "rl"]
    bag = record(camera_topics(camera, info=None) + others, name="stereo")
    with pytest.raises(CameraError, match=r"only /l/camera_info, /r/camera_info; choose one with"):
        open_source(bag)


def test_an_empty_image_topic_is_reported(tmp_path, camera):
    plugin = rosbag2.StoragePlugin.MCAP
    with rosbag2.Writer(tmp_path / "bag", version=9, storage_plugin=plugin) as writer:
        writer.add_connection("/cam/image_raw", "sensor_msgs/msg/Image", typestore=STORE)
    for topic in (None, "/cam/image_raw"):
        with pytest.raises(SourceError, match=r"/cam/image_raw is empty"):
            open_source(tmp_path / "bag", camera, image_topic=topic)


def test_the_only_camera_info_topic_is_used_in_any_namespace(record, camera):
    bag = record(camera_topics(camera, info="/driver/calibration"))
    np.testing.assert_allclose(open_source(bag).camera.K, camera.K)


def test_rectified_images_use_the_projection_matrix(record, camera):
    info = ("/cam/camera_info", START_NS, info_message(camera, P_focal=33.0))
    images = camera_topics(camera, image="/cam/image_rect", info=None)
    bag = record([info, *images])
    assert open_source(bag).camera.focal == 33
    assert not open_source(bag).camera.has_distortion
    assert open_source(bag, rectified=False).camera.has_distortion


def test_a_message_without_stamp_has_its_recording_time(record, camera):
    bag = record([("/cam/image", START_NS + 5, image_message(picture(1), stamp_ns=0))])
    assert next(iter(open_source(bag, camera))).stamp_ns == START_NS + 5


def test_a_damaged_message_is_reported_and_skipped(record, camera, levels):
    messages = camera_topics(camera)
    broken = image_message(picture(2)[:20], stamp_ns=START_NS + 2 * STEP_NS)
    broken.height = 48  # more than the data
    messages[3] = ("/cam/image_raw", START_NS + 2 * STEP_NS, broken)
    unknown = image_message(picture(4), "rgb565", START_NS + 4 * STEP_NS)
    messages[5] = ("/cam/image_raw", START_NS + 4 * STEP_NS + 20_000_000, unknown)
    source = open_source(record(messages))
    assert levels(source) == [0, 1, 3, 5]
    assert len(source) == 6
    assert "step 192 and 3840 bytes of data" in source.errors[0]
    assert "'rgb565' is not supported" in source.errors[1]

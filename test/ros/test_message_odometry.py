"""Messages become frames: calibrations are checked, and a changed one resets odometry."""

import tracemalloc

import cv2
import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from lgc_ros.errors import ImageError
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.ros.message_odometry import MessageOdometry

OPTIONS = OdometryOptions(method="poselib+ratio", max_keypoints=200)


def pair(stamp_s, cx=159.5):
    """An image without texture, and its calibration."""
    image = Image(width=320, height=240, encoding="mono8", step=320)
    image.data.frombytes(np.zeros(320 * 240, np.uint8).tobytes())
    image.header.stamp.sec = stamp_s
    info = CameraInfo(width=320, height=240, distortion_model="plumb_bob", d=[0.0] * 5)
    info.k = [262.5, 0.0, cx, 0.0, 262.5, 119.5, 0.0, 0.0, 1.0]
    return image, info


@pytest.fixture
def said():
    return []


@pytest.fixture
def odometry(said):
    def reset(reason):
        said.append(f"reset: {reason}")

    return MessageOdometry(OPTIONS, False, False, reset, said.append)


def show(odometry, image, info):
    prepared = odometry.prepare(image, info)
    return odometry.track(odometry.read(prepared), None, prepared)


def test_an_unusual_calibration_is_named_once(odometry, said):
    for second in (1, 2):
        show(odometry, *pair(second, cx=20.0))
    assert len(said) == 1
    assert "principal point" in said[0]


def test_an_ordinary_calibration_causes_no_warning(odometry, said):
    show(odometry, *pair(1))
    assert said == []


def test_a_calibration_without_a_single_ray_is_replaced_by_the_next_one(odometry, said):
    image, info = pair(1)
    info.k[5], info.d = -2e9, [-0.03, 0.015, -0.03, -0.2, 0.0]
    show(odometry, image, info)
    assert "100 % of its pixels have no ray" in said[-1]
    image, info = pair(2)
    assert show(odometry, image, info).frame.camera.K[1, 2] == 119.5
    assert said[-1] == "reset: camera_info has changed"


def test_another_calibration_resets_odometry(odometry, said):
    show(odometry, *pair(1))
    show(odometry, *pair(2, cx=150.0))
    assert said == ["reset: camera_info has changed"]


def compressed(width, height):
    """A PNG of one color: a few bytes, however many pixels."""
    _, data = cv2.imencode(".png", np.zeros((height, width), np.uint8))
    message = CompressedImage(format="png", data=data.tobytes())
    message.header.stamp.sec = 1
    return message


def test_a_compressed_image_larger_than_its_sensor_is_refused_before_it_is_decoded(odometry):
    _, info = pair(1)
    prepared = odometry.prepare(compressed(6000, 6000), info)
    decoded_mb = 6000 * 6000 / 2**20
    tracemalloc.start()
    with pytest.raises(ImageError, match=r"6000x6000 pixels, but camera_info is for 320x240"):
        odometry.read(prepared)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak / 2**20 < decoded_mb / 10


def test_a_compressed_image_of_a_binned_sensor_is_decoded(odometry, said):
    _, info = pair(1)
    info.width, info.height, info.binning_x, info.binning_y = 640, 480, 2, 2
    assert show(odometry, compressed(320, 240), info).frame.camera.size == (320, 240)

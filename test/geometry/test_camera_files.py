"""Calibration files of other programs describe the same camera as ROS's camera_info."""

import cv2
import numpy as np
import pytest
from calibrations import EUROC, FILES, KALIBR, OPENCV, ORB_SLAM2, ORB_SLAM3

from lgc_ros.errors import CameraError
from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.camera_files import read_camera

K = np.array([[458.654, 0, 367.215], [0, 457.296, 248.375], [0, 0, 1]])
D = (-0.28340811, 0.07395907, 0.00019359, 1.76187114e-05)
FISHEYE_D = (0.0034823894, 0.0007150348, -0.0020532361, 0.0002029367)
SIZE = (752, 480)


@pytest.fixture
def read(tmp_path):
    """Writes a text to a file and reads it as a camera."""

    def read_text(text, **options):
        path = tmp_path / "left.yaml"
        path.write_text(text)
        return read_camera(path, **options)

    return read_text


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_camera(read, name):
    camera = read(FILES[name])
    np.testing.assert_allclose(camera.K, K)
    np.testing.assert_allclose(np.pad(camera.D, (0, 5 - len(camera.D))), [*D, 0])
    assert (camera.size, camera.model) == (SIZE, "plumb_bob")


def test_the_library_reads_every_format_through_from_yaml(tmp_path):
    (tmp_path / "camera.yaml").write_text(KALIBR)
    np.testing.assert_allclose(Camera.from_yaml(tmp_path / "camera.yaml").K, K)


def test_another_camera_of_a_kalibr_file_is_chosen_by_name(read):
    camera = read(KALIBR, name="cam1")
    assert (camera.size, camera.model, camera.K[1, 1]) == ((512, 512), "equidistant", 191.0)
    np.testing.assert_allclose(camera.D, FISHEYE_D)
    with pytest.raises(CameraError, match=r"no camera 'cam2'; it has cam0, cam1"):
        read(KALIBR, name="cam2")


def test_a_fisheye_of_orb_slam_is_equidistant(read):
    text = ORB_SLAM3.replace("PinHole", "KannalaBrandt8").replace("Camera1.p", "Camera1.unused")
    numbers = "".join(f"Camera1.{n}: {v}\n" for n, v in zip(("k3", "k4"), (0.3, 0.4), strict=True))
    camera = read(text + numbers)
    assert camera.model == "equidistant"
    np.testing.assert_allclose(camera.D, (D[0], D[1], 0.3, 0.4))


def test_what_opencv_writes_is_read(tmp_path):
    path = tmp_path / "camera.yml"
    storage = cv2.FileStorage(str(path), cv2.FILE_STORAGE_WRITE)
    storage.write("cameraMatrix", K)
    storage.write("distCoeffs", np.array([*D, 0.01]))
    storage.release()
    camera = read_camera(path, image_size=lambda: SIZE)
    np.testing.assert_allclose(camera.K, K)
    np.testing.assert_allclose(camera.D, [*D, 0.01])


def test_the_fisheye_flag_of_opencvs_calibration_sample_is_heeded(read):
    assert read(OPENCV + "fisheye_model: 1\n").model == "equidistant"


def test_a_missing_image_size_comes_from_the_images_or_is_an_error(read):
    assert read(ORB_SLAM2, image_size=lambda: (640, 400)).size == (640, 400)
    with pytest.raises(CameraError, match=r"left\.yaml: .*image_width"):
        read(ORB_SLAM2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (EUROC.replace("radial-tangential", "fov"), "distortion_model 'fov' is not supported"),
        (KALIBR.replace("pinhole", "omni"), "camera_model 'omni' is not supported"),
        (KALIBR.replace("[752, 480]", "[752]"), r"image size .* is \[752\], not two integers"),
        (EUROC.replace("intrinsics: [458.654,", "intrinsics: ["), "must be fx, fy, cx, cy"),
        (ORB_SLAM3.replace("PinHole", "Cubemap"), "Camera.type 'Cubemap' is not supported"),
        (ORB_SLAM3.replace("Camera1.cy", "Camera1.c"), "'Camera1.cy' is missing"),
        ("cam0: 5", "must contain intrinsics"),
        ("lens: 5", "not a calibration of .*ROS.*keys are lens"),
    ],
)
def test_the_error_names_file_and_cause(read, text, message):
    with pytest.raises(CameraError, match=rf"left\.yaml: .*{message}"):
        read(text)


def test_only_ros_files_describe_rectified_images(read):
    with pytest.raises(CameraError, match="only camera_info files of ROS"):
        read(KALIBR, rectified=True)

"""TUM folders written from frames."""

import cv2
import numpy as np
import pytest
from transforms3d.quaternions import quat2mat

from lgc_ros.errors import SourceError
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import Frame, read_image
from lgc_ros.sources.synthetic import SyntheticSource
from lgc_ros.sources.tum import write_tum


def read_list(path):
    lines = [line.split() for line in path.read_text().splitlines() if not line.startswith("#")]
    stamps = [int(s) * 10**9 + int(ns.ljust(9, "0")) for s, ns in (x[0].split(".") for x in lines)]
    return stamps, [line[1:] for line in lines]


def test_a_written_tum_folder_contains_all_data_of_the_frames(world, small_camera, tmp_path):
    source = SyntheticSource("walk", 3, rate_hz=30, camera=small_camera, world=world)
    frames = list(source)
    write_tum(source, tmp_path / "out")
    for name in ("rgb", "depth", "groundtruth"):
        assert read_list(tmp_path / "out" / f"{name}.txt")[0] == [f.stamp_ns for f in frames]
    for frame, (name,) in zip(frames, read_list(tmp_path / "out/rgb.txt")[1], strict=True):
        np.testing.assert_array_equal(read_image(tmp_path / "out" / name), frame.image)
    for frame, (name,) in zip(frames, read_list(tmp_path / "out/depth.txt")[1], strict=True):
        stored = cv2.imread(str(tmp_path / "out" / name), cv2.IMREAD_UNCHANGED)
        assert stored.dtype == np.uint16
        np.testing.assert_allclose(stored / 5000, frame.depth, atol=1.01e-4)
    for frame, row in zip(frames, read_list(tmp_path / "out/groundtruth.txt")[1], strict=True):
        x, y, z, qx, qy, qz, qw = map(float, row)
        np.testing.assert_allclose((x, y, z), frame.T_wc[:3, 3], atol=1e-8)
        np.testing.assert_allclose(quat2mat((qw, qx, qy, qz)), frame.T_wc[:3, :3], atol=1e-8)
    camera = Camera.from_yaml(tmp_path / "out/camera.yaml")
    np.testing.assert_allclose(camera.K, small_camera.K)
    assert camera.size == small_camera.size


def test_a_tum_folder_of_bare_images_has_neither_depth_nor_ground_truth(tmp_path):
    write_tum([Frame(0, 5, np.zeros((8, 8), np.uint8))], tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rgb", "rgb.txt"]
    assert read_list(tmp_path / "rgb.txt")[0] == [5]


def test_the_tum_writer_rejects_a_folder_that_is_not_empty(tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(SourceError, match="choose a new one"):
        write_tum([], tmp_path)

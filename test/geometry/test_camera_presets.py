"""Cameras of public datasets are those that the datasets publish."""

import numpy as np
import pytest

from lgc_ros.geometry.camera_presets import PRESETS
from lgc_ros.sources import open_source

# The table of the dataset's page, rounded as there: fx, fy, cx, cy, then distortion.
TUM = {
    "tum-fr1": (517.3, 516.5, 318.6, 255.3, 0.2624, -0.9531, -0.0054, 0.0026, 1.1633),
    "tum-fr2": (520.9, 521.0, 325.1, 249.7, 0.2312, -0.7849, -0.0033, -0.0001, 0.9172),
    "tum-fr3": (535.4, 539.2, 320.1, 247.6),
}


@pytest.mark.parametrize("name", TUM)
def test_tum_cameras_round_to_the_published_table(name):
    camera, table = PRESETS[name], TUM[name]
    numbers = camera.K[[0, 1, 0, 1], [0, 1, 2, 2]]
    np.testing.assert_allclose(numbers, table[:4], atol=0.05)
    np.testing.assert_allclose(camera.D, table[4:], atol=5e-5)
    assert camera.size == (640, 480)


@pytest.mark.parametrize(
    ("folder", "name"), [("kitti_00", "kitti-00"), ("kitti_a", "kitti-07"), ("fr1_xyz", "tum-fr1")]
)
def test_presets_agree_with_the_calibration_of_the_dataset(data_dir, folder, name):
    camera, preset = open_source(data_dir / folder).camera, PRESETS[name]
    assert preset.size == camera.size
    np.testing.assert_allclose(preset.K, camera.K)
    np.testing.assert_allclose(preset.D, camera.D)

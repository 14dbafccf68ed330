"""Calibrations that are probably wrong are named, and usual ones are not."""

import pytest

from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.camera_checks import camera_warnings


def camera(fx=525.0, fy=525.0, cx=319.5, cy=239.5, D=(), model=None):
    return Camera.from_K([[fx, 0, cx], [0, fy, cy], [0, 0, 1]], 640, 480, D, model)


@pytest.mark.parametrize(
    "usual",
    [
        camera(),
        camera(cx=300.0, cy=260.0, D=(0.2624, -0.9531, -0.0054, 0.0026, 1.1633)),  # TUM fr1
        camera(458.7, 457.3, 367.2, 248.4, (-0.2834, 0.0739, 0.0002, 0.00002)),  # EuRoC
        camera(285.0, 285.0, D=(-0.007, 0.04, -0.04, 0.006), model="equidistant"),  # T265
        camera(2000.0, 2000.0),
    ],
)
def test_usual_cameras_raise_no_warning(usual):
    assert camera_warnings(usual) == []


@pytest.mark.parametrize(
    ("unusual", "value"),
    [
        (camera(cx=639.0), "cx 639.0"),
        (camera(cy=20.0), "cy 20.0"),
        (camera(fx=5.25, fy=5.25), "fx 5.2 px gives a horizontal field of view of 178"),
        (camera(fx=52500.0, fy=52500.0), "fx 52500.0"),
        (camera(fy=700.0), "fy 700.0"),
        (camera(D=(-1.5, 0.0, 0.0, 0.0)), "-1.5, 0, 0, 0) folds the image"),
    ],
)
def test_an_unusual_value_is_named(unusual, value):
    (warning,) = camera_warnings(unusual)
    assert value in warning
    assert "check" in warning

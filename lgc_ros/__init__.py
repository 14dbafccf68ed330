"""Visual odometry with learned correspondence filtering, for ROS 2 and plain Python.

The names in `__all__` load on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from os import environ
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lgc_ros.estimation.two_view import TwoViewPipeline
    from lgc_ros.geometry.camera import Camera
    from lgc_ros.images.frame import read_image
    from lgc_ros.odometry.visual_odometry import VisualOdometry
    from lgc_ros.sources import open_source

__version__ = "0.1.0"

__all__ = ["Camera", "TwoViewPipeline", "VisualOdometry", "open_source", "read_image"]

_HOMES = {
    "Camera": "lgc_ros.geometry.camera",
    "TwoViewPipeline": "lgc_ros.estimation.two_view",
    "VisualOdometry": "lgc_ros.odometry.visual_odometry",
    "open_source": "lgc_ros.sources",
    "read_image": "lgc_ros.images.frame",
}

# Idle OpenBLAS threads spin for 0.1 s after each product, on cores that the filter needs: its
# 10 ms become 120 ms on two cores. OpenBLAS reads this variable once, when numpy is imported.
environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
# Pixels of the largest encoded image that is decoded (400 MB as BGR). OpenCV reads this variable
# once, when cv2 is imported; images/encoding.py applies it to the common formats in any case.
environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(2**27))


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lgc_ros' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

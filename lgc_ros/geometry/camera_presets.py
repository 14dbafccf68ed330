"""Cameras of public datasets, by name, with the values that the datasets publish.

TUM RGB-D: Sturm et al., IROS 2012, cvg.cit.tum.de/data/datasets/rgbd-dataset/file_formats; the
color cameras. The images of freiburg3 are already undistorted.

EuRoC MAV: Burri et al., IJRR 2016; sensor.yaml of cam0 and cam1.

KITTI odometry: Geiger et al., CVPR 2012, cvlibs.net/datasets/kitti; P0 of calib.txt, which
rectified gray and color images share.
"""

from __future__ import annotations

import numpy as np

from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.camera_files import pinhole_K


def _camera(size: tuple[int, int], K: tuple[float, ...], D: tuple[float, ...] = ()) -> Camera:
    return Camera.from_K(np.array(pinhole_K(*K)), *size, D)


_TUM = (640, 480)
_EUROC = (752, 480)
_KITTI_00 = _camera((1241, 376), (718.856, 718.856, 607.1928, 185.2157))
_KITTI_03 = _camera((1242, 375), (721.5377, 721.5377, 609.5593, 172.854))
_KITTI_04 = _camera((1226, 370), (707.0912, 707.0912, 601.8873, 183.1104))

PRESETS: dict[str, Camera] = {
    "tum-fr1": _camera(
        _TUM,
        (517.306408, 516.469215, 318.643040, 255.313989),
        (0.262383, -0.953104, -0.005358, 0.002628, 1.163314),
    ),
    "tum-fr2": _camera(
        _TUM,
        (520.908620, 521.007327, 325.141442, 249.701764),
        (0.231222, -0.784899, -0.003257, -0.000105, 0.917205),
    ),
    "tum-fr3": _camera(_TUM, (535.4, 539.2, 320.1, 247.6)),
    "euroc": _camera(
        _EUROC,
        (458.654, 457.296, 367.215, 248.375),
        (-0.28340811, 0.07395907, 0.00019359, 1.76187114e-05),
    ),
    "euroc-cam1": _camera(
        _EUROC,
        (457.587, 456.134, 379.999, 255.238),
        (-0.28368365, 0.07451284, -0.00010473, -3.55590700e-05),
    ),
    **{f"kitti-{sequence:02d}": _KITTI_00 for sequence in (0, 1, 2)},
    "kitti-03": _KITTI_03,
    **{f"kitti-{sequence:02d}": _KITTI_04 for sequence in range(4, 13)},
}

"""Change of keypoint size and angle under a camera rotation."""

from __future__ import annotations

import numpy as np

from lgc_ros.geometry import epipolar as geometry


def rotation_change(R: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Zoom (log2 of size) and roll (radians) of keypoints at x (N, 2) under the rotation R.

    A rotation moves the image by a homography; its derivative at a keypoint, approximated by a
    similarity, gives the change of the keypoint's size and angle.
    """
    turned = geometry.homogeneous(x) @ R.T
    moved = turned[:, :2] / turned[:, 2:]
    derivative = (R[:2, :2] - moved[:, :, None] * R[2, :2]) / turned[:, 2, None, None]
    zoom = np.log2(np.abs(np.linalg.det(derivative))) / 2
    (a, b), (c, d) = derivative.transpose(1, 2, 0)
    return zoom, np.arctan2(c - b, a + d)

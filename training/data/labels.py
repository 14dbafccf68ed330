"""Labels of putative matches: their distance to the true epipolar geometry."""

from __future__ import annotations

import numpy as np

from lgc_ros.features.base import Features
from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.epipolar import essential_from_pose, symmetric_epipolar_distance
from lgc_ros.matching.correspondences import correspond, match
from training.data.dump import LabeledPair

MIN_MATCHES = 8  # the eight-point algorithm needs as many


def label_pair(
    features0: Features,
    features1: Features,
    camera0: Camera,
    camera1: Camera,
    R_10: np.ndarray,
    t_10: np.ndarray,
) -> LabeledPair | None:
    """Match two images whose relative pose is known; None if there are too few matches."""
    if min(len(features0), len(features1)) < MIN_MATCHES:
        return None
    found = correspond(features0, features1, match(features0, features1), camera0, camera1)
    if len(found) < MIN_MATCHES:
        return None
    t_10 = t_10 / np.linalg.norm(t_10)
    return LabeledPair(
        xs=np.hstack([found.x0, found.x1]),
        ys=symmetric_epipolar_distance(essential_from_pose(R_10, t_10), found.x0, found.x1),
        R_10=R_10,
        t_10=t_10,
        ratio=found.ratio,
        mutual=found.mutual,
        zoom=found.zoom,
        roll=found.roll,
        descriptor_distance=found.descriptor_distance,
        K0=camera0.K,
        K1=camera1.K,
    )

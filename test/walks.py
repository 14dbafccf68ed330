"""Walks through the synthetic world as tests of visual odometry see them."""

from dataclasses import replace

import numpy as np

from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.epipolar import rotation_error_deg
from lgc_ros.geometry.trajectory import Trajectory
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.scale import ScaleOptions
from lgc_ros.odometry.visual_odometry import VisualOdometry

CAMERA = Camera.from_K([[262.5, 0, 159.5], [0, 262.5, 119.5], [0, 0, 1]], 320, 240)
# Baseline and small, so that these tests are about odometry and not about a network.
OPTIONS = OdometryOptions(method="poselib+ratio", max_keypoints=600, max_iterations=200)


def process(frames, options=OPTIONS):
    odometry = VisualOdometry(options)
    return [odometry.process(frame) for frame in frames]


def statuses(states):
    return [state.status for state in states]


def tracked(states):
    return Trajectory.from_poses((s.stamp_ns, s.T_wc) for s in states if s.tracked)


def truth(frames):
    return Trajectory.from_poses((frame.stamp_ns, frame.T_wc) for frame in frames)


def rotation_errors_deg(states, frames):
    """Of every state, against the truth in the first camera's frame."""
    R_0w = frames[0].T_wc[:3, :3].T
    return [
        rotation_error_deg(state.T_wc[:3, :3], R_0w @ frame.T_wc[:3, :3])
        for state, frame in zip(states, frames, strict=True)
    ]


def in_meters(source, **options):
    return replace(OPTIONS, scale=ScaleOptions(source, **options))


def standing_still(frame, count):
    """What a camera sees that does not move: the same, with other noise."""
    rng = np.random.default_rng(0)
    clean = frame.image.astype(np.float32)
    return [
        replace(
            frame,
            stamp_ns=frame.stamp_ns + k * 50_000_000,
            image=np.clip(clean + rng.normal(0, 1.5, clean.shape), 0, 255).astype(np.uint8),
        )
        for k in range(1, count + 1)
    ]


def picture_of(frame, image):
    return replace(frame, image=image)

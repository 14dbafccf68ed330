"""Poses, covariances and velocities as ROS messages, converted from the camera to the base.

Frames: w is the camera's optical frame when odometry started, c the optical frame now, b the
robot's base now, o (`odom_frame`) the base when odometry started. The base has the axes of REP-103
(x forward, z up), and so has o.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from geometry_msgs.msg import (
    Point,
    Pose,
    PoseStamped,
    PoseWithCovarianceStamped,
    Quaternion,
    Transform,
    TransformStamped,
    Vector3,
)
from nav_msgs.msg import Odometry
from std_msgs.msg import Header
from transforms3d.quaternions import mat2quat, quat2mat

from lgc_ros.estimation.estimators import PoseEstimate
from lgc_ros.geometry.epipolar import skew
from lgc_ros.odometry.covariance import of_scale, positive_definite
from lgc_ros.odometry.state import OdometryState

# Variance of an unknown velocity: (m/s)² and (rad/s)².
UNKNOWN_VARIANCE = 1e4
# Fewer landmarks than this do not determine the velocity.
MIN_LANDMARKS = 6


@dataclass(frozen=True, eq=False)
class BaseMotion:
    """Pose and velocity of the base.

    Attributes:
        T_ob: (4, 4) base to odom.
        covariance: (6, 6) of position and orientation (fixed axes) in odom.
        twist: (6,) linear and angular velocity in the base frame.
        twist_covariance: (6, 6) of that.
    """

    T_ob: np.ndarray
    covariance: np.ndarray
    twist: np.ndarray
    twist_covariance: np.ndarray


def base_motion(state: OdometryState, T_bc: np.ndarray, twist_cov_cam: np.ndarray) -> BaseMotion:
    """Convert the motion of the camera to that of the base; `T_bc` is the camera in the base."""
    T_cb = np.linalg.inv(T_bc)
    R_bc, R_wc = T_bc[:3, :3], state.T_wc[:3, :3]
    # An error or change of the orientation of the camera also moves the base (lever arm).
    of_pose = _rigid(R_bc, R_wc @ T_cb[:3, 3])
    of_twist = _rigid(R_bc, T_cb[:3, 3])
    return BaseMotion(
        T_ob=T_bc @ state.T_wc @ T_cb,
        covariance=positive_definite(of_pose @ state.covariance @ of_pose.T),
        twist=of_twist @ state.twist,
        twist_covariance=positive_definite(of_twist @ twist_cov_cam @ of_twist.T),
    )


def _rigid(R: np.ndarray, lever: np.ndarray) -> np.ndarray:
    """Maps (linear, angular) at the camera to the end of the lever arm, rotated by R."""
    J = np.zeros((6, 6))
    J[:3, :3] = J[3:, 3:] = R
    J[:3, 3:] = -R @ skew(lever)
    return J


def twist_covariance(
    state: OdometryState, last: OdometryState | None, focal_px: float, sigma_px: float
) -> np.ndarray:
    """(6, 6) covariance of the velocity in the camera frame.

    The velocity is the difference of two poses, whose uncertainty follows from the landmarks in
    view: few or distant ones constrain translation weakly. Scale errors are added to the speed.
    """
    unknown = UNKNOWN_VARIANCE * np.eye(6)
    if last is None or not (last.tracked and state.tracked):
        return unknown
    # A position without landmarks may have been held while the camera moved.
    if min(len(last.points_cam), len(state.points_cam)) < MIN_LANDMARKS:
        return unknown
    x, y, z = state.points_cam.T
    zero = np.zeros_like(z)
    J = np.concatenate(
        [
            np.column_stack([1 / z, zero, -x / z**2, -x * y / z**2, 1 + (x / z) ** 2, -y / z]),
            np.column_stack([zero, 1 / z, -y / z**2, -1 - (y / z) ** 2, x * y / z**2, x / z]),
        ]
    )
    information = J.T @ J * (focal_px / sigma_px) ** 2
    elapsed_s = (state.stamp_ns - last.stamp_ns) * 1e-9
    # The last term bounds what the landmarks do not determine.
    information = information * elapsed_s**2 / 2 + np.eye(6) / UNKNOWN_VARIANCE
    return np.linalg.inv(information) + of_scale(state.twist[:3], state.scale_sigma)


def point_message(position: np.ndarray) -> Point:
    x, y, z = map(float, position)
    return Point(x=x, y=y, z=z)


def quaternion_message(R: np.ndarray) -> Quaternion:
    w, x, y, z = map(float, mat2quat(R))
    return Quaternion(x=x, y=y, z=z, w=w)


def pose_message(T: np.ndarray) -> Pose:
    return Pose(position=point_message(T[:3, 3]), orientation=quaternion_message(T[:3, :3]))


def matrix_of(transform: Transform) -> np.ndarray:
    """(4, 4) matrix of a transform message."""
    return _matrix(transform.translation, transform.rotation)


def pose_matrix(pose: Pose) -> np.ndarray:
    """(4, 4) matrix of a pose message."""
    return _matrix(pose.position, pose.orientation)


def _matrix(t: Vector3 | Point, q: Quaternion) -> np.ndarray:
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = quat2mat([q.w, q.x, q.y, q.z]), (t.x, t.y, t.z)
    return T


def odometry_message(header: Header, base_frame: str, motion: BaseMotion) -> Odometry:
    message = Odometry(header=header, child_frame_id=base_frame)
    message.pose.pose = pose_message(motion.T_ob)
    message.pose.covariance = motion.covariance.ravel()
    message.twist.twist.linear = _vector(motion.twist[:3])
    message.twist.twist.angular = _vector(motion.twist[3:])
    message.twist.covariance = motion.twist_covariance.ravel()
    return message


def pose_with_covariance(header: Header, motion: BaseMotion) -> PoseWithCovarianceStamped:
    message = PoseWithCovarianceStamped(header=header)
    message.pose.pose = pose_message(motion.T_ob)
    message.pose.covariance = motion.covariance.ravel()
    return message


def relative_pose(header: Header, pose: PoseEstimate) -> PoseStamped:
    """Pose of the camera in the camera frame of its keyframe; the translation has length 1."""
    T_01 = np.eye(4)
    T_01[:3, :3], T_01[:3, 3] = pose.R_10.T, -pose.R_10.T @ pose.t_10
    return PoseStamped(header=header, pose=pose_message(T_01))


def transform_message(
    header: Header, base_frame: str, motion: BaseMotion, invert: bool
) -> TransformStamped:
    """odom_frame -> base_frame, or the inverse for a base that already has a parent."""
    message = TransformStamped(header=header, child_frame_id=base_frame)
    T = motion.T_ob
    if invert:
        odom_frame = header.frame_id
        message.header = Header(stamp=header.stamp, frame_id=base_frame)
        message.child_frame_id, T = odom_frame, np.linalg.inv(T)
    message.transform.translation = _vector(T[:3, 3])
    message.transform.rotation = quaternion_message(T[:3, :3])
    return message


def _vector(vector: np.ndarray) -> Vector3:
    x, y, z = map(float, vector)
    return Vector3(x=x, y=y, z=z)

"""Motion of the base from that of the camera, with honest covariances."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transforms3d.euler import euler2mat

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from ros.motion import RNG, T_BC, T_WC, rigid, state
from std_msgs.msg import Header

from lgc_ros.odometry.covariance import in_world
from lgc_ros.odometry.history import PoseHistory, StateReport
from lgc_ros.odometry.map import LandmarkMap
from lgc_ros.odometry.metric_scale import MetricScale
from lgc_ros.odometry.scale import ScaleOptions
from lgc_ros.ros.messages import (
    UNKNOWN_VARIANCE,
    base_motion,
    odometry_message,
    twist_covariance,
)


def test_covariance_of_the_base_matches_simulated_camera_errors():
    root = 1e-4 * RNG.normal(size=(6, 6))
    errors = RNG.normal(size=(20_000, 6)) @ root.T

    def base(error):
        moved = T_WC.copy()
        moved[:3, :3] = euler2mat(*error[3:]) @ T_WC[:3, :3]
        moved[:3, 3] += error[:3]
        return T_BC @ moved @ np.linalg.inv(T_BC)

    motion = base_motion(state(covariance=root @ root.T), T_BC, np.eye(6))
    positions = np.array([base(error)[:3, 3] for error in errors])
    expected = np.cov(positions.T)
    tolerance = 0.05 * np.trace(expected)
    np.testing.assert_allclose(motion.covariance[:3, :3], expected, atol=tolerance)
    turns = np.array([base(error)[:3, :3] @ motion.T_ob[:3, :3].T for error in errors])
    vectors = np.column_stack([turns[:, 2, 1], turns[:, 0, 2], turns[:, 1, 0]])
    expected = np.cov(vectors.T)
    tolerance = 0.05 * np.trace(expected)
    np.testing.assert_allclose(motion.covariance[3:, 3:], expected, atol=tolerance)


def test_velocity_of_the_base_includes_the_lever_arm():
    linear, angular, dt = np.array([0.4, -0.2, 1.0]), np.array([0.1, 0.3, -0.2]), 1e-6
    step = rigid(angular * dt, linear * dt)
    before = base_motion(state(), T_BC, np.eye(6)).T_ob
    after = base_motion(state(T_WC @ step), T_BC, np.eye(6)).T_ob
    moved = np.linalg.inv(before) @ after
    twist = base_motion(state(twist=np.concatenate([linear, angular])), T_BC, np.eye(6)).twist
    np.testing.assert_allclose(twist[:3], moved[:3, 3] / dt, atol=1e-4)
    turn = np.array([moved[2, 1], moved[0, 2], moved[1, 0]]) / dt
    np.testing.assert_allclose(twist[3:], turn, atol=1e-4)


def test_velocity_covariance_follows_landmark_depth_and_elapsed_time():
    last, now = state(), state(stamp_ns=2 * 10**9)
    near = twist_covariance(now, last, 500.0, 1.0)
    far = twist_covariance(replace(now, points_cam=10 * now.points_cam), last, 500.0, 1.0)
    soon = twist_covariance(replace(now, stamp_ns=1_500_000_000), last, 500.0, 1.0)
    assert np.linalg.eigvalsh(near).min() > 0
    np.testing.assert_allclose(far[:3, :3], 100 * near[:3, :3], rtol=0.01)
    np.testing.assert_allclose(soon, 4 * near, rtol=0.01)


def test_velocity_covariance_includes_the_scale_error():
    speed = np.array([0.3, -0.4, 1.2])
    now = state(stamp_ns=2 * 10**9, twist=np.concatenate([speed, np.zeros(3)]))
    for sigma in (0.02, 1.0):
        spread = twist_covariance(replace(now, scale_sigma=sigma), state(), 500.0, 1.0)
        along = speed / np.linalg.norm(speed)
        assert np.sqrt(along @ spread[:3, :3] @ along) > sigma * np.linalg.norm(speed)


def is_positive_definite(covariance):
    """Symmetric, and every combination of position and orientation has some variance."""
    sigmas = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(sigmas, sigmas)
    return np.array_equal(covariance, covariance.T) and np.linalg.eigvalsh(correlation).min() > 0


@given(
    meters=st.floats(0, 1e5),
    sigma=st.floats(0, 1.0),
    drift=st.floats(0, 1e3),
    angles=st.tuples(*3 * [st.floats(-3, 3)]),
    lever=st.tuples(*3 * [st.floats(-5, 5)]),
    speed=st.floats(0, 100),
    count=st.integers(0, 20),
    elapsed_ns=st.integers(10**6, 10**10),
)
def test_every_published_covariance_is_symmetric_and_positive_definite(
    meters, sigma, drift, angles, lever, speed, count, elapsed_ns
):
    """Whatever is certain: the first pose, a straight path, landmarks on one ray."""
    landmarks = LandmarkMap(0.35, 10)
    report = StateReport(landmarks, MetricScale(ScaleOptions(), landmarks), PoseHistory(), 3)
    T_wc = rigid(angles, meters * np.array([0.6, 0.0, 0.8]))
    spread = in_world(np.diag([0, 0, drift**2, 0, drift**2, 0]), T_wc)
    now = state(
        T_wc,
        stamp_ns=10**9 + elapsed_ns,
        covariance=report.published(spread, T_wc),
        twist=np.array([0, 0, speed, 0, 0, 0]),
        points_cam=np.tile([0.1, 0.2, 3.0], (count, 1)),
        scale_sigma=sigma,
    )
    T_bc = rigid(angles, lever)
    motion = base_motion(now, T_bc, twist_covariance(now, state(), 500.0, 0.35))
    message = odometry_message(Header(), "base", motion)
    for covariance in (now.covariance, message.pose.covariance, message.twist.covariance):
        assert is_positive_definite(np.reshape(covariance, (6, 6)))


@pytest.mark.parametrize(
    "held", [{"status": "lost"}, {"status": "rotation_only", "points_cam": np.empty((0, 3))}]
)
def test_velocity_is_unknown_if_the_pose_is_or_was_held(held):
    for now, last in [(state(**held), state()), (state(), state(**held))]:
        spread = twist_covariance(replace(now, stamp_ns=2 * 10**9), last, 500.0, 1.0)
        np.testing.assert_array_equal(spread, UNKNOWN_VARIANCE * np.eye(6))

"""Parts of the node that need no topics: motion of the base, the worker, and why all is silent."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from transforms3d.euler import euler2mat

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")


from lgc_ros.errors import ConfigError
from lgc_ros.odometry import OdometryState
from lgc_ros.ros import compat
from lgc_ros.ros.diagnostics import TopicWatch
from lgc_ros.ros.messages import UNKNOWN_VARIANCE, base_motion, twist_covariance
from lgc_ros.ros.mounting import Mounting
from lgc_ros.ros.worker import NewestFirstWorker


def rigid(angles, position):
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = euler2mat(*angles), position
    return T


T_BC = rigid((-1.5, 0.1, -1.6), (0.3, -0.1, 0.5))
T_WC = rigid((0.2, -0.4, 0.3), (1.0, 2.0, -0.5))
RNG = np.random.default_rng(0)


def state(T_wc=T_WC, **changes):
    points = RNG.uniform((-1, -1, 2), (1, 1, 4), (50, 3))
    made = OdometryState(10**9, "ok", "", T_wc, np.eye(6), np.zeros(6), points_cam=points)
    return replace(made, **changes)


def test_covariance_of_the_base_is_that_of_a_camera_that_errs():
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


def test_velocity_of_the_base_includes_the_swing_about_the_camera():
    linear, angular, dt = np.array([0.4, -0.2, 1.0]), np.array([0.1, 0.3, -0.2]), 1e-6
    step = rigid(angular * dt, linear * dt)
    before = base_motion(state(), T_BC, np.eye(6)).T_ob
    after = base_motion(state(T_WC @ step), T_BC, np.eye(6)).T_ob
    moved = np.linalg.inv(before) @ after
    twist = base_motion(state(twist=np.concatenate([linear, angular])), T_BC, np.eye(6)).twist
    np.testing.assert_allclose(twist[:3], moved[:3, 3] / dt, atol=1e-4)
    turn = np.array([moved[2, 1], moved[0, 2], moved[1, 0]]) / dt
    np.testing.assert_allclose(twist[3:], turn, atol=1e-4)


def test_velocity_is_as_uncertain_as_landmarks_and_time_leave_it():
    last, now = state(), state(stamp_ns=2 * 10**9)
    near = twist_covariance(now, last, 500.0, 1.0)
    far = twist_covariance(replace(now, points_cam=10 * now.points_cam), last, 500.0, 1.0)
    soon = twist_covariance(replace(now, stamp_ns=1_500_000_000), last, 500.0, 1.0)
    assert np.linalg.eigvalsh(near).min() > 0
    np.testing.assert_allclose(far[:3, :3], 100 * near[:3, :3], rtol=0.01)
    np.testing.assert_allclose(soon, 4 * near, rtol=0.01)


def test_velocity_is_unknown_where_the_pose_is_held():
    lost = twist_covariance(state(status="lost"), state(), 500.0, 1.0)
    np.testing.assert_array_equal(lost, UNKNOWN_VARIANCE * np.eye(6))


def test_the_mounting_is_never_guessed(monkeypatch):
    monkeypatch.setattr(compat, "tf2_ros", None)
    mounting = Mounting(None, "base_link", None)
    with pytest.raises(ConfigError, match="there is no TF here"):
        mounting.T_bc("front")
    with pytest.raises(ConfigError, match=r"header\.frame_id is empty"):
        mounting.T_bc("")
    np.testing.assert_array_equal(Mounting(None, "front", None).T_bc("front"), np.eye(4))
    np.testing.assert_array_equal(Mounting(None, "base_link", T_BC).T_bc("front"), T_BC)


def test_a_busy_worker_takes_the_newest_item_and_counts_the_others():
    started, go_on, seen, done = (threading.Event(), threading.Event(), [], threading.Event())

    def work(item):
        started.set()
        go_on.wait()
        seen.append(item)
        if item == 4:
            done.set()

    worker = NewestFirstWorker(work, "worker")
    worker.put(0)
    started.wait()
    for item in (1, 2, 3, 4):
        worker.put(item)
    go_on.set()
    done.wait()
    worker.stop()
    assert seen == [0, 4]
    assert worker.dropped == 3


@pytest.mark.parametrize(
    ("publishers", "cause", "remedy"),
    [(0, "nobody publishes /image", "-r image:=TOPIC"), (1, "send nothing", "camera driver")],
)
def test_a_silent_topic_is_explained(publishers, cause, remedy):
    complaint = TopicWatch("/image", "image").complaint(publishers)
    assert cause in complaint
    assert remedy in complaint

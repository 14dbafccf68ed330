"""The campaign's own parts: what it sends is repeatable, and what it asserts can fail."""

import copy

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from nav_msgs.msg import Odometry
from ros.campaign import mutations
from ros.campaign.invariants import exceptions, violations
from ros.campaign.summary import Summary
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

VALID = {
    "IMAGE": Image(encoding="bgr8", width=4, height=3, step=12, data=list(range(36))),
    "COMPRESSED": CompressedImage(format="jpeg", data=b"\xff\xd8\xff\xc0" + bytes(100)),
    "CAMERA_INFO": CameraInfo(width=4, height=3, d=np.zeros(5), k=np.eye(3).ravel()),
    "ODOM": Odometry(),
    "DEPTH": Image(encoding="16UC1", width=4, height=3, step=8, data=list(range(24))),
}


def malformed(kind, seed, count=200):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        message = copy.deepcopy(VALID[kind])
        message.header.frame_id, message.header.stamp.sec = "camera", 1_700_000_000
        mutations.spoil(rng, message, getattr(mutations, kind))
        yield message


@pytest.mark.parametrize("kind", VALID)
def test_the_same_seed_makes_the_same_malformed_messages(kind):
    first, again, other = ([repr(m) for m in malformed(kind, seed)] for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert len(set(first)) > 100, "of many kinds"


def answer(covariance):
    message = Odometry()
    message.pose.pose.orientation.w = 1.0
    message.pose.covariance = message.twist.covariance = np.ravel(covariance)
    return message


def test_odometry_must_be_finite_with_positive_definite_covariance():
    good = np.diag([1e-12, 1, 1, 1e4, 1, 1e-6])
    indefinite = good.copy()
    indefinite[1, 2] = indefinite[2, 1] = 1.1
    assert not violations([answer(good)])
    assert "1 of 2 answers, covariance of pose zero" in violations(
        [answer(good), answer(np.zeros(36))]
    )
    assert "not positive definite" in violations([answer(indefinite)])
    assert "not positive definite" in violations([answer(np.full(36, np.nan))])
    lost = answer(good)
    lost.pose.pose.position.x = float("nan")
    assert "not finite" in violations([lost])
    lost.pose.pose.orientation.w = 0.0
    assert "quaternion" in violations([lost])


def test_tracebacks_in_a_log_are_counted_by_their_exception():
    trace = (
        'failed: Traceback (most recent call last):\n  File "x", line 1\nValueError: {} is bad\n'
    )
    log = f"[INFO] fine\n{trace.format(1)}{trace.format(23)}[INFO] fine again\n"
    assert exceptions(log) == {"ValueError: # is bad": 2}
    assert not exceptions("[INFO] fine\n")


def test_the_table_keeps_a_phase_that_failed():
    summary = Summary()

    def fail():
        with summary.phase("odom") as row:
            row.malformed = 10_000
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert "| odom | 10,000 |" in summary.table()

"""A ROS domain for each test that starts several processes."""

import pytest


@pytest.fixture
def domain():
    live = pytest.importorskip("lgc_ros.ros.live", reason="rclpy is not installed: no ROS here")
    with live.reserved_domain() as reserved:
        yield reserved

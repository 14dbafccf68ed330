"""Message definitions that are written to bags."""

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from diagnostic_msgs.msg import DiagnosticArray
from ros.bags.bag_commands import (
    STORE,
)
from sensor_msgs.msg import CameraInfo

from lgc_ros.ros.bags.topics import typestore_of


def test_definitions_of_installed_types_match_ros():
    from nav_msgs.msg import Odometry
    from rcl_interfaces.msg import ParameterDescriptor, ParameterEvent
    from visualization_msgs.msg import MarkerArray

    kinds = CameraInfo, DiagnosticArray, Odometry, MarkerArray, ParameterDescriptor, ParameterEvent
    for kind in kinds:
        name = f"{kind.__module__.partition('.')[0]}/msg/{kind.__name__}"
        assert typestore_of(kind).hash_rihs01(name) == STORE.hash_rihs01(name)

"""Subscriptions that cannot be made."""

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from rclpy.context import Context
from rclpy.node import Node
from rclpy.parameter import Parameter
from ros.processes import free_domain

from lgc_ros.errors import ConfigError
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.scale import ScaleOptions
from lgc_ros.ros.inputs import Inputs
from lgc_ros.ros.node_parameters import NodeParameters


@pytest.mark.parametrize("topic", ["camera_info", "odom"])
def test_inputs_that_cannot_be_opened_leave_no_subscription(monkeypatch, topic):
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    context = Context()
    context.init(domain_id=free_domain())
    override = Parameter(f"qos_overrides./{topic}.subscription.reliability", value="perhaps")
    node = Node("node", context=context, parameter_overrides=[override])
    before = len(list(node.subscriptions))
    options = OdometryOptions(scale=ScaleOptions(source="odom"))
    with pytest.raises(ConfigError, match=f"invalid parameters qos_overrides./{topic}"):
        Inputs(node, NodeParameters(odometry=options), print)
    assert len(list(node.subscriptions)) == before
    node.destroy_node()
    context.try_shutdown()

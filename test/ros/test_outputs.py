"""Publishers that cannot be created."""

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from rclpy.context import Context
from rclpy.lifecycle import LifecycleNode
from rclpy.parameter import Parameter
from ros.processes import free_domain

from lgc_ros.errors import ConfigError
from lgc_ros.ros.outputs import Outputs


def test_outputs_that_cannot_be_created_leave_no_publisher(monkeypatch):
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    context = Context()
    context.init(domain_id=free_domain())
    override = Parameter("qos_overrides./node/path.publisher.reliability", value="perhaps")
    node = LifecycleNode("node", context=context, parameter_overrides=[override])
    before = len(list(node.publishers))
    with pytest.raises(ConfigError, match=r"invalid parameters qos_overrides./node/path"):
        Outputs(node)
    assert len(list(node.publishers)) == before
    node.destroy_node()
    context.try_shutdown()

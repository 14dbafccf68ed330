"""What config/ holds for other programs fits the node: RViz's displays, Fast DDS's transports."""

import re
from functools import partial
from pathlib import Path

import pytest
import yaml

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.qos import DurabilityPolicy, ReliabilityPolicy
from rclpy.utilities import get_rmw_implementation_identifier
from ros.processes import running_node

from lgc_ros.ros.node_parameters import default_parameters

CONFIG = Path(__file__).parents[2] / "config"
NODE = "lgc_odometry"
SHOWN = {
    "rviz_default_plugins/Odometry": "nav_msgs/msg/Odometry",
    "rviz_default_plugins/Path": "nav_msgs/msg/Path",
    "rviz_default_plugins/MarkerArray": "visualization_msgs/msg/MarkerArray",
    "rviz_default_plugins/Image": "sensor_msgs/msg/Image",
}
SEGMENT_BYTES = 128 * 2**20


@pytest.fixture(scope="module")
def rviz():
    return yaml.safe_load((CONFIG / "lgc.rviz").read_text())["Visualization Manager"]


@pytest.fixture(scope="module")
def robot(tmp_path_factory):
    """A node with Fast DDS's profile, and a robot without it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FASTRTPS_DEFAULT_PROFILES_FILE", str(CONFIG / "fastdds.xml"))
        patch.setenv("FASTDDS_DEFAULT_PROFILES_FILE", str(CONFIG / "fastdds.xml"))
        with running_node(tmp_path_factory.mktemp("config")) as robot:
            robot.listen(DiagnosticArray, "/diagnostics")
            yield robot


def publisher(listener, topic):
    """The node's publisher of a topic, once DDS knows whose it is."""
    known = listener.get_publishers_info_by_topic(topic)
    return next((info for info in known if info.node_name == NODE), None)


def test_rviz_subscribes_to_topics_of_the_node_with_compatible_qos(rviz, robot):
    topics = {d["Class"]: d["Topic"] for d in rviz["Displays"] if "Topic" in d}
    assert topics.keys() == SHOWN.keys()
    for display, topic in topics.items():
        info = robot.spin_until(partial(publisher, robot.node, topic["Value"]), topic["Value"])
        assert info.topic_type == SHOWN[display]
        qos = info.qos_profile
        assert topic["Reliability Policy"] == "Reliable"
        assert qos.reliability == ReliabilityPolicy.RELIABLE
        assert topic["Durability Policy"] == "Volatile"
        assert qos.durability == DurabilityPolicy.VOLATILE


def test_the_fixed_frame_of_rviz_is_the_odometry_frame(rviz):
    assert rviz["Global Options"]["Fixed Frame"] == default_parameters()["odom_frame"]


def test_the_fast_dds_profile_enlarges_shared_memory_and_the_node_is_still_heard(robot):
    if "fastrtps" not in get_rmw_implementation_identifier():
        pytest.skip("the profile is for Fast DDS, and ROS uses another DDS here")
    heard = robot.listen(DiagnosticArray, "/diagnostics")
    robot.spin_until(lambda: heard, "diagnostics")
    maps = Path(f"/proc/{robot.process.pid}/maps").read_text()
    mapped = re.findall(r"^(\w+)-(\w+) .*/dev/shm/fast", maps, re.MULTILINE)
    assert max(int(end, 16) - int(begin, 16) for begin, end in mapped) >= SEGMENT_BYTES
    assert "XMLPARSER" not in robot.log

"""The shipped parameter file."""

import re

import pytest
import yaml

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from lgc_ros.odometry.profiles import config_folder, load_profile
from lgc_ros.ros.node_parameters import (
    default_parameters,
    describe_parameters,
    flat_settings,
)


def odometry_yaml():
    """The text of the shipped parameter file, and all its parameters, also the commented ones."""
    text = (config_folder() / "odometry.yaml").read_text()
    full = re.sub(r"(?m)^( +)# (?=[a-z_.]+: )", r"\1", text)
    return text, full


def test_the_shipped_parameter_file_lists_every_parameter_with_its_default():
    text, full = odometry_yaml()
    shipped = yaml.safe_load(full)["/**"]["ros__parameters"]
    assert shipped.pop("base_to_camera") is not None
    assert shipped == default_parameters()
    active = yaml.safe_load(text)["/**"]["ros__parameters"]
    assert not active.keys() & flat_settings(load_profile()).keys(), "the profile sets these"


def test_comments_in_the_shipped_parameter_file_are_the_descriptions_of_the_parameters():
    _, full = odometry_yaml()
    comments = dict(re.findall(r"(?m)^ +([a-z_.]+): .*?  # (.+)$", full))
    assert comments == describe_parameters()

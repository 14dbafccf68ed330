"""Declares the node's parameters with their descriptors, and reads their values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.node import Node
from rclpy.parameter import Parameter

from lgc_ros.errors import did_you_mean
from lgc_ros.odometry.profiles import load_profile
from lgc_ros.ros.node_parameters import (
    NodeParameters,
    describe_parameters,
    flat_settings,
    node_defaults,
    parameter_settings,
    parameters_from_values,
)
from lgc_ros.runtime.settings import Setting

# Declared with the subscriptions and publishers.
QOS_OVERRIDES = "qos_overrides."


def declare_parameters(node: Node) -> None:
    """Declare all parameters; `profile` comes first, because it sets the defaults of others.

    Raises:
        ConfigError: the profile cannot be read.
    """
    settings, descriptions = parameter_settings(), describe_parameters()

    def declare(defaults: dict[str, Any]) -> None:
        for name, default in defaults.items():
            descriptor = _descriptor(settings[name], descriptions[name], default)
            node.declare_parameter(name, default, descriptor)

    declare(node_defaults())
    declare(flat_settings(load_profile(node.get_parameter("profile").value)))


def unknown_parameters(node: Node) -> list[str]:
    """A warning for each value given for a parameter that the node does not have."""
    given = [name for name in node._parameter_overrides if not name.startswith(QOS_OVERRIDES)]
    warnings = []
    for name in sorted(name for name in given if not node.has_parameter(name)):
        hint = did_you_mean(name, parameter_settings(), "see odometry_node --help")
        warnings.append(f"unknown parameter '{name}' is ignored: {hint}")
    return warnings


def deletion_refused(node: Node, changes: Iterable[Parameter]) -> str:
    """Why the changes are refused if one of them deletes a parameter; empty otherwise."""
    for change in changes:
        if change.type_ == Parameter.Type.NOT_SET and node.has_parameter(change.name):
            return (
                f"{change.name} cannot be deleted: set another value, or restart the node "
                "without it"
            )
    return ""


def read_parameters(node: Node, changes: Iterable[Parameter] = ()) -> NodeParameters:
    """Current values, or the values after some changes.

    Raises:
        ConfigError: a value cannot be used; the message says why.
    """
    values = {name: node.get_parameter(name).value for name in parameter_settings()}
    values |= {parameter.name: parameter.value for parameter in changes}
    return parameters_from_values(values)


def _descriptor(known: Setting, description: str, default: Any) -> ParameterDescriptor:
    descriptor = ParameterDescriptor(
        description=description,
        read_only=known.read_only,
        # Without a default there is no type: accept integers and floats.
        dynamic_typing=default is None,
    )
    if known.low is None or known.high is None:
        return descriptor
    if isinstance(default, int):
        limits = IntegerRange(from_value=int(known.low), to_value=int(known.high), step=1)
        descriptor.integer_range = [limits]
    else:
        limits = FloatingPointRange(from_value=known.low, to_value=known.high, step=0.0)
        descriptor.floating_point_range = [limits]
    return descriptor

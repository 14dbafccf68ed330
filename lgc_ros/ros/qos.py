"""Quality of service: what the node asks for and offers, and where a publisher falls short."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rclpy.exceptions import InvalidParameterTypeException
from rclpy.qos import DurabilityPolicy, QoSPolicyKind, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions

from lgc_ros.errors import ConfigError

OVERRIDABLE = QoSOverridingOptions(
    (
        QoSPolicyKind.HISTORY,
        QoSPolicyKind.DEPTH,
        QoSPolicyKind.RELIABILITY,
        QoSPolicyKind.DURABILITY,
    )
)
"""Policies that parameters `qos_overrides.TOPIC...` may change."""

_WEAKER = {
    "reliability": (ReliabilityPolicy.BEST_EFFORT, ReliabilityPolicy.RELIABLE),
    "durability": (DurabilityPolicy.VOLATILE, DurabilityPolicy.TRANSIENT_LOCAL),
}


def input_qos(depth: int = 5) -> QoSProfile:
    """Best effort, as sensors publish; a new profile each time, since overrides write into it."""
    return QoSProfile(depth=depth, reliability=ReliabilityPolicy.BEST_EFFORT)


def output_qos() -> QoSProfile:
    """Reliable; a new profile each time, since overrides write into it."""
    return QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)


@contextmanager
def checked_overrides(topic: str) -> Iterator[None]:
    """Tell the user what is wrong with overrides that rclpy refuses, in user terms."""
    try:
        yield
    except (RuntimeError, InvalidParameterTypeException) as error:
        raise ConfigError(
            f"the parameters qos_overrides.{topic} cannot be used: {error}; start the node with "
            "values of ROS, such as reliability best_effort or reliable"
        ) from error


def shortcoming(offered: QoSProfile, requested: QoSProfile) -> tuple[str, str, str] | None:
    """The policy in which an offer is less than what is requested, and both values by name."""
    for policy, (weak, strong) in _WEAKER.items():
        if getattr(offered, policy) == weak and getattr(requested, policy) == strong:
            return policy, weak.name.lower(), strong.name.lower()
    return None

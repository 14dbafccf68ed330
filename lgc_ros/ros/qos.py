"""QoS profiles of the node, and how they are incompatible with those of a publisher."""

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
"""Policies that the parameters `qos_overrides.TOPIC...` can change."""

_WEAKER = {
    "reliability": (ReliabilityPolicy.BEST_EFFORT, ReliabilityPolicy.RELIABLE),
    "durability": (DurabilityPolicy.VOLATILE, DurabilityPolicy.TRANSIENT_LOCAL),
}


def input_qos(depth: int = 5) -> QoSProfile:
    """Best effort, as for sensor data; a new profile each time, because overrides modify it."""
    return QoSProfile(depth=depth, reliability=ReliabilityPolicy.BEST_EFFORT)


def output_qos() -> QoSProfile:
    """Reliable; a new profile each time, because overrides modify it."""
    return QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)


@contextmanager
def checked_overrides(topic: str) -> Iterator[None]:
    """Turn errors of rclpy about QoS overrides into a ConfigError with a remedy."""
    try:
        yield
    except (RuntimeError, InvalidParameterTypeException) as error:
        raise ConfigError(
            f"invalid parameters qos_overrides.{topic}: {error}; restart the node with QoS values "
            "of ROS, such as reliability best_effort or reliable"
        ) from error


def incompatibility(offered: QoSProfile, requested: QoSProfile) -> tuple[str, str, str] | None:
    """The policy whose offered value is weaker than the requested one, and both values by name."""
    for policy, (weak, strong) in _WEAKER.items():
        if getattr(offered, policy) == weak and getattr(requested, policy) == strong:
            return policy, weak.name.lower(), strong.name.lower()
    return None

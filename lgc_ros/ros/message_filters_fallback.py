"""Subset of ROS's message_filters, used where it is not installed.

Classes and methods have the names and signatures of the Python package in ROS 2 Jazzy. Pairing is
done by `synchronizer` in either case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.node import Node


class SimpleFilter:
    """Passes its output to callbacks in the order of their registration."""

    def __init__(self) -> None:
        self.callbacks: dict[int, tuple[Callable, tuple]] = {}

    def registerCallback(self, cb: Callable, *args: Any) -> int:
        """Register `cb`, called with each output followed by `args`; returns the connection."""
        connection = len(self.callbacks)
        self.callbacks[connection] = cb, args
        return connection

    def signalMessage(self, *msg: Any) -> None:
        for callback, args in self.callbacks.values():
            callback(*msg, *args)


class Subscriber(SimpleFilter):
    """A subscription, `sub`, as a source; options are those of Node.create_subscription."""

    def __init__(
        self, node: Node, msg_type: type, topic: str, *, qos_profile: Any = 10, **options: Any
    ) -> None:
        super().__init__()
        self.sub = node.create_subscription(
            msg_type, topic, self.callback, qos_profile=qos_profile, **options
        )

    def callback(self, msg: Any) -> None:
        self.signalMessage(msg)

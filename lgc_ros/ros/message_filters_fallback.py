"""Stands in for the inputs of ROS's message_filters where that is not installed.

Classes, signatures and names of methods are those of its Python package in ROS 2 Jazzy. Messages
are paired by `synchronizer`, with or without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.node import Node


class SimpleFilter:
    """Passes its output on to callbacks, in the order in which they registered."""

    def __init__(self) -> None:
        self.callbacks: dict[int, tuple[Callable, tuple]] = {}

    def registerCallback(self, cb: Callable, *args: Any) -> int:
        """Have `cb` called with each output followed by `args`; returns the connection's key."""
        connection = len(self.callbacks)
        self.callbacks[connection] = cb, args
        return connection

    def signalMessage(self, *msg: Any) -> None:
        for callback, args in self.callbacks.values():
            callback(*msg, *args)


class Subscriber(SimpleFilter):
    """A subscription as a source of messages; options are those of Node.create_subscription.

    What it does not have itself is asked of the subscription, which is `sub`.
    """

    def __init__(
        self, node: Node, msg_type: type, topic: str, *, qos_profile: Any = 10, **options: Any
    ) -> None:
        super().__init__()
        self.node = node
        self.topic = topic
        self.sub = node.create_subscription(
            msg_type, topic, self.callback, qos_profile=qos_profile, **options
        )

    def callback(self, msg: Any) -> None:
        self.signalMessage(msg)

    def getTopic(self) -> str:
        return self.topic

    def __getattr__(self, key: str) -> Any:
        return getattr(self.sub, key)

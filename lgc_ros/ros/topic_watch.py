"""Watches a topic, and explains why no messages arrive."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from rclpy.qos import QoSProfile
from rclpy.topic_endpoint_info import TopicEndpointInfo

from lgc_ros.images.stamps import stamp_ns
from lgc_ros.ros.qos import incompatibility

# A topic without messages for this long is silent.
SILENT_S = 2.0
# Number of latest stamps compared when messages of two topics cannot be paired.
STAMPS = 20


class TopicWatch:
    """Records the messages of a topic and looks up its publishers.

    Args:
        topic: fully qualified name.
        argument: name used in remapping rules.
        type_name: message type, such as sensor_msgs/msg/Image.
        publishers: returns the current publishers of a topic.
    """

    def __init__(
        self,
        topic: str,
        argument: str,
        type_name: str,
        publishers: Callable[[str], Sequence[TopicEndpointInfo]],
    ) -> None:
        self.topic = topic
        self.requested: QoSProfile | None = None  # known once subscribed
        self.stamps_ns: deque[int] = deque(maxlen=STAMPS)
        self.count = 0
        self._argument = argument
        self._type_name = type_name
        self._publishers = publishers
        self._heard_s = float("-inf")

    def on_message(self, message: Any) -> None:
        self.count += 1
        self._heard_s = time.monotonic()
        self.stamps_ns.append(stamp_ns(message.header.stamp))

    def complaint(self) -> str:
        """Why no messages arrive, and the remedy; empty if they do."""
        if time.monotonic() - self._heard_s < SILENT_S:
            return ""
        publishers = self._publishers(self.topic)
        if not publishers:
            return (
                f"no publisher on {self.topic}: start it, or choose another topic with "
                f"-r {self._argument}:=TOPIC"
            )
        for publisher in publishers:
            mismatch = self._mismatch(publisher)
            if mismatch:
                return mismatch
        return (
            f"no messages arrive from {len(publishers)} publisher(s) of {self.topic}: check the "
            "driver and, for large images, the DDS settings"
        )

    def _mismatch(self, publisher: TopicEndpointInfo) -> str:
        """Why this publisher is incompatible; empty if it is compatible."""
        who = f"{publisher.node_namespace.rstrip('/')}/{publisher.node_name}"
        if publisher.topic_type != self._type_name:
            return (
                f"wrong type on {self.topic}: {who} publishes {publisher.topic_type}, this node "
                f"expects {self._type_name}; choose another topic with -r {self._argument}:=TOPIC"
            )
        weaker = self.requested and incompatibility(publisher.qos_profile, self.requested)
        if not weaker:
            return ""
        policy, offered, requested = weaker
        return (
            f"incompatible QoS on {self.topic}: in {policy}, its publisher {who} offers "
            f"{offered} and this node requests {requested}; change the publisher, or set this "
            f"node's parameter qos_overrides.{self.topic}.subscription.{policy} to {offered}"
        )


def smallest_difference_ns(watch: TopicWatch, images: TopicWatch) -> int:
    """Smallest difference between the latest stamps of a topic and those of the images."""
    return min(
        (abs(a - b) for a in tuple(watch.stamps_ns) for b in tuple(images.stamps_ns)), default=0
    )

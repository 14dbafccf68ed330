"""What arrives on a topic, and why nothing does."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from rclpy.qos import QoSProfile
from rclpy.topic_endpoint_info import TopicEndpointInfo

from lgc_ros.ros.messages import stamp_ns
from lgc_ros.ros.qos import shortcoming

# A topic without a message for so long is silent.
SILENT_S = 2.0
# Stamps compared when messages of two topics do not go together.
STAMPS = 20


class TopicWatch:
    """Takes notice of the messages and publishers of a topic.

    Args:
        topic: its full name.
        argument: the name by which it is remapped.
        type_name: of the messages, such as sensor_msgs/msg/Image.
        publishers: who publishes the topic now.
    """

    def __init__(
        self,
        topic: str,
        argument: str,
        type_name: str,
        publishers: Callable[[str], Sequence[TopicEndpointInfo]],
    ) -> None:
        self.topic = topic
        self.requested: QoSProfile | None = None  # known once there is a subscription
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
        """Why nothing arrives; empty if something does."""
        if time.monotonic() - self._heard_s < SILENT_S:
            return ""
        publishers = self._publishers(self.topic)
        if not publishers:
            return (
                f"nobody publishes {self.topic}: start its publisher, or name another topic with "
                f"-r {self._argument}:=TOPIC"
            )
        for publisher in publishers:
            misfit = self._misfit(publisher)
            if misfit:
                return misfit
        return (
            f"{len(publishers)} publisher(s) of {self.topic} send nothing that arrives: check the "
            "driver and, for large images, the DDS settings"
        )

    def _misfit(self, publisher: TopicEndpointInfo) -> str:
        """Why messages of this publisher cannot arrive; empty if they can."""
        who = f"{publisher.node_namespace.rstrip('/')}/{publisher.node_name}"
        if publisher.topic_type != self._type_name:
            return (
                f"wrong type on {self.topic}: {who} publishes {publisher.topic_type}, this node "
                f"takes {self._type_name}; name another topic with -r {self._argument}:=TOPIC"
            )
        less = self.requested and shortcoming(publisher.qos_profile, self.requested)
        if not less:
            return ""
        policy, offered, requested = less
        return (
            f"incompatible QoS on {self.topic}: in {policy}, its publisher {who} offers "
            f"{offered} and this node requests {requested}; change the publisher, or set this "
            f"node's parameter qos_overrides.{self.topic}.subscription.{policy} to {offered}"
        )


def smallest_difference_ns(watch: TopicWatch, images: TopicWatch) -> int:
    """By how much the latest stamps of a topic and of the images differ at least."""
    return min(
        (abs(a - b) for a in tuple(watch.stamps_ns) for b in tuple(images.stamps_ns)), default=0
    )

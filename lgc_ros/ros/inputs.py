"""Subscriptions of the node: images with their calibration, and input of the scale source.

Each topic is watched, so that the node can say why no messages arrive.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import rclpy
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.topic_endpoint_info import TopicEndpointInfo
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from lgc_ros.images.stamps import stamp_ns
from lgc_ros.odometry.profiles import config_folder
from lgc_ros.ros import compat
from lgc_ros.ros.dds_profile import PROFILE
from lgc_ros.ros.diagnostics import SILENT_S, Monitor
from lgc_ros.ros.node_parameters import NodeParameters
from lgc_ros.ros.qos import OVERRIDABLE, checked_overrides, incompatibility, input_qos
from lgc_ros.ros.scale_input import ScaleInput, scale_input
from lgc_ros.ros.synchronizer import OnPair, Stamped, Synchronizer

# Size of the shared-memory segment of a process in Fast DDS by default.
SEGMENT_BYTES = 512 * 1024
# Images are being lost if this share of at least MIN_COUNTED is missing, compared to camera_info.
MAX_LOST_SHARE = 0.25
MIN_COUNTED = 20
# Number of latest stamps compared when messages of two topics cannot be paired.
STAMPS = 20


class Inputs:
    """The subscriptions of an active node.

    Args:
        node: the node that subscribes.
        p: its parameters.
        on_pair: called with each image and its camera_info.

    Attributes:
        monitor: diagnostics of the inputs.
        scale: input of the scale source; None if it needs no topic.
    """

    def __init__(self, node: Node, p: NodeParameters, on_pair: OnPair) -> None:
        self._node = node
        self._on_pair = on_pair
        self._scale_subscriber: compat.Subscriber | None = None
        images, image_type = node.resolve_topic_name("image"), Image
        if p.image_transport == "compressed":
            images, image_type = f"{images}/compressed", CompressedImage
        infos = node.resolve_topic_name("camera_info")
        with ExitStack() as opened:  # nothing stays subscribed if a later part fails
            image_watch, image = self._subscribe(image_type, images, "image", input_qos())
            opened.callback(node.destroy_subscription, image.sub)
            info_watch, info = self._subscribe(CameraInfo, infos, "camera_info", input_qos())
            opened.callback(node.destroy_subscription, info.sub)
            self.monitor = Monitor(image_watch, info_watch, node.get_logger())
            self.scale: ScaleInput | None = None
            self.subscribe_scale(p)
            self._camera = opened.pop_all()
        image.registerCallback(self._check_transport)
        Synchronizer(image, info, self._on_match, self._on_refused, p.sync_queue, p.slop_s)

    def subscribe_scale(self, p: NodeParameters) -> None:
        """Subscribe to the topic of the scale source only."""
        self._close_scale()
        self.scale = scale_input(p.odometry.scale.source, p.slop_s)
        if self.scale is None:
            return
        name = self.scale.name
        self.monitor.scale_input = self.scale
        self.monitor.scale_watch, self._scale_subscriber = self._subscribe(
            self.scale.kind,
            self._node.resolve_topic_name(name),
            name,
            input_qos(self.scale.length),
        )
        self._scale_subscriber.registerCallback(self.scale.add)

    def close(self) -> None:
        """Destroy all subscriptions."""
        self._camera.close()
        self._close_scale()

    def _subscribe(
        self, kind: type, topic: str, argument: str, qos: QoSProfile
    ) -> tuple[TopicWatch, compat.Subscriber]:
        package, message = kind.__module__.partition(".")[0], kind.__name__
        watch = TopicWatch(
            topic,
            argument,
            f"{package}/msg/{message}",
            self._node.get_publishers_info_by_topic,
        )
        with checked_overrides(topic):
            subscriber = compat.Subscriber(
                self._node,
                kind,
                topic,
                qos_profile=qos,
                qos_overriding_options=OVERRIDABLE,
                # TopicWatch reports more than the default log messages.
                event_callbacks=SubscriptionEventCallbacks(use_default_callbacks=False),
            )
        subscriber.registerCallback(watch.on_message)
        watch.requested = qos  # including the overrides by parameters
        return watch, subscriber

    def _close_scale(self) -> None:
        if self._scale_subscriber is not None:
            self._node.destroy_subscription(self._scale_subscriber.sub)
        self._scale_subscriber = self.scale = None
        self.monitor.scale_watch = self.monitor.scale_input = None

    def _on_match(self, image: Image | CompressedImage, camera_info: CameraInfo) -> None:
        self.monitor.matched()
        self._on_pair(image, camera_info)

    def _check_transport(self, image: Image | CompressedImage) -> None:
        """Warn once if the DDS transport loses large images."""
        size = len(image.data)
        if size <= SEGMENT_BYTES or not _is_fast_dds():
            return
        images, infos = self.monitor.images.count, self.monitor.camera_info.count
        if infos >= MIN_COUNTED and images < (1 - MAX_LOST_SHARE) * infos:
            self._node.get_logger().warning(
                f"{infos - images} of {infos} images were lost in transport: images of "
                f"{size / 1e6:.1f} MB do not fit the 0.5 MB of shared memory that Fast DDS uses "
                f"by default; set FASTRTPS_DEFAULT_PROFILES_FILE to {config_folder() / PROFILE} "
                "(from ROS 2 Kilted on, FASTDDS_DEFAULT_PROFILES_FILE) for the camera driver",
                once=True,
            )

    def _on_refused(self, message: Stamped) -> None:
        is_info = isinstance(message, CameraInfo)
        watch = self.monitor.camera_info if is_info else self.monitor.images
        self.monitor.refused(
            f"message of {watch.topic} ignored because of its negative stamp "
            f"({stamp_ns(message.header.stamp) / 1e9:.3f} s): its publisher must set header.stamp "
            "to the time of capture"
        )


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

    def smallest_difference_ns(self, other: TopicWatch) -> int:
        """Smallest difference between the latest stamps of this topic and of another."""
        return min((abs(a - b) for a in self.stamps_ns for b in other.stamps_ns), default=0)

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


def _is_fast_dds() -> bool:
    return rclpy.get_rmw_implementation_identifier().startswith("rmw_fastrtps")

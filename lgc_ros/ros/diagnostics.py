"""What the node tells about itself, above all why there is no output and what to do about it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from rclpy.event_handler import QoSRequestedIncompatibleQoSInfo
from rclpy.qos import qos_policy_name_from_kind

from lgc_ros.odometry import FEW_MATCHES, INITIALIZING, LOST, OdometryState
from lgc_ros.ros.messages import stamp_ns

# A topic without a message for so long is silent.
SILENT_S = 2.0
# The same fault is told again after so long.
REPEAT_S = 10.0
# Stamps compared when images and camera_info do not go together.
STAMPS = 20
LEVELS = {
    INITIALIZING: DiagnosticStatus.WARN,
    FEW_MATCHES: DiagnosticStatus.WARN,
    LOST: DiagnosticStatus.ERROR,
}


class TopicWatch:
    """What arrives on a topic."""

    def __init__(self, topic: str, argument: str) -> None:
        self.topic = topic
        self._argument = argument  # by which the topic is remapped
        self._incompatible = ""
        self._heard_s = float("-inf")
        self.stamps_ns: deque[int] = deque(maxlen=STAMPS)
        self.count = 0

    def on_message(self, message: Any) -> None:
        self.count += 1
        self._heard_s = time.monotonic()
        self._incompatible = ""
        self.stamps_ns.append(stamp_ns(message.header.stamp))

    def on_incompatible_qos(self, event: QoSRequestedIncompatibleQoSInfo) -> None:
        self._incompatible = qos_policy_name_from_kind(event.last_policy_kind).lower()

    def complaint(self, publishers: int) -> str:
        """Why nothing arrives; empty if something does."""
        if time.monotonic() - self._heard_s < SILENT_S:
            return ""
        if self._incompatible:
            policy = self._incompatible
            return (
                f"incompatible QoS on {self.topic}: its publisher offers less {policy} than this "
                f"node requests; change the publisher, or set this node's parameter "
                f"qos_overrides.{self.topic}.subscription.{policy} to what is offered"
            )
        if not publishers:
            return (
                f"nobody publishes {self.topic}: start the camera, or name its topic with "
                f"-r {self._argument}:=TOPIC"
            )
        return (
            f"{publishers} publisher(s) of {self.topic} send nothing that arrives: check the "
            "camera driver and, for large images, the DDS settings"
        )


class Monitor:
    """Collects what happens, and sums it up.

    Args:
        images, camera_info: the topics.
        publishers: how many there are of a topic.
    """

    def __init__(
        self, images: TopicWatch, camera_info: TopicWatch, publishers: Callable[[str], int]
    ) -> None:
        self.images, self.camera_info = images, camera_info
        self._publishers = publishers
        self._matched_s = float("-inf")
        self._fault = ""
        self._told = "", float("-inf")
        self._state: OdometryState | None = None
        self._latency_ms = 0.0
        self._frames = 0
        self._faults = 0
        self._last_tick = time.monotonic(), 0

    def matched(self) -> None:
        """An image met its camera_info."""
        self._matched_s = time.monotonic()

    def fault(self, message: str) -> bool:
        """A frame could not be used; whether that is worth telling."""
        self._faults += 1
        self._fault = message
        told, told_s = self._told
        if message == told and time.monotonic() - told_s < REPEAT_S:
            return False
        self._told = message, time.monotonic()
        return True

    def processed(self, state: OdometryState, latency_ms: float) -> None:
        """A frame was answered, `latency_ms` after its arrival."""
        self._frames += 1
        self._state, self._latency_ms, self._fault = state, latency_ms, ""

    def why_no_output(self) -> str:
        """The first thing that is missing, with its remedy; empty if there is output."""
        for watch in (self.images, self.camera_info):
            complaint = watch.complaint(self._publishers(watch.topic))
            if complaint:
                return complaint
        if time.monotonic() - self._matched_s > SILENT_S:
            return self._mismatch()
        return self._fault

    def _mismatch(self) -> str:
        between_ns = min(
            (
                abs(a - b)
                for a in tuple(self.images.stamps_ns)
                for b in tuple(self.camera_info.stamps_ns)
            ),
            default=0,
        )
        return (
            f"the stamps of {self.images.topic} and {self.camera_info.topic} never match: they "
            f"differ by {between_ns * 1e-6:.3f} ms or more; let the driver stamp both alike, or "
            "set approximate_sync to true and sync_slop_s to more than that"
        )

    def status(self, name: str, device: str, dropped: int) -> DiagnosticStatus:
        """The whole picture; rates are since the last call."""
        status = DiagnosticStatus(name=name, hardware_id=self.images.topic)
        why = self.why_no_output()
        if why:
            status.level, status.message = DiagnosticStatus.ERROR, why
        elif self._state is None:
            status.level, status.message = DiagnosticStatus.WARN, "the first frame is in work"
        else:
            state = self._state
            status.level = LEVELS.get(state.status, DiagnosticStatus.OK)
            status.message = f"{state.status}: {state.message}" if state.message else state.status
        status.values = [
            KeyValue(key=key, value=str(value)) for key, value in self._values(dropped).items()
        ]
        status.values.append(KeyValue(key="device", value=device))
        return status

    def _values(self, dropped: int) -> dict[str, object]:
        (then_s, before), now_s = self._last_tick, time.monotonic()
        self._last_tick = now_s, self._frames
        values = {
            "fps": f"{(self._frames - before) / max(now_s - then_s, 1e-3):.1f}",
            "frames": self._frames,
            "dropped": dropped,
            "faults": self._faults,
            "images": self.images.count,
            "camera_infos": self.camera_info.count,
        }
        state = self._state
        if state is not None:
            values |= {"status": state.status, **state.counts}
            values |= {f"{stage}_ms": f"{ms:.1f}" for stage, ms in state.ms.items()}
            values["latency_ms"] = f"{self._latency_ms:.1f}"
        return values

"""Playback in step: waits for the answer to each image, and sends a lost one again."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.publisher import Publisher

from lgc_ros.errors import ConfigError, LgcError
from lgc_ros.images.stamps import serialized_stamp_ns
from lgc_ros.ros.bags.topics import has_header, message_class
from lgc_ros.ros.session import Session

log = logging.getLogger(__name__)

DEPTH = 100
# Consecutive images without an answer after which playback fails.
MAX_UNANSWERED = 3
# Messages of the camera that can be sent again; more than those of one stamp.
KEPT = 20


class Answers:
    """Waits for the answers to the images.

    Images usually travel with best-effort QoS: a busy machine may lose one, or its camera_info.
    Both are therefore sent again after half of the wait.

    Args:
        topic: fully qualified name of the topic that answers.
        wait_s: maximum wait for a publisher of that topic.
        answer_s: maximum wait for an answer.
    """

    _diagnosis: _Diagnosis  # once there is a publisher

    def __init__(self, session: Session, topic: str, wait_s: float, answer_s: float) -> None:
        self._session, self._topic = session, topic
        self._wait_s, self._answer_s = wait_s, answer_s
        self._sent: deque[tuple[int, Publisher, bytes]] = deque(maxlen=KEPT)
        self._expected_ns: int | None = None
        self._answered_ns: int | None = None
        self._asked = self._answered = self._unanswered = 0

    def await_publisher(self) -> None:
        """Wait for a publisher of the topic, and subscribe to it."""
        node, topic = self._session.node, self._topic
        if not self._session.wait_for(
            lambda: node.count_publishers(topic) > 0,
            f"a publisher of {topic}",
            lambda: self._session.similar_topics(topic, node.get_publishers_info_by_topic),
            self._wait_s,
        ):
            return
        kind = node.get_publishers_info_by_topic(topic)[0].topic_type
        if not has_header(message_class(kind)):
            raise ConfigError(
                f"{topic} ({kind}) has no header: --in-step-with needs a topic with stamps"
            )
        self._diagnosis = _Diagnosis(self._session)
        subscription = node.create_subscription(
            message_class(kind), topic, self._on_answer, DEPTH, raw=True
        )
        self._session.spin_until(lambda: subscription.get_publisher_count() > 0)

    def _on_answer(self, data: bytes) -> None:
        self._answered_ns = serialized_stamp_ns(data)

    def sent(self, publisher: Publisher, data: bytes) -> None:
        """Keep a message of the camera until its image is answered."""
        self._sent.append((serialized_stamp_ns(data), publisher, data))

    def expect(self, stamp_ns: int) -> None:
        """Wait for the answer to an image with this stamp; that of an earlier loop is not it."""
        self._expected_ns, self._answered_ns = stamp_ns, None
        self._asked += 1

    def await_last(self) -> None:
        """Wait for the answer to the last image; a single missing one is only logged.

        Raises:
            LgcError: MAX_UNANSWERED consecutive images had no answer.
        """
        if self._expected_ns is None:
            return
        answered = self._answered_within(self._answer_s / 2)
        if not answered and not self._session.stopping.is_set():
            self._send_again()
            answered = self._answered_within(self._answer_s / 2)
        self._expected_ns = None
        if self._session.stopping.is_set():
            return
        if answered:
            self._answered += 1
            self._unanswered = 0
            self._diagnosis.forget()
            return
        self._unanswered += 1
        if self._unanswered == MAX_UNANSWERED:
            self._give_up()
        log.warning("%s has not answered an image within %g s", self._topic, self._answer_s)

    def check(self) -> None:
        """At the end of the bag, raise an error if no image was answered."""
        if self._asked and not self._answered and not self._session.stopping.is_set():
            self._give_up()

    def _answered_within(self, wait_s: float) -> bool:
        return self._session.spin_until(
            lambda: self._answered_ns == self._expected_ns, time.monotonic() + wait_s
        )

    def _send_again(self) -> None:
        for stamp_ns, publisher, data in self._sent:
            if stamp_ns == self._expected_ns:
                publisher.publish(data)

    def _give_up(self) -> None:
        publishers = self._session.node.get_publishers_info_by_topic(self._topic)
        names = [f"{p.node_namespace.rstrip('/')}/{p.node_name}".lstrip("/") for p in publishers]
        raise LgcError(
            f"{self._topic} answered {self._answered} of {self._asked} images, and none of the "
            f"last {self._unanswered} within {self._answer_s:g} s; /diagnostics says: "
            f"{self._diagnosis.reason(names) or 'nothing'}"
        )


class _Diagnosis:
    """Messages on /diagnostics while images are not answered."""

    def __init__(self, session: Session) -> None:
        self._faults: dict[str, str] = {}  # number of rejected images by status name
        self._first: dict[str, str] = {}
        self._last: dict[str, str] = {}
        session.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_report, DEPTH)

    def reason(self, nodes: Collection[str]) -> str:
        """What one of the nodes reported first after rejecting an image, or else last.

        Later reports may complain about missing images while the player waits for an answer.
        """
        reports = self._last | self._first
        return next((reports[name] for name in reports if name.partition(":")[0] in nodes), "")

    def forget(self) -> None:
        """Forget earlier reports, because an image was answered."""
        self._first.clear()
        self._last.clear()

    def _on_report(self, message: DiagnosticArray) -> None:
        for status in message.status:
            faults = next((value.value for value in status.values if value.key == "faults"), "0")
            if faults != self._faults.get(status.name, "0"):
                self._first.setdefault(status.name, status.message)
            self._faults[status.name] = faults
            self._last[status.name] = status.message

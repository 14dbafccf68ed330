"""A camera that shows good and malformed messages to the node and keeps count of both."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
from nav_msgs.msg import Odometry
from ros.campaign.harness import QUEUE, Bench
from ros.campaign.invariants import exceptions, rss_mb, violations
from ros.processes import compressed_message, image_message, info_message, stamp
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import Frame
from lgc_ros.ros.compat import CvBridge
from lgc_ros.ros.messages import pose_message

SECOND_NS = 10**9
MOMENT_NS = SECOND_NS // 10
START_NS = 1_700_000_000 * SECOND_NS
CAMERA = Camera.from_K(np.array([[131.0, 0, 79.5], [0, 131.0, 59.5], [0, 0, 1]]), 160, 120)
# A good image is answered within this time on a busy machine.
ANSWER_S = 120.0
# One that was refused because of what came before is followed by another after this time.
REPEAT_S = 2.0
# What the node may keep beyond what it had after its first images: buffers, keyframes, landmarks.
GROWTH_MB = 100.0
# What it may need meanwhile: the images are small.
PEAK_MB = 300.0


@dataclass
class Sent:
    """Messages sent by topic, and those of images and of scale among them that are good."""

    images: int = 0
    camera_infos: int = 0
    scale: int = 0
    good: int = 0
    good_scale: int = 0


@dataclass
class Counts:
    """What the node says it has received and done."""

    images: int
    camera_infos: int
    pairs: int
    frames: int
    faults: int
    dropped: int
    scale: int = 0

    @property
    def examined(self) -> int:
        """Images with their calibration that were not replaced by newer ones while they waited."""
        return self.pairs - self.dropped

    def since(self, before: Counts) -> Counts:
        return Counts(*(now - then for now, then in zip(self._all(), before._all(), strict=True)))

    def _all(self) -> list[int]:
        return list(vars(self).values())


@dataclass
class CampaignCamera:
    """A camera that loses nothing: shows good views and malformed messages to the node.

    Attributes:
        compressed: whether images are JPEG and PNG, in turns.
        scale_topic: odom or depth where the node takes scale from it; empty otherwise.
        now_ns: stamp of the next message.
    """

    bench: Bench
    views: Sequence[Frame]
    compressed: bool = False
    scale_topic: str = ""
    now_ns: int = START_NS
    sent: Sent = field(default_factory=Sent)
    shown: int = 0

    def __post_init__(self) -> None:
        kind = CompressedImage if self.compressed else Image
        topic = "image/compressed" if self.compressed else "image"
        self._images = self.bench.speak(kind, topic, QUEUE)
        self._infos = self.bench.speak(CameraInfo, "camera_info", QUEUE)
        if self.scale_topic:
            kind = {"odom": Odometry, "depth": Image}[self.scale_topic]
            self._scale = self.bench.speak(kind, self.scale_topic, QUEUE)

    def next_view(self) -> Frame:
        """Back and forth along the walk, at the time it is now."""
        ahead = [*self.views, *self.views[-2:0:-1]]
        self.shown += 1
        return replace(ahead[self.shown % len(ahead)], stamp_ns=self.now_ns)

    def pair(self, view: Frame) -> tuple[Image | CompressedImage, CameraInfo]:
        if self.compressed:
            image = compressed_message(view, kind=("jpg", "png")[self.shown % 2])
        else:
            image = image_message(view)
        return image, info_message(view)

    def wheels(self, view: Frame, later_ns: int = 0) -> Odometry:
        """Wheel odometry that says where the camera is."""
        message = Odometry(child_frame_id="base_link")
        message.header.frame_id = "odom"
        message.header.stamp = stamp(view.stamp_ns + later_ns)
        message.pose.pose = pose_message(view.T_wc)
        return message

    def depth(self, view: Frame) -> Image:
        message = CvBridge().cv2_to_imgmsg((1000 * view.depth).astype(np.uint16), "16UC1")
        message.header = image_message(view).header
        return message

    def publish(self, image, info) -> None:
        self._infos.publish(info)
        self._images.publish(image)
        self.sent.images += 1
        self.sent.camera_infos += 1

    def publish_scale(self, message) -> None:
        self._scale.publish(message)
        self.sent.scale += 1

    def send_good(self) -> int:
        """Publish a good image with all that belongs to it, later than all before; its stamp."""
        self.now_ns += 3 * SECOND_NS
        view = self.next_view()
        good_scale = {
            "odom": lambda: [self.wheels(view, later_ns) for later_ns in (-MOMENT_NS, MOMENT_NS)],
            "depth": lambda: [self.depth(view)],
        }.get(self.scale_topic, list)()
        for message in good_scale:
            self.publish_scale(message)
        self.publish(*self.pair(view))
        self.sent.good_scale += len(good_scale)
        self.sent.good += 1
        return self.now_ns

    def show_good(self, send: Callable[[], int] | None = None) -> Odometry:
        """The answer to a good image, which is sent again, later, if it was refused.

        An image that is older than the one before by less than a second is refused, and a
        malformed stamp may be that one before.
        """
        stamps, sent_s, start = [], float("-inf"), len(self.bench.odometry)
        deadline_s = time.monotonic() + ANSWER_S

        def answered() -> Odometry | None:
            nonlocal sent_s
            if time.monotonic() - sent_s > REPEAT_S:
                assert time.monotonic() < deadline_s, f"no answer:\n{self.bench.log[-3000:]}"
                stamps.append(stamp((send or self.send_good)()))
                sent_s = time.monotonic()
            new = self.bench.odometry[start:]
            return next((answer for answer in new if answer.header.stamp in stamps), None)

        return self.bench.spin_until(answered, "an answer to a good image")

    def counts(self) -> Counts:
        """From a report made after all that happened before."""
        reports = self.bench.reports
        reports.clear()
        self.bench.spin_until(lambda: len(reports) >= 2, "diagnostics")
        return self.read(reports[-1])

    def newest_counts(self) -> Counts | None:
        """From the report that came last, if one came since."""
        reports = self.bench.reports
        newest = self.read(reports[-1]) if reports else None
        reports.clear()
        return newest

    def begin(self) -> Counts:
        """Count from here on: all that was sent before is answered or was lost on the way."""
        self.show_good()
        counts, self.sent = self.counts(), Sent()
        return counts

    def read(self, report) -> Counts:
        values = {value.key: value.value for value in report.values}
        names = ("images", "camera_infos", "pairs", "frames", "faults", "dropped")
        scale = values.get(f"{self.scale_topic}_messages", 0)
        return Counts(*(int(values[name]) for name in names), int(scale))

    def settle(self, before: Counts) -> Counts:
        """What the node did since, once it has received all that was sent and is done with it."""

        def done() -> Counts | None:
            now = self.counts().since(before)
            sent = self.sent
            received = (now.images, now.camera_infos, now.scale)
            is_all = received == (sent.images, sent.camera_infos, sent.scale)
            # A message that is refused before it meets its counterpart is a fault, too.
            return now if is_all and now.frames + now.faults >= now.examined else None

        return self.bench.spin_until(done, f"all of {self.sent} being received")

    def wait_a_moment(self, seconds: float) -> None:
        """Lets the node work, and takes its answers meanwhile."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            self.bench.executor.spin_once(timeout_sec=left_s)


@contextmanager
def checked(bench: Bench, camera: CampaignCamera) -> Iterator[None]:
    """Whatever is done inside, the node must be well before and after; it is ended then.

    It is warmed up before: libraries allocate what they keep with the first images.
    """
    row = bench.row
    for _ in range(2 * len(camera.views)):
        camera.show_good()
    row.rss_before_mb = rss_mb(bench.process)
    yield
    for _ in camera.views:
        camera.show_good()
    row.rss_after_mb = rss_mb(bench.process)
    row.rss_peak_mb = rss_mb(bench.process, peak=True)
    bench.end_node()
    problems = [f"{count} x {error}" for error, count in exceptions(bench.log).items()]
    if wrong := violations(bench.odometry):
        problems.append(wrong)
    for now_mb, limit_mb in ((row.rss_after_mb, GROWTH_MB), (row.rss_peak_mb, PEAK_MB)):
        if now_mb - row.rss_before_mb > limit_mb:
            problems.append(f"memory grew from {row.rss_before_mb:.0f} to {now_mb:.0f} MB")
    assert not problems, "\n".join(problems)

"""Plays a bag over DDS to a node in another process, and records its output."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import cv2
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import Image

from lgc_ros.errors import Interrupted, LgcError
from lgc_ros.images.encoding import image_from_message
from lgc_ros.images.stamps import serialized_stamp_ns, stamp_ns
from lgc_ros.ros.bags.player import Played, PlayOptions, play
from lgc_ros.ros.bags.recorder import Recorder, RecordOptions, bag_writer
from lgc_ros.ros.session import Session, session
from lgc_ros.runtime.output_files import explained

NODE = "lgc_odometry"
ODOMETRY, INLIERS = f"/{NODE}/odometry", f"/{NODE}/inliers"
PICTURES, DIAGNOSTICS = f"/{NODE}/matches_image", "/diagnostics"
RECORDED = (ODOMETRY, f"/{NODE}/relative_pose", INLIERS, DIAGNOSTICS)

# Long enough for a busy machine to load torch.
START_S = 180.0
END_S = 20.0
# The views of a frame follow its pose within milliseconds, on a busy machine later.
VIEWS_S = 10.0
LOG_LINES = 12
JPEG_QUALITY = 78
# Below the range of ephemeral ports.
RESERVATION_PORT = 20_000
# Of one process: there are only 99 domains for all tests and demos of a machine.
MAX_RESERVED = 8
_reservations: dict[int, socket.socket] = {}  # by domain, oldest first


@dataclass(frozen=True)
class LiveOptions:
    """Options of `run_live`.

    Attributes:
        image_topic, info_topic: topics of the bag.
        parameters: parameters of the node, by name.
        picture_every: keep every N-th image of matches.
        answer_s: maximum wait for the answer to an image, seconds.
    """

    image_topic: str
    info_topic: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    picture_every: int = 5
    answer_s: float = PlayOptions.answer_s


@dataclass
class LiveRun:
    """Progress and results of a live run.

    Attributes:
        played, answered: number of images published and of poses received.
        views: number of images of matches received.
        latency_ms: from publishing an image to receiving its pose, by stamp in nanoseconds.
        pictures: the node's images of matches as JPEG, by stamp.
        reports: values of each diagnostic status of the node, with its `message`.
        seconds: from the first image to the last pose.
        domain: ROS domain, private to this run.
        dds: short description of the DDS settings.
    """

    domain: int
    dds: str
    played: int = 0
    answered: int = 0
    views: int = 0
    latency_ms: dict[int, float] = field(default_factory=dict)
    pictures: dict[int, bytes] = field(default_factory=dict)
    reports: list[dict[str, str]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def diagnostics(self) -> dict[str, str]:
        """The latest report."""
        return self.reports[-1] if self.reports else {"message": "nothing"}


def run_live(
    bag: Path,
    recording: Path,
    log: Path,
    options: LiveOptions,
    progress: Callable[[LiveRun], None] = lambda run: None,
) -> LiveRun:
    """Play a bag to a node in its own process, as fast as it answers.

    Args:
        bag: bag to play.
        recording: new .mcap file for the output of the node.
        log: file for the log of the node.
        progress: called after each message of the node.

    Raises:
        LgcError: the node ended or does not answer; the message includes its log.
    """
    domain = free_domain()
    with (
        _this_machine_only(),
        session("lgc_live", domain) as ros,
        _node(domain, log, options) as process,  # inherits the DDS settings of the session
        bag_writer(recording) as writer,
    ):
        run = LiveRun(domain, ros.dds.label)
        ros.check = lambda: _check_alive(process, log)
        listener = _Listener(run, options, progress)
        recorder = Recorder(ros, writer, RecordOptions(RECORDED), listener.on_message)
        ros.node.create_subscription(Image, PICTURES, listener.on_picture, 10)
        if not ros.spin_until(recorder.discover, time.monotonic() + START_S):
            _check_interrupted(ros)
            raise LgcError(f"the node did not start within {START_S:g} s; its log:\n{_tail(log)}")
        start_s = time.monotonic()
        playing = PlayOptions(
            reliable=True,
            topics=(options.image_topic, options.info_topic),
            wait_for=(options.image_topic, options.info_topic),
            in_step_with=ODOMETRY,
            answer_s=options.answer_s,
        )
        play(ros, bag, playing, listener.on_played)
        ros.spin_until(lambda: _has_all_views(run, recorder), time.monotonic() + VIEWS_S)
        recorder.drain()
        run.seconds = time.monotonic() - start_s
        _check_interrupted(ros)
    return run


def _has_all_views(run: LiveRun, recorder: Recorder) -> bool:
    """Whether the views of the last frame arrived, too; the node publishes them after its pose."""
    return min(run.views, recorder.counts[INLIERS]) >= run.answered


class _Listener:
    """Records what is sent and received in a LiveRun."""

    def __init__(
        self, run: LiveRun, options: LiveOptions, progress: Callable[[LiveRun], None]
    ) -> None:
        self._run, self._options, self._progress = run, options, progress
        self._sent_s: dict[int, float] = {}

    def on_played(self, played: Played) -> None:
        if played.topic != self._options.image_topic:
            return
        self._sent_s[serialized_stamp_ns(played.data)] = time.monotonic()
        self._run.played += 1

    def on_message(self, topic: str, data: bytes) -> None:
        run = self._run
        if topic == ODOMETRY:
            stamp = serialized_stamp_ns(data)
            run.answered += 1
            run.latency_ms[stamp] = 1e3 * (time.monotonic() - self._sent_s[stamp])
        elif topic == DIAGNOSTICS:
            status = deserialize_message(data, DiagnosticArray).status[0]
            values = {value.key: value.value for value in status.values}
            run.reports.append(values | {"message": status.message})
        self._progress(run)

    def on_picture(self, message: Image) -> None:
        if self._run.views % self._options.picture_every == 0:
            quality = [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY]
            _, data = cv2.imencode(".jpg", image_from_message(message), quality)
            self._run.pictures[stamp_ns(message.header.stamp)] = data.tobytes()
        self._run.views += 1


def free_domain() -> int:
    """A ROS domain without participants, reserved for this process.

    A port is held as a reservation, because participants take a while to start. Beyond
    MAX_RESERVED, the oldest reservation of this process ends. If other processes hold all other
    domains, it is used again.
    """
    for domain in random.SystemRandom().sample(range(1, 100), 99):
        if domain not in _reservations and not _has_participants(domain) and _reserve(domain):
            if len(_reservations) > MAX_RESERVED:
                _reservations.pop(next(iter(_reservations))).close()
            return domain
    for domain, held in _reservations.items():
        if not _has_participants(domain):
            del _reservations[domain]
            _reservations[domain] = held  # the newest one now
            return domain
    raise LgcError("all ROS domains of this machine are in use: stop some ROS processes")


def _reserve(domain: int) -> bool:
    """Hold the port that stands for a domain; False if another process does."""
    taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        taken.bind(("127.0.0.1", RESERVATION_PORT + domain))
    except OSError:
        taken.close()
        return False
    _reservations[domain] = taken
    return True


def _has_participants(domain: int) -> bool:
    """Whether the port of the domain's first participant is in use."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("127.0.0.1", 7410 + 250 * domain))
        except OSError:
            return True
    return False


@contextmanager
def _this_machine_only() -> Iterator[None]:
    name, value = "ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST"
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def _node(domain: int, log: Path, options: LiveOptions) -> Iterator[subprocess.Popen]:
    """The node in its own process; ended by SIGINT, and killed if it does not react."""
    reliable = {
        f"qos_overrides.{topic}.subscription.reliability": "reliable"
        for topic in (options.image_topic, options.info_topic)
    }
    command = [sys.executable, "-m", "lgc_ros.ros.odometry_node", "--ros-args"]
    command += ["-r", f"image:={options.image_topic}", "-r", f"camera_info:={options.info_topic}"]
    for name, value in (reliable | dict(options.parameters)).items():
        command += ["-p", f"{name}:={value}"]
    environment = os.environ | {"ROS_DOMAIN_ID": str(domain)}
    with explained(log), log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches this process only, which then ends the node
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _check_alive(process: subprocess.Popen, log: Path) -> None:
    code = process.poll()
    if code is not None:
        raise LgcError(f"the node ended with code {code}; its log:\n{_tail(log)}")


def _check_interrupted(ros: Session) -> None:
    if ros.stopping.is_set():
        raise Interrupted("interrupted")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8").splitlines()[-LOG_LINES:]) or "(nothing)"

"""The processes under test, in a domain of their own, and how they must end."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import Odometry
from rclpy.context import Context
from ros.campaign.summary import Row
from ros.processes import FRAME, OPTIONS, Robot, end, environment

from lgc_ros.images.frame import Frame
from lgc_ros.images.stamps import stamp_ns
from lgc_ros.ros.live import free_domain
from lgc_ros.sources.bag_writer import write_bag

NODE = "/lgc_odometry"
QUEUE = 1000
# A process ends within this time on a busy machine.
END_S = 60.0
# Exit codes of a clean end: 0 of a node or a recorder, 130 of playback that is interrupted.
CLEAN = (0, 130)
# Cheap settings: it is not accuracy that is tested.
CHEAP = {"features": "orb", "max_keypoints": 200}


def node_command(**parameters) -> list[str]:
    settings = OPTIONS | CHEAP | {"base_frame": FRAME} | parameters
    words = [word for name, value in settings.items() for word in ("-p", f"{name}:={value}")]
    return [sys.executable, "-m", "lgc_ros.ros.odometry_node", "--ros-args", *words]


# For images of another frame than `FRAME`.
MOUNTED = {"base_frame": "base_link", "base_to_camera": "[0.,0.,0.,0.,0.,0.,1.]"}


def played(views: Sequence[Frame], bag: Path) -> list[str]:
    """Writes a bag, and returns the words with which `lgc play` shows it to the node."""
    write_bag(views, bag)
    remapped = "/camera/image_raw:=/image", "/camera/camera_info:=/camera_info"
    return [str(bag), *(word for names in remapped for word in ("--remap", names))]


def reliable(*topics: str) -> dict[str, str | int]:
    """Parameters with which nothing gets lost on the way to the node."""
    policies = ("reliability", "reliable"), ("depth", QUEUE)
    return {"sync_queue": QUEUE} | {
        f"qos_overrides./{topic}.subscription.{policy}": value
        for topic in topics
        for policy, value in policies
    }


class Bench(Robot):
    """A robot that outlives the processes it watches.

    Attributes:
        row: of the summary.
        odometry: all that the node answered.
        reports, reported_ns: its diagnostics, and their stamps.
    """

    def __init__(self, folder: Path, row: Row, context: Context) -> None:
        super().__init__(None, None, context)
        self.row = row
        self._folder, self._started = folder, []
        self.odometry = []
        self.node.create_subscription(Odometry, f"{NODE}/odometry", self.odometry.append, 1000)
        self.reports, self.reported_ns = [], []
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_report, 100)

    def _on_report(self, message: DiagnosticArray) -> None:
        self.reports.extend(message.status)
        self.reported_ns.append(stamp_ns(message.header.stamp))

    def start(self, command: Sequence[str]) -> subprocess.Popen:
        """Start a process that ends with the bench at the latest."""
        folder = self._folder / f"process_{len(self._started)}"
        folder.mkdir()
        variables = environment(self.node.context.get_domain_id(), folder)
        log = folder / "process.log"
        with log.open("w") as output:
            process = subprocess.Popen(command, env=variables, stdout=output, stderr=output)
        process.log = log
        self._started.append(process)
        self.row.starts += 1
        return process

    def start_node(self, **parameters) -> subprocess.Popen:
        """Start the node; it is what `spin_until` watches, and whose log is `log`."""
        self.process = self.start(node_command(**parameters))
        self._log = self.process.log
        return self.process

    def end_node(self, *signals: int) -> None:
        """Signals end the node with code 0."""
        self.row.hangs += ended_by(self.process, *signals)

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                end(process)
        self.executor.shutdown()
        self.node.destroy_node()


@contextmanager
def bench(folder: Path, row: Row) -> Iterator[Bench]:
    """A bench in a domain of its own."""
    context = Context()
    rclpy.init(context=context, domain_id=free_domain())
    watching = Bench(folder, row, context)
    try:
        yield watching
    finally:
        row.answered = len(watching.odometry)
        watching.close()
        context.try_shutdown()


def ended_by(process: subprocess.Popen, *signals: int) -> bool:
    """Whether Fast DDS kept the process from leaving; any other end than a clean one fails.

    Fast DDS as it comes with pip may spin forever when a participant leaves while it hears of
    another (eProsima/Fast-DDS#6513). `lgc_ros.ros.session.shut_down` ends such a process with
    code 1 and a stack trace that names it: all its work is done by then.
    """
    for number in signals or (signal.SIGINT,):
        process.send_signal(number)
    code, log = process.wait(END_S), process.log.read_text()
    hung = code == 1 and " in shut_down" in log
    assert code in CLEAN or hung, f"exit code {code}:\n{log[-3000:]}"
    return hung

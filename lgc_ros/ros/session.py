"""A participant in ROS for as long as a command runs, which a signal ends at any time."""

from __future__ import annotations

import faulthandler
import logging
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import rclpy
from rclpy.context import Context
from rclpy.exceptions import NameValidationException
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from lgc_ros.errors import ConfigError
from lgc_ros.odometry.profiles import config_folder
from lgc_ros.ros.dds_profile import DdsChoice, apply_dds_profile

log = logging.getLogger(__name__)
# Which DDS settings are used is worth a line at any verbosity.
_dds_log = logging.getLogger(f"{__name__}.dds")
_dds_log.setLevel(logging.INFO)

NAMES = (
    "names consist of letters, digits and _ in parts separated by single /, and no part begins "
    "with a digit"
)

# A signal is noticed after this long at the latest.
PATIENCE_S = 0.1
# Waiting longer than this needs an explanation.
SILENT_S = 3.0
# Leaving takes a fraction of a second, on a busy machine a few.
LEAVE_S = 20.0


class Session:
    """A node, and how to let it work.

    Attributes:
        stopping: set by a signal, or by whoever wants the command to end.
        check: called while waiting, to raise an error when waiting has become futile.
        dds: the DDS settings, which processes started from here inherit.
    """

    def __init__(
        self,
        node: Node,
        executor: SingleThreadedExecutor,
        stopping: threading.Event,
        dds: DdsChoice,
    ):
        self.node, self.stopping, self.dds = node, stopping, dds
        self.check: Callable[[], None] = lambda: None
        self._executor = executor

    def topic_name(self, topic: str) -> str:
        """The full name of a topic.

        Raises:
            ConfigError: it cannot be a name.
        """
        try:
            return self.node.resolve_topic_name(topic)
        except NameValidationException as error:
            raise ConfigError(f"'{topic}' cannot be the name of a topic: {NAMES}") from error

    def spin_for(self, seconds: float) -> None:
        """Answer callbacks for this long, or until the session is to stop."""
        until_s = time.monotonic() + seconds
        self.spin_until(lambda: time.monotonic() >= until_s, until_s)

    def spin_until(self, done: Callable[[], bool], until_s: float = float("inf")) -> bool:
        """Answer callbacks until `done`; False if the session is to stop, or `until_s` passed."""
        while not done():
            self.check()
            left_s = until_s - time.monotonic()
            if self.stopping.is_set() or left_s <= 0:
                return False
            self._executor.spin_once(timeout_sec=min(left_s, PATIENCE_S))
        return True

    def take_waiting(self, count: int) -> None:
        """Answer so many callbacks, as far as they wait already."""
        for _ in range(count):
            self._executor.spin_once(timeout_sec=0)

    def wait_for(self, done: Callable[[], bool], what: str) -> bool:
        """Answer callbacks until `done`, and say what is waited for if that takes long."""
        if not self.spin_until(done, time.monotonic() + SILENT_S):
            if not self.stopping.is_set():
                log.warning("waiting for %s", what)
            return self.spin_until(done)
        return True


@contextmanager
def session(name: str, domain: int | None = None) -> Iterator[Session]:
    """A session whose SIGINT and SIGTERM only set `stopping`, so that what runs can be finished.

    A second signal changes nothing: `ros2 launch` and impatient people send it.
    """
    stopping = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stopping.set()) for number in signals]
    context = Context()
    dds = init_ros([], context, domain)
    dds.say(_dds_log)
    node = rclpy.create_node(name, context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    try:
        yield Session(node, executor, stopping, dds)
    finally:
        executor.shutdown()
        leave(node)
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def init_ros(
    args: Sequence[str] | None, context: Context | None = None, domain: int | None = None
) -> DdsChoice:
    """Initialize ROS with signals left to the caller, and with room for large images.

    Args:
        args: with `--ros-args`; None: those of the process.

    Returns:
        The DDS settings, not logged yet: only now is the log as the arguments want it.

    Raises:
        ConfigError: the arguments cannot be used.
    """
    choice = apply_dds_profile(config_folder())
    try:
        rclpy.init(
            args=args,
            context=context,
            domain_id=domain,
            signal_handler_options=SignalHandlerOptions.NO,
        )
    except RuntimeError as error:  # rclpy has no public class for errors of rcl
        why = re.search(r"(Couldn't parse [^:]*): '(.*?)'\. Error: (.*?)(, at /|$)", str(error))
        if why is None:
            raise
        what = f"give NAME:=NAME; {NAMES}" if "remap" in why[1] else why[3]
        raise ConfigError(f"the argument {why[2]} cannot be used: {what}") from error
    return choice


def leave(node: Node) -> None:
    """Destroy a node and shut its context down; if that takes for ever, end the process.

    Fast DDS as it comes with pip spins in here, with the interpreter locked, if it is just being
    told of another participant (eProsima/Fast-DDS#6513). A stack trace and exit code 1 after
    LEAVE_S are better than a process that never ends.
    """
    faulthandler.dump_traceback_later(LEAVE_S, exit=True)
    node.destroy_node()
    node.context.try_shutdown()
    faulthandler.cancel_dump_traceback_later()

"""A ROS node for the duration of a command, ended cleanly by signals."""

from __future__ import annotations

import faulthandler
import logging
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rclpy.topic_endpoint_info import TopicEndpointInfo

from lgc_ros.errors import ConfigError, LgcError, did_you_mean
from lgc_ros.odometry.profiles import config_folder
from lgc_ros.ros.dds_profile import DdsChoice, apply_dds_profile

log = logging.getLogger(__name__)
# The DDS settings are logged at any verbosity.
_dds_log = logging.getLogger(f"{__name__}.dds")
_dds_log.setLevel(logging.INFO)

NAMES = (
    "names consist of letters, digits and _ in parts separated by single /, and no part begins "
    "with a digit"
)

OF_EVERY_NODE = ("/parameter_events", "/rosout")

# Maximum delay until a signal takes effect.
POLL_S = 0.1
# Longer waits are explained in the log.
SILENT_S = 3.0
# Shutdown takes a fraction of a second, or a few seconds on a busy machine.
SHUTDOWN_S = 20.0


class Session:
    """A node and its executor.

    Attributes:
        stopping: set by a signal, or by the caller, to end the command.
        check: called while waiting; raises an error if waiting has become futile.
        dds: the DDS settings, inherited by child processes.
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
        """The fully qualified name of a topic.

        Raises:
            ConfigError: the name is invalid.
        """
        try:
            return self.node.resolve_topic_name(topic)
        except RuntimeError as error:  # rclpy has no public class for errors of rcl
            raise ConfigError(f"'{topic}' is not a valid topic name: {NAMES}") from error

    def spin_for(self, seconds: float) -> None:
        """Run callbacks for this long, or until `stopping` is set."""
        until_s = time.monotonic() + seconds
        self.spin_until(lambda: time.monotonic() >= until_s, until_s)

    def spin_until(self, done: Callable[[], bool], until_s: float = float("inf")) -> bool:
        """Run callbacks until `done`; False if `stopping` was set or `until_s` has passed."""
        while not done():
            self.check()
            left_s = until_s - time.monotonic()
            if self.stopping.is_set() or left_s <= 0:
                return False
            self._executor.spin_once(timeout_sec=min(left_s, POLL_S))
        return True

    def take_waiting(self) -> None:
        """Run the callbacks that are ready, one of each subscription and timer."""
        for _ in (*self.node.subscriptions, *self.node.timers):
            self._executor.spin_once(timeout_sec=0)

    def wait_for(
        self, done: Callable[[], bool], what: str, hint: Callable[[], str], timeout_s: float
    ) -> bool:
        """Run callbacks until `done`; if that takes long, log that `what` is awaited.

        Args:
            hint: says what there is instead, for the messages.

        Returns:
            False if `stopping` was set.

        Raises:
            LgcError: `timeout_s` have passed.
        """
        until_s = time.monotonic() + timeout_s
        if self.spin_until(done, min(until_s, time.monotonic() + SILENT_S)):
            return True
        if not self.stopping.is_set():
            log.warning("waiting for %s, at most %g s: %s", what, timeout_s, hint())
        if self.spin_until(done, until_s):
            return True
        if self.stopping.is_set():
            return False
        raise LgcError(f"waited {timeout_s:g} s for {what}: {hint()}")

    def similar_topics(
        self, topic: str, endpoints: Callable[[str], Sequence[TopicEndpointInfo]]
    ) -> str:
        """Topics like this one that have such an endpoint in another node, for messages."""
        own = self.node.get_name(), self.node.get_namespace()
        topics = [
            name
            for name, _ in self.node.get_topic_names_and_types()
            if name not in OF_EVERY_NODE
            and any((e.node_name, e.node_namespace) != own for e in endpoints(name))
        ]
        if not topics:
            return "there is none of any topic; check that the other node runs, and ROS_DOMAIN_ID"
        return did_you_mean(topic, topics)


@contextmanager
def session(name: str, domain: int | None = None) -> Iterator[Session]:
    """A session in which SIGINT and SIGTERM only set `stopping`, so that work can be finished.

    A second signal, as `ros2 launch` sends it, has no effect.
    """
    stopping = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stopping.set()) for number in signals]
    try:
        context = Context()
        dds = init_ros([], context, domain)
        dds.log_to(_dds_log)
        node = rclpy.create_node(name, context=context)
        executor = SingleThreadedExecutor(context=context)
        executor.add_node(node)
        try:
            yield Session(node, executor, stopping, dds)
        finally:
            executor.shutdown()
            shut_down(node)
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def init_ros(
    args: Sequence[str] | None, context: Context | None = None, domain: int | None = None
) -> DdsChoice:
    """Initialize ROS with a DDS profile for large images; signals are left to the caller.

    Args:
        args: arguments with `--ros-args`; None: those of the process.

    Returns:
        The DDS settings, to be logged by the caller now that logging is configured.

    Raises:
        ConfigError: the arguments are invalid.
    """
    choice = apply_dds_profile(config_folder())
    try:
        rclpy.init(
            args=None if args is None else list(args),
            context=context,
            domain_id=domain,
            signal_handler_options=SignalHandlerOptions.NO,
        )
    except RuntimeError as error:  # rclpy has no public class for errors of rcl
        rclpy.try_shutdown(context=context)
        raise ConfigError(_explained(error)) from error
    return choice


def _explained(error: RuntimeError) -> str:
    """The error message of ROS without source locations, and with a remedy."""
    text = re.sub(r",\s+at /\S+:\d+", "", str(error)).strip()
    if "UnknownROSArgs" in type(error).__name__:
        return f"unknown ROS arguments {text}: see odometry_node --help"
    rule = re.search(r"Couldn't parse remap rule: '(.*?)'\. Error: ", text, re.DOTALL)
    if rule:
        return f"invalid argument {rule[1]}: give NAME:=NAME; {NAMES}"
    file = re.search(r"params file: '--params-file (.*?)'\. Error: (.*)", text, re.DOTALL)
    if file and not Path(file[1]).is_file():
        return f"the parameter file {file[1]} does not exist: check --params-file"
    if file:
        return f"the parameter file {file[1]} cannot be read: {' '.join(file[2].split())}"
    if "logging" in text:
        cause = text.removeprefix("failed to initialize logging: ")
        return f"ROS cannot write its log files ({cause}): set ROS_LOG_DIR to a writable folder"
    cause = text.removeprefix("failed to initialize rcl: ")
    return f"ROS cannot be initialized: {cause}; see odometry_node --help"


def shut_down(node: Node) -> None:
    """Destroy a node and shut down its context; if that hangs, end the process.

    Fast DDS of the pip wheels can spin here for ever, holding the GIL, if another participant is
    discovered at the same time (eProsima/Fast-DDS#6513). A stack trace and exit code 1 after
    SHUTDOWN_S are better than a process that never ends.
    """
    faulthandler.dump_traceback_later(SHUTDOWN_S, exit=True)
    try:
        node.destroy_node()
        node.context.try_shutdown()
    finally:
        faulthandler.cancel_dump_traceback_later()

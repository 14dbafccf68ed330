"""The node `lgc_odometry`: images in, odometry out, or the reason why not."""

from __future__ import annotations

import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rcl_interfaces.msg import SetParametersResult
from rclpy.clock import Clock, ClockType
from rclpy.exceptions import InvalidParameterTypeException, InvalidParameterValueException
from rclpy.executors import SingleThreadedExecutor
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.node import Node
from rclpy.parameter import Parameter
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from std_srvs.srv import Empty

from lgc_ros.errors import ConfigError, LgcError
from lgc_ros.ros.inputs import Inputs
from lgc_ros.ros.lifecycle import refuse_impossible_transitions, told
from lgc_ros.ros.mounting import Mounting
from lgc_ros.ros.node_help import help_text, wants_help
from lgc_ros.ros.outputs import Outputs
from lgc_ros.ros.parameters import (
    declare_parameters,
    deletion_refused,
    read_parameters,
    unknown_parameters,
)
from lgc_ros.ros.qos import output_qos
from lgc_ros.ros.session import init_ros, leave
from lgc_ros.ros.tracker import PendingImage, Tracker
from lgc_ros.ros.worker import LatestItemWorker, SerialThread
from lgc_ros.runtime.allocator import retain_freed_memory

NAME = "lgc_odometry"
UNCONFIGURED = "the node is not configured: trigger the transitions configure and activate"
INACTIVE = "the node is not active: trigger the transition activate"
SHUT_DOWN = "the node is shut down: start it again"
FAILED = "the last transition failed, see the log: configure and activate the node again"


class _Pair(NamedTuple):
    """An image with its calibration, and when (monotonic seconds) they arrived."""

    image: Image | CompressedImage
    camera_info: CameraInfo
    arrived_s: float


class OdometryNode(LifecycleNode):
    """Visual odometry as a managed node.

    Callbacks only hand the newest image to a worker thread, so that the node answers while it
    computes; `_lock` guards what both use. With `pipelined` that thread only finds keypoints, and
    one behind it tracks the frame before. There is a tracker, and all that publishes, from
    configure to cleanup, and inputs and worker from activate to deactivate.

    Attributes:
        idle: why the node does nothing, while it is not active.
    """

    def __init__(self) -> None:
        super().__init__(NAME)
        declare_parameters(self)
        for warning in unknown_parameters(self):
            self.get_logger().warning(warning)
        self._settings = read_parameters(self)
        self._lock = threading.Lock()
        self._stopping = threading.Event()  # nothing is worth waiting for any more
        self.idle = UNCONFIGURED
        self._tracker: Tracker | None = None
        self._outputs: Outputs | None = None
        self._mounting: Mounting | None = None
        self._inputs: Inputs | None = None
        self._worker: LatestItemWorker | None = None
        self._behind: SerialThread | None = None
        self._checked: Tracker | None = None  # made to see whether new settings can be used
        self.add_on_set_parameters_callback(self._check_parameters)
        self.add_post_set_parameters_callback(self._apply_parameters)
        refuse_impossible_transitions(self)
        self.create_service(Empty, "~/reset", self._on_reset)
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", output_qos())
        # Steady: the reason for silence is told even when a simulated clock stands still.
        self.create_timer(1.0, self._on_tick, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def start(self) -> bool:
        """Configure and activate, if the node is to do that itself; False if it failed.

        The reason is in the log then.
        """
        return not self._settings.autostart or all(
            trigger() == TransitionCallbackReturn.SUCCESS
            for trigger in (self.trigger_configure, self.trigger_activate)
        )

    @told
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        p = self._settings
        tracker = Tracker(p.odometry, p.rectified, self._begin_anew)
        self._outputs = Outputs(self)
        self._mounting = Mounting(self, p.base_frame, p.T_bc)
        self._tracker = tracker
        self.idle = INACTIVE
        return super().on_configure(state)

    @told
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._stopping.clear()
        self._inputs = Inputs(self, self._settings, self._on_pair)
        self._behind = SerialThread(f"{NAME}_behind")
        self._worker = LatestItemWorker(self._work, f"{NAME}_worker")
        self.get_logger().info(f"waiting for {self._inputs.monitor.images.topic}")
        return super().on_activate(state)

    @told
    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.stop()
        self.idle = INACTIVE
        return super().on_deactivate(state)

    @told
    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._release(UNCONFIGURED)
        return super().on_cleanup(state)

    @told
    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._release(SHUT_DOWN)
        return super().on_shutdown(state)

    @told
    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._release(FAILED)
        return super().on_error(state)

    def stop(self) -> None:
        """Take no more images, and finish what is at hand."""
        self._stopping.set()
        if self._inputs is not None:
            self._inputs.close()
            self._inputs = None
        if self._worker is not None:
            self._worker.stop()
            self._behind.stop()
            self._worker = self._behind = None

    def _release(self, idle: str) -> None:
        self.stop()
        if self._outputs is not None:
            self._outputs.destroy()
        if self._mounting is not None:
            self._mounting.close()
        self._tracker = self._outputs = self._mounting = None
        self.idle = idle

    def _on_pair(self, image: Image | CompressedImage, camera_info: CameraInfo) -> None:
        if self._worker is not None:
            self._worker.put(_Pair(image, camera_info, time.monotonic()))

    def _work(self, pair: _Pair) -> None:
        """One image, in the worker thread."""
        prepared = self._tracker.prepare(pair.image)
        if self._settings.pipelined and self._settings.odometry.threads != 1:
            with suppress(Exception):  # what is wrong with it is told when it is tracked
                prepared.features()
            self._behind.call(partial(self._track, pair, prepared))
        else:
            self._behind.wait()
            self._track(pair, prepared)

    def _track(self, pair: _Pair, prepared: PendingImage) -> None:
        """Whatever is wrong with an image, the next may be right."""
        self._mounting.wait_for(pair.image.header.frame_id, self._stopping)
        inputs = self._inputs
        if inputs is None:  # closed while the image waited
            return
        try:
            with self._lock:
                self._process(pair, prepared, inputs)
        except LgcError as error:
            inputs.monitor.fault(str(error))
        except Exception as error:
            unexpected = f"unexpected {type(error).__name__}: {error}"
            inputs.monitor.fault(unexpected, traceback.format_exc())

    def _process(self, pair: _Pair, prepared: PendingImage, inputs: Inputs) -> None:
        tracker, header = self._tracker, pair.image.header
        T_bc, T_oc = self._mounting.T_bc(header.frame_id), None
        frame = tracker.read(prepared, pair.camera_info)
        scale = inputs.scale  # which a changed parameter may replace meanwhile
        if scale is not None:
            frame, T_oc = scale.measure(frame, T_bc)
        tracked = tracker.track(frame, T_oc, prepared)
        if tracker.has_begun:
            self._outputs.publish_motion(header, tracked, T_bc, self._settings)
        inputs.monitor.processed(tracked.state, 1e3 * (time.monotonic() - pair.arrived_s))
        if tracker.has_begun:
            keyframes = tracker.odometry.map.keyframes
            self._outputs.publish_views(header, tracked, keyframes, inputs.monitor.undrawn)

    def _begin_anew(self, reason: str) -> None:
        self._outputs.forget()
        self.get_logger().info(f"{reason}: the next frame is the origin")

    def _on_reset(self, request: Empty.Request, response: Empty.Response) -> Empty.Response:
        with self._lock:
            if self._tracker is not None:
                self._tracker.reset("reset as asked for")
        return response

    def _check_parameters(self, changes: Sequence[Parameter]) -> SetParametersResult:
        refusal = deletion_refused(self, changes)
        if refusal:
            return SetParametersResult(successful=False, reason=refusal)
        try:
            after = read_parameters(self, changes)
            if after.odometry != self._settings.odometry:
                self._checked = Tracker(after.odometry, after.rectified, self._begin_anew)
        except LgcError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _apply_parameters(self, changes: Sequence[Parameter]) -> None:
        before, after = self._settings, read_parameters(self)
        checked, self._checked = self._checked, None
        with self._lock:
            self._settings = after
            if self._tracker is None:
                return
            if checked is not None:
                self._tracker = checked
                self._tracker.reset("settings of odometry have changed")
            if (before.base_frame, before.base_to_camera) != (
                after.base_frame,
                after.base_to_camera,
            ):
                self._mounting.close()
                self._mounting = Mounting(self, after.base_frame, after.T_bc)
        # Without the lock: a subscription declares parameters, which leads here again.
        if self._inputs is not None and before.odometry.scale != after.odometry.scale:
            try:
                self._inputs.listen_for_scale(after)
            except LgcError as error:
                self.get_logger().error(str(error))

    def _on_tick(self) -> None:
        name = f"{self.get_fully_qualified_name().lstrip('/')}: odometry"
        if self._inputs is None:
            status = DiagnosticStatus(
                name=name, level=DiagnosticStatus.WARN, message=self.idle, hardware_id=NAME
            )
        else:
            status = self._inputs.monitor.report(
                name, self._tracker.setup, self._worker.dropped, self._settings
            )
        message = DiagnosticArray(status=[status])
        message.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(message)


def spin(node: Node, stopping: threading.Event) -> None:
    """Run a node's callbacks until told to stop; one that fails is logged, and the next runs."""
    executor = SingleThreadedExecutor(context=node.context)
    executor.add_node(node)
    while node.context.ok() and not stopping.is_set():
        try:
            executor.spin_once(timeout_sec=0.2)
        except Exception:
            node.get_logger().error(f"a callback failed: {traceback.format_exc()}")
    executor.remove_node(node)
    executor.shutdown()


def main(args: Sequence[str] | None = None) -> int:
    """Run the node until a signal ends it; settings that cannot be used end it at once.

    Signals only set a flag: `ros2 launch` sends a second one, which must not disturb the end.
    """
    if wants_help(args):
        sys.stdout.write(help_text())
        return 0
    retain_freed_memory()
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    try:
        dds = init_ros(args)
    except ConfigError as error:  # ROS cannot log yet
        sys.stderr.write(f"error: {error}\n")
        return 1
    try:
        node = OdometryNode()
    except (ConfigError, InvalidParameterTypeException, InvalidParameterValueException) as error:
        rclpy.logging.get_logger(NAME).fatal(str(error))
        rclpy.try_shutdown()
        return 1
    dds.say(node.get_logger())
    started = node.start()
    if started:
        spin(node, stopping)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    node.stop()
    leave(node)
    return 0 if started else 1


if __name__ == "__main__":
    sys.exit(main())

"""The node `lgc_odometry`: publishes odometry from images, or the reason why it cannot."""

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
from lgc_ros.ros.lifecycle import log_failure, refuse_impossible_transitions
from lgc_ros.ros.message_odometry import MessageOdometry, PendingImage
from lgc_ros.ros.mounting import Mounting
from lgc_ros.ros.node_help import help_text, wants_help
from lgc_ros.ros.node_parameters import NodeParameters
from lgc_ros.ros.outputs import Outputs
from lgc_ros.ros.parameters import (
    declare_parameters,
    deletion_refused,
    read_parameters,
    unknown_parameters,
)
from lgc_ros.ros.qos import output_qos
from lgc_ros.ros.session import init_ros, shut_down
from lgc_ros.ros.worker import LatestItemWorker, SerialThread
from lgc_ros.runtime.allocator import retain_freed_memory

NAME = "lgc_odometry"
# How long the mapping thread may hold Python's lock while tracking waits for it.
SWITCH_INTERVAL_S = 0.5e-3
UNCONFIGURED = "the node is not configured: trigger the transitions configure and activate"
INACTIVE = "the node is not active: trigger the transition activate"
SHUT_DOWN = "the node is shut down: restart it"
FAILED = "the last transition failed, see the log: configure and activate the node again"


class _Pair(NamedTuple):
    """An image with its calibration, and their arrival time (monotonic seconds)."""

    image: Image | CompressedImage
    camera_info: CameraInfo
    arrived_s: float


class OdometryNode(LifecycleNode):
    """Visual odometry as a lifecycle node.

    Callbacks only pass the newest image to a worker thread, so that the node stays responsive;
    `_lock` guards what both threads use. With `pipelined`, that thread extracts keypoints while a
    second one tracks the previous frame. Odometry and publishers exist from configure to cleanup,
    subscriptions and threads from activate to deactivate.

    Attributes:
        idle: why the node is idle, while it is not active.
    """

    def __init__(self) -> None:
        super().__init__(NAME)
        declare_parameters(self)
        for warning in unknown_parameters(self):
            self.get_logger().warning(warning)
        self._settings = read_parameters(self)
        self._lock = threading.Lock()
        self._stopping = threading.Event()  # interrupts the wait for a transform
        self.idle = UNCONFIGURED
        self._odometry: MessageOdometry | None = None
        self._outputs: Outputs | None = None
        self._mounting: Mounting | None = None
        self._inputs: Inputs | None = None
        self._worker: LatestItemWorker | None = None
        self._tracking_thread: SerialThread | None = None
        # Made from new settings, to see whether they can be used.
        self._checked: MessageOdometry | None = None
        self.add_on_set_parameters_callback(self._check_parameters)
        self.add_post_set_parameters_callback(self._apply_parameters)
        refuse_impossible_transitions(self)
        self.create_service(Empty, "~/reset", self._on_reset)
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", output_qos())
        # Steady time: diagnostics must go on while a simulated clock stands still.
        self.create_timer(1.0, self._on_tick, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def start(self) -> bool:
        """Configure and activate the node if `autostart` is set.

        Returns:
            False if a transition failed; the log says why.
        """
        return not self._settings.autostart or all(
            trigger() == TransitionCallbackReturn.SUCCESS
            for trigger in (self.trigger_configure, self.trigger_activate)
        )

    def _new_odometry(self, p: NodeParameters) -> MessageOdometry:
        return MessageOdometry(
            p.odometry,
            p.rectified,
            p.background_mapping,
            self._on_reinitialized,
            self.get_logger().warning,
        )

    @log_failure
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        p = self._settings
        odometry = self._new_odometry(p)
        self._outputs = Outputs(self)
        self._mounting = Mounting(self, p.base_frame, p.T_bc)
        self._odometry = odometry
        self.idle = INACTIVE
        return super().on_configure(state)

    @log_failure
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._stopping.clear()
        self._inputs = Inputs(self, self._settings, self._on_pair)
        self._tracking_thread = SerialThread(f"{NAME}_tracking")
        self._worker = LatestItemWorker(self._work, f"{NAME}_worker")
        self.get_logger().info(f"waiting for {self._inputs.monitor.images.topic}")
        return super().on_activate(state)

    @log_failure
    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.stop()
        self.idle = INACTIVE
        return super().on_deactivate(state)

    @log_failure
    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._release(UNCONFIGURED)
        return super().on_cleanup(state)

    @log_failure
    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._release(SHUT_DOWN)
        return super().on_shutdown(state)

    @log_failure
    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._release(FAILED)
        return super().on_error(state)

    def stop(self) -> None:
        """Stop receiving images, and finish the current one."""
        self._stopping.set()
        if self._inputs is not None:
            self._inputs.close()
            self._inputs = None
        if self._worker is not None:
            self._worker.stop()
            self._tracking_thread.stop()
            self._worker = self._tracking_thread = None

    def _release(self, idle: str) -> None:
        self.stop()
        if self._outputs is not None:
            self._outputs.destroy()
        if self._mounting is not None:
            self._mounting.close()
        if self._odometry is not None:
            self._odometry.close()
        self._odometry = self._outputs = self._mounting = None
        self.idle = idle

    def _on_pair(self, image: Image | CompressedImage, camera_info: CameraInfo) -> None:
        if self._worker is not None:
            self._worker.put(_Pair(image, camera_info, time.monotonic()))

    def _work(self, pair: _Pair) -> None:
        """Process one image in the worker thread."""
        prepared = self._odometry.prepare(pair.image, pair.camera_info)
        if self._settings.is_pipelined:
            with suppress(Exception):  # raised again, and reported, when it is tracked
                prepared.features()
            self._tracking_thread.call(partial(self._track, pair, prepared))
        else:
            self._tracking_thread.wait()
            self._track(pair, prepared)

    def _track(self, pair: _Pair, prepared: PendingImage) -> None:
        """Track one image; an error is reported and does not affect the next image."""
        inputs = self._inputs
        if inputs is None:  # closed while the image waited
            return
        try:
            self._mounting.wait_for(pair.image.header.frame_id, self._stopping)
            if self._stopping.is_set():
                return
            with self._lock:
                self._process(pair, prepared, inputs)
        except LgcError as error:
            inputs.monitor.fault(str(error))
        except Exception as error:
            unexpected = f"unexpected {type(error).__name__}: {error}"
            inputs.monitor.fault(unexpected, traceback.format_exc())

    def _process(self, pair: _Pair, prepared: PendingImage, inputs: Inputs) -> None:
        odometry, header = self._odometry, pair.image.header
        T_bc, T_oc = self._mounting.T_bc(header.frame_id), None
        frame = odometry.read(prepared)
        scale = inputs.scale  # a parameter change may replace it meanwhile
        if scale is not None:
            frame, T_oc = scale.measure(frame, T_bc)
        tracked = odometry.track(frame, T_oc, prepared)
        if odometry.has_pose:
            self._outputs.publish_motion(header, tracked, T_bc, self._settings)
        inputs.monitor.processed(tracked.state, 1e3 * (time.monotonic() - pair.arrived_s))
        if odometry.has_pose:
            self._outputs.publish_views(
                header, tracked, odometry.keyframes, inputs.monitor.view_failed
            )

    def _on_reinitialized(self, reason: str) -> None:
        self._outputs.clear_path()
        self.get_logger().info(f"re-initializing, {reason}: the next frame is the origin")

    def _on_reset(self, request: Empty.Request, response: Empty.Response) -> Empty.Response:
        with self._lock:
            if self._odometry is not None:
                self._odometry.reset("reset requested")
        return response

    def _check_parameters(self, changes: Sequence[Parameter]) -> SetParametersResult:
        refusal = deletion_refused(self, changes)
        if refusal:
            return SetParametersResult(successful=False, reason=refusal)
        try:
            before, after = self._settings, read_parameters(self, changes)
            if (before.odometry, before.background_mapping) != (
                after.odometry,
                after.background_mapping,
            ):
                self._checked = self._new_odometry(after)
        except LgcError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _apply_parameters(self, changes: Sequence[Parameter]) -> None:
        before, after = self._settings, read_parameters(self)
        checked, self._checked = self._checked, None
        with self._lock:
            self._settings = after
            if self._odometry is None:
                return
            if checked is not None:
                self._odometry.close()
                self._odometry = checked
                self._odometry.reset("the odometry settings have changed")
            if (before.base_frame, before.base_to_camera) != (
                after.base_frame,
                after.base_to_camera,
            ):
                self._mounting.close()
                self._mounting = Mounting(self, after.base_frame, after.T_bc)
        # Without the lock: a subscription declares parameters, which calls this method again.
        if self._inputs is not None and before.odometry.scale != after.odometry.scale:
            try:
                self._inputs.subscribe_scale(after)
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
                name, self._odometry.setup, self._worker.dropped, self._settings
            )
        message = DiagnosticArray(status=[status])
        message.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(message)


def spin(node: Node, stopping: threading.Event) -> None:
    """Run the callbacks of a node until `stopping` is set; exceptions are logged, not raised."""
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
    """Run the node until SIGINT or SIGTERM; invalid parameters end it at once with code 1.

    Signals only set a flag: `ros2 launch` sends a second one, which must not disturb the shutdown.
    """
    if wants_help(args):
        sys.stdout.write(help_text())
        return 0
    retain_freed_memory()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
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
    dds.log_to(node.get_logger())
    started = node.start()
    if started:
        spin(node, stopping)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    node.stop()
    shut_down(node)
    return 0 if started else 1


if __name__ == "__main__":
    sys.exit(main())

"""The node `lgc_odometry`: images in, odometry out, or the reason why not."""

from __future__ import annotations

import functools
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from lifecycle_msgs.srv import ChangeState
from rcl_interfaces.msg import SetParametersResult
from rclpy.clock import Clock, ClockType
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.exceptions import InvalidParameterTypeException, InvalidParameterValueException
from rclpy.executors import SingleThreadedExecutor
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter
from rclpy.qos import QoSPolicyKind, qos_profile_sensor_data
from rclpy.qos_overriding_options import QoSOverridingOptions
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from std_srvs.srv import Empty

from lgc_ros.errors import ConfigError, LgcError
from lgc_ros.ros import compat
from lgc_ros.ros.diagnostics import Monitor, TopicWatch
from lgc_ros.ros.mounting import Mounting
from lgc_ros.ros.outputs import OUTPUT_QOS, Outputs
from lgc_ros.ros.parameters import declare_parameters, read_parameters
from lgc_ros.ros.tracker import Tracker
from lgc_ros.ros.worker import NewestFirstWorker

NAME = "lgc_odometry"
OVERRIDABLE = QoSOverridingOptions(
    (
        QoSPolicyKind.HISTORY,
        QoSPolicyKind.DEPTH,
        QoSPolicyKind.RELIABILITY,
        QoSPolicyKind.DURABILITY,
    )
)
UNCONFIGURED = "the node is not configured: trigger the transitions configure and activate"
INACTIVE = "the node is not active: trigger the transition activate"


class _Input(NamedTuple):
    """An image with its calibration, and when (monotonic seconds) they arrived."""

    image: Image | CompressedImage
    camera_info: CameraInfo
    arrived_s: float


def _telling(transition: Callable) -> Callable:
    """A transition whose unforeseen failure is logged; rclpy would keep it to itself."""

    @functools.wraps(transition)
    def told(self: OdometryNode, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            return transition(self, state)
        except Exception:
            self.get_logger().error(f"{transition.__name__} failed: {traceback.format_exc()}")
            raise

    return told


class OdometryNode(LifecycleNode):
    """Visual odometry as a managed node.

    Callbacks only hand the newest frame to a worker thread, so that the node answers while it
    computes; `_lock` guards what both use.
    """

    def __init__(self) -> None:
        super().__init__(NAME)
        declare_parameters(self)
        self._settings = read_parameters(self)
        self._lock = threading.Lock()
        self._idle = UNCONFIGURED
        self._why = self._logged = ""
        self._tracker: Tracker | None = None
        self._worker: NewestFirstWorker | None = None
        self._monitor: Monitor | None = None
        self._subscribers: list[compat.Subscriber] = []
        self.add_on_set_parameters_callback(self._check_parameters)
        self.add_post_set_parameters_callback(self._apply_parameters)
        self._refuse_impossible_transitions()
        self.create_service(Empty, "~/reset", self._on_reset)
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", OUTPUT_QOS)
        # Steady: the reason for silence is told even when a simulated clock stands still.
        self.create_timer(1.0, self._on_tick, clock=Clock(clock_type=ClockType.STEADY_TIME))
        if self._settings.autostart:
            self._start()

    def _refuse_impossible_transitions(self) -> None:
        """Answer a transition that the state does not allow; rclpy lets it end the process."""
        service = self._service_change_state
        change = service.callback

        def change_or_refuse(
            request: ChangeState.Request, response: ChangeState.Response
        ) -> ChangeState.Response:
            try:
                return change(request, response)
            except RuntimeError as error:
                self.get_logger().error(f"the transition is not possible now: {error}")
                response.success = False
                return response

        service.callback = change_or_refuse

    def _start(self) -> None:
        if self.trigger_configure() == TransitionCallbackReturn.SUCCESS:
            self.trigger_activate()

    @_telling
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        p = self._settings
        try:
            self._tracker = Tracker(p.odometry, p.rectified, self.get_logger())
        except LgcError as error:
            self._idle = f"the node could not be configured: {error}"
            self.get_logger().error(self._idle)
            return TransitionCallbackReturn.FAILURE
        self._outputs = Outputs(self, OVERRIDABLE)
        self._mounting = Mounting(self, p.base_frame, p.T_bc)
        self._idle = INACTIVE
        return super().on_configure(state)

    @_telling
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._subscribe()
        self._worker = NewestFirstWorker(self._work, f"{NAME}_worker")
        self.get_logger().info(f"waiting for {self._monitor.images.topic}")
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.stop()
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._release()
        self._idle = UNCONFIGURED
        return super().on_cleanup(state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.stop()
        self._release()
        self._idle = "the node is shut down: start it again"
        return super().on_shutdown(state)

    def _subscribe(self) -> None:
        p = self._settings
        images, image_type = self.resolve_topic_name("image"), Image
        if p.image_transport == "compressed":
            images, image_type = f"{images}/compressed", CompressedImage
        camera_info = self.resolve_topic_name("camera_info")
        self._monitor = Monitor(
            self._watch(image_type, images, "image"),
            self._watch(CameraInfo, camera_info, "camera_info"),
            self.count_publishers,
        )
        if p.approximate_sync:
            synchronizer = compat.ApproximateTimeSynchronizer(
                self._subscribers, p.sync_queue, p.sync_slop_s
            )
        else:
            synchronizer = compat.TimeSynchronizer(self._subscribers, p.sync_queue)
        synchronizer.registerCallback(self._on_pair)

    def _watch(self, kind: type, topic: str, remapped_as: str) -> TopicWatch:
        watch = TopicWatch(topic, remapped_as)
        subscriber = compat.Subscriber(
            self,
            kind,
            topic,
            qos_profile=qos_profile_sensor_data,
            qos_overriding_options=OVERRIDABLE,
            event_callbacks=SubscriptionEventCallbacks(incompatible_qos=watch.on_incompatible_qos),
        )
        subscriber.registerCallback(watch.on_message)
        self._subscribers.append(subscriber)
        return watch

    def stop(self) -> None:
        """Take no more images, and let the worker finish the one at hand."""
        for subscriber in self._subscribers:
            self.destroy_subscription(subscriber.sub)
        self._subscribers.clear()
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def _release(self) -> None:
        if self._tracker is not None:
            self._outputs.destroy()
            self._mounting.close()
            self._tracker = None

    def _on_pair(self, image: Image | CompressedImage, camera_info: CameraInfo) -> None:
        self._monitor.matched()
        if self._worker is not None:
            self._worker.put(_Input(image, camera_info, time.monotonic()))

    def _work(self, item: _Input) -> None:
        """One frame, in the worker thread: whatever is wrong with it, the next may be right."""
        try:
            with self._lock:
                self._process(item)
        except LgcError as error:
            if self._monitor.fault(str(error)):
                self.get_logger().error(str(error))
        except Exception as error:
            if self._monitor.fault(f"unexpected {type(error).__name__}: {error}"):
                self.get_logger().error(traceback.format_exc())

    def _process(self, item: _Input) -> None:
        tracker, resets = self._tracker, self._tracker.resets
        tracked = tracker.track(item.image, item.camera_info)
        if tracker.resets != resets:
            self._outputs.forget()
        if tracker.has_begun:
            header = item.image.header
            self._outputs.publish_views(header, tracked, tracker.odometry.map.keyframes)
            T_bc = self._mounting.T_bc(header.frame_id)
            self._outputs.publish_motion(header, tracked, T_bc, self._settings)
        self._monitor.processed(tracked.state, 1e3 * (time.monotonic() - item.arrived_s))

    def _on_reset(self, request: Empty.Request, response: Empty.Response) -> Empty.Response:
        with self._lock:
            if self._tracker is not None:
                self._tracker.reset("reset as asked for")
                self._outputs.forget()
        return response

    def _check_parameters(self, changes: Sequence[Parameter]) -> SetParametersResult:
        try:
            after = read_parameters(self, changes)
            if after.odometry != self._settings.odometry:
                Tracker(after.odometry, after.rectified, self.get_logger())
        except LgcError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _apply_parameters(self, changes: Sequence[Parameter]) -> None:
        before, after = self._settings, read_parameters(self)
        with self._lock:
            self._settings = after
            if self._tracker is None:
                return
            if before.odometry != after.odometry:
                self._tracker = Tracker(after.odometry, after.rectified, self.get_logger())
                self._tracker.reset("settings of odometry have changed")
                self._outputs.forget()
            if before.base_frame != after.base_frame or not _same(before.T_bc, after.T_bc):
                self._mounting.close()
                self._mounting = Mounting(self, after.base_frame, after.T_bc)

    def _on_tick(self) -> None:
        name = f"{self.get_fully_qualified_name().lstrip('/')}: odometry"
        if self._worker is None:
            status = DiagnosticStatus(
                name=name, level=DiagnosticStatus.WARN, message=self._idle, hardware_id=NAME
            )
        else:
            device = self._settings.odometry.device
            status = self._monitor.status(name, device, self._worker.dropped)
            self._log_silence(self._monitor.why_no_output())
        message = DiagnosticArray(status=[status])
        message.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(message)

    def _log_silence(self, why: str) -> None:
        """Say once why there is no output, when it was so for two ticks; starting takes one."""
        if why and why == self._why != self._logged:
            self.get_logger().warning(why)
            self._logged = why
        self._why = why


def _same(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    return a is b or (a is not None and b is not None and np.array_equal(a, b))


def main(args: Sequence[str] | None = None) -> int:
    """Run the node until a signal ends it.

    Signals only set a flag: `ros2 launch` sends a second one, which must not disturb the end.
    """
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = OdometryNode()
    except (ConfigError, InvalidParameterTypeException, InvalidParameterValueException) as error:
        rclpy.logging.get_logger(NAME).fatal(str(error))
        rclpy.try_shutdown()
        return 1
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    while not stopping.is_set():
        executor.spin_once(timeout_sec=0.2)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    node.stop()
    executor.shutdown()
    node.destroy_node()
    rclpy.try_shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A running odometry node in the Rerun viewer, from its topics, for people without RViz."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from nav_msgs.msg import Odometry
from rcl_interfaces.srv import GetParameters
from sensor_msgs.msg import Image
from visualization_msgs.msg import Marker, MarkerArray

from lgc_ros.errors import ConfigError, ImageError
from lgc_ros.images.encoding import image_from_message
from lgc_ros.images.stamps import stamp_ns
from lgc_ros.odometry.state import OK, STATUSES, TRACKED
from lgc_ros.ros.markers import REJECTED_NAMESPACE
from lgc_ros.ros.messages import pose_matrix
from lgc_ros.ros.mounting import Mounting
from lgc_ros.ros.node_parameters import NodeParameters
from lgc_ros.ros.qos import input_qos
from lgc_ros.ros.session import POLL_S, SILENT_S, Session, session
from lgc_ros.visualization.viewer_parts import (
    StatusLog,
    TimeLine,
    Trail,
    encoded_image,
    log_numbers,
)

if TYPE_CHECKING:
    from builtin_interfaces.msg import Time
    from rerun import RecordingStream

log = logging.getLogger(__name__)

IMAGE = "image"
CAMERA = "world/base/camera"
COUNTS = ("keypoints", "matches", "kept", "inliers", "landmarks", "dropped")
MILLISECONDS = "_ms"


def view_node(recording: RecordingStream, name: str) -> None:
    """Log the topics of a node until Ctrl-C."""
    with session("lgc_view") as ros:
        viewer = NodeViewer(ros, recording, name)
        if not ros.spin_until(viewer.is_connected, time.monotonic() + SILENT_S):
            log.warning("waiting for the node %s: start it, or give its name with --name", name)
        if ros.spin_until(viewer.is_connected):
            log.info("connected to %s", name)
        while not ros.stopping.is_set():
            ros.spin_for(POLL_S)


class NodeViewer:
    """Subscribes to the outputs of a node and logs them as they come.

    Landmarks and keyframes come in the camera frame. They are shown where the camera is on the
    robot, known from TF or from the node's parameter base_to_camera, and left out otherwise.
    """

    def __init__(self, ros: Session, recording: RecordingStream, name: str) -> None:
        import rerun

        self._rr = rerun
        self._ros, self._recording = ros, recording
        self._time = TimeLine(recording)
        self._trail = Trail(recording, "world/trajectory")
        self._status = StatusLog(recording)
        self._last = OK
        self._mounting: Mounting | None = None
        self._mounted: str | None = None
        self._asked = False  # for base_to_camera
        self._base_frame = ""
        self._name = ros.topic_name(name)
        self._parameters = ros.node.create_client(GetParameters, f"{self._name}/get_parameters")
        for kind, topic, on_message in (
            (Odometry, f"{self._name}/odometry", self._on_odometry),
            (Image, f"{self._name}/matches_image", self._on_image),
            (MarkerArray, f"{self._name}/inliers", self._on_markers),
            (DiagnosticArray, "/diagnostics", self._on_diagnostics),
        ):
            ros.node.create_subscription(kind, topic, on_message, input_qos(10))
        recording.log("world", rerun.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)

    def is_connected(self) -> bool:
        """Whether the node publishes its odometry."""
        return self._ros.node.count_publishers(f"{self._name}/odometry") > 0

    def _set_time(self, stamp: Time) -> None:
        self._time.set(stamp_ns(stamp))

    def _on_odometry(self, message: Odometry) -> None:
        self._set_time(message.header.stamp)
        self._base_frame = message.child_frame_id
        T_ob = pose_matrix(message.pose.pose)
        pose = self._rr.Transform3D(translation=T_ob[:3, 3], mat3x3=T_ob[:3, :3])
        self._recording.log("world/base", pose, self._rr.TransformAxes3D(0.3))
        self._trail.add(T_ob[:3, 3], self._last if self._last in TRACKED else None)

    def _on_image(self, message: Image) -> None:
        self._set_time(message.header.stamp)
        try:
            self._recording.log(IMAGE, encoded_image(image_from_message(message)))
        except ImageError as error:
            log.warning("%s", error)

    def _on_markers(self, message: MarkerArray) -> None:
        frame = message.markers[0].header.frame_id if message.markers else ""
        if not frame or not self._base_frame or not self._is_mounted(frame):
            return
        self._set_time(message.markers[0].header.stamp)
        for marker in message.markers:
            if marker.ns == REJECTED_NAMESPACE:
                continue  # thousands of opaque lines would hide the map; the image shows them
            points = np.array([(p.x, p.y, p.z) for p in marker.points]).reshape(-1, 3)
            colors = [_rgb(color) for color in marker.colors] or _rgb(marker.color)
            shape = (
                self._rr.Points3D(points, colors=colors, radii=self._rr.Radius.ui_points(2.5))
                if marker.type == Marker.POINTS
                else self._rr.LineStrips3D(points.reshape(-1, 2, 3), colors=colors)
            )
            self._recording.log(f"{CAMERA}/{marker.ns}", shape)

    def _is_mounted(self, frame: str) -> bool:
        """Whether the pose of the camera on the robot is known; it is logged once."""
        if self._mounted == frame:
            return True
        if self._mounting is None:
            self._mounting = Mounting(self._ros.node, self._base_frame, None)
        if not self._asked and self._parameters.service_is_ready():
            self._asked = True
            self._ask_for_mounting(self._mounting)
        try:
            T_bc = self._mounting.T_bc(frame)
        except ConfigError as error:
            log.debug("no landmarks yet: %s", error)
            return False
        pose = self._rr.Transform3D(translation=T_bc[:3, 3], mat3x3=T_bc[:3, :3])
        self._recording.log(CAMERA, pose, static=True)
        self._mounted = frame
        return True

    def _ask_for_mounting(self, by_tf: Mounting) -> None:
        """Ask the node for its parameter base_to_camera, which replaces TF unless it is empty."""

        def answered(future) -> None:
            response = future.result()
            numbers = response.values[0].double_array_value if response.values else ()
            if len(numbers):
                T_bc = NodeParameters(base_to_camera=tuple(numbers)).T_bc
                by_tf.close()
                self._mounting = Mounting(self._ros.node, self._base_frame, T_bc)

        request = GetParameters.Request(names=["base_to_camera"])
        self._parameters.call_async(request).add_done_callback(answered)

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        """Log the status at the time of the latest image: in a replay, the clock is another."""
        name = f"{self._name.lstrip('/')}: odometry"
        for status in message.status:
            if status.name == name and self._base_frame:
                self._log_diagnostics(status)

    def _log_diagnostics(self, status: DiagnosticStatus) -> None:
        values = {item.key: item.value for item in status.values}
        if values.get("status") in STATUSES:
            self._last = values["status"]
            self._status.add(self._last, status.message, self._last in TRACKED)
        log_numbers(
            self._recording, "counts", {key: float(values[key]) for key in COUNTS if key in values}
        )
        times = {
            key.removesuffix(MILLISECONDS): float(value)
            for key, value in values.items()
            if key.endswith(MILLISECONDS)
        }
        log_numbers(self._recording, "timing", times)


def _rgb(color) -> tuple[float, float, float]:
    return color.r, color.g, color.b

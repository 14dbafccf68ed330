"""A node in its own process, connected to a camera that the tests control."""

import itertools
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import Odometry
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from ros.processes import (
    OPTIONS,
    REPEATABLE,
    image_message,
    info_message,
    stamp,
)
from sensor_msgs.msg import CameraInfo, Image
from std_srvs.srv import Empty
from transforms3d.quaternions import quat2mat

from lgc_ros.ros.node_parameters import default_parameters

# A camera that looks along the robot's x axis, 0.1 m ahead of its base and 0.2 m above.
BASE_TO_CAMERA = [0.1, 0.0, 0.2, -0.5, 0.5, -0.5, 0.5]
T_BC = np.array([[0, 0, 1, 0.1], [-1, 0, 0, 0], [0, -1, 0, 0.2], [0, 0, 0, 1.0]])
CHANGED = {"base_to_camera": BASE_TO_CAMERA, "path_length": 3}
NODE = "/lgc_odometry"
SECOND_NS = 10**9
HOUR_NS = 3600 * SECOND_NS
ORIGIN = np.eye(4)
QUEUE = 100
RATE_HZ = 5
# Nothing gets lost on the way to the node; one output has another QoS than the others.
OVERRIDES = {
    **{
        f"qos_overrides./{topic}.subscription.{policy}": value
        for topic in ("image", "camera_info")
        for policy, value in (("reliability", "reliable"), ("depth", QUEUE))
    },
    f"qos_overrides.{NODE}/pose.publisher.durability": "transient_local",
}


class ShownCamera:
    """Shows frames to the node, each at its own time, and waits for the answers."""

    def __init__(self, robot, frames):
        self.robot = robot
        self.delay_ns = 0
        self._views = itertools.cycle(frames[:2])
        self.plug_in()
        answers = robot.listen(Odometry, f"{NODE}/odometry")

        def answered():
            self.send_another()
            self.robot.executor.spin_once(timeout_sec=0.5)
            return answers

        robot.spin_until(answered, "the first answer")
        self.show_another()  # answered after all that were sent before

    def plug_in(self):
        self.images = self.robot.speak(Image, "image", QUEUE)
        self.infos = self.robot.speak(CameraInfo, "camera_info", QUEUE)

    def reset(self):
        """The next frame is the origin, and later than any before."""
        self.robot.call(Empty, f"{NODE}/reset")
        self.delay_ns += HOUR_NS

    def connect(self, kind, topic):
        """Messages of a topic, once the node knows that someone listens."""
        messages = self.robot.listen(kind, f"{NODE}/{topic}")

        def arrived():
            self.show_another()
            return messages

        self.robot.spin_until(arrived, topic)
        self.reset()
        return messages

    def later(self, frame):
        return replace(frame, stamp_ns=frame.stamp_ns + self.delay_ns)

    def send(self, frame, spoil=None) -> int:
        """Publish a frame at the time it is now, after something was done to its messages.

        Returns its stamp in nanoseconds.
        """
        frame = self.later(frame)
        image, info = image_message(frame), info_message(frame)
        if spoil is not None:
            spoil(image, info)
        self.infos.publish(info)
        self.images.publish(image)
        return frame.stamp_ns

    def show(self, frame) -> Odometry:
        return heard(self.robot, Odometry, "odometry", self.send(frame))

    def send_another(self, spoil=None) -> int:
        self.delay_ns += SECOND_NS
        return self.send(next(self._views), spoil)

    def show_another(self) -> Odometry:
        self.delay_ns += SECOND_NS
        return self.show(next(self._views))


def heard(robot, kind, topic, stamp_ns):
    """The message of that stamp."""
    messages = robot.listen(kind, f"{NODE}/{topic}")

    def find():
        return next((m for m in messages if m.header.stamp == stamp(stamp_ns)), None)

    return robot.spin_until(find, f"{topic} of {stamp_ns}")


def diagnosis(robot, accept, meanwhile=lambda: None):
    """The next diagnostic status that is accepted; until it comes, something may be done."""
    messages = robot.listen(DiagnosticArray, "/diagnostics")
    messages.clear()

    def find():
        meanwhile()
        return next((s for message in messages for s in message.status if accept(s)), None)

    return robot.spin_until(find, "such a diagnosis")


def fresh_report(robot):
    """A diagnostic status that was made after all that happened before."""
    diagnosis(robot, lambda status: True)
    return diagnosis(robot, lambda status: True)


def says(*parts):
    return lambda status: all(part in status.message for part in parts)


def values(status):
    return {value.key: value.value for value in status.values}


def set_parameter(robot, name, value, node=NODE):
    parameter = Parameter(name, value=value).to_parameter_msg()
    return robot.call(SetParameters, f"{node}/set_parameters", parameters=[parameter]).results[0]


@contextmanager
def changed(robot, **parameters):
    """Other values of parameters (a dot is written __) for as long as it takes."""
    before = default_parameters() | OPTIONS | REPEATABLE | CHANGED
    names = {name: name.replace("__", ".") for name in parameters}
    try:
        for name, value in parameters.items():
            result = set_parameter(robot, names[name], value)
            assert result.successful, result.reason
        yield
    finally:
        for name in reversed(parameters):
            assert set_parameter(robot, names[name], before[names[name]]).successful


def stamp_of(header) -> int:
    return header.stamp.sec * SECOND_NS + header.stamp.nanosec


def matrix(pose):
    T = np.eye(4)
    q, p = pose.orientation, pose.position
    T[:3, :3], T[:3, 3] = quat2mat([q.w, q.x, q.y, q.z]), (p.x, p.y, p.z)
    return T


def is_origin(message):
    return np.allclose(matrix(message.pose.pose), ORIGIN, atol=1e-9)


def distance_m(answers):
    """From the place of the first answer to that of the last."""
    start, end = (matrix(answers[i].pose.pose)[:3, 3] for i in (0, -1))
    return np.linalg.norm(end - start)

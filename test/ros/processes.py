"""A node in its own process, and a robot that talks to it over DDS from the test's process.

Everything waits for what it needs, with a deadline that only a hanging node meets.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import cv2
import numpy as np
import rclpy
from builtin_interfaces.msg import Time
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import QoSProfile
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from lgc_ros.ros.live import free_domain

# Only what hangs meets this, also on a machine with ten times more to do than it has cores.
DEADLINE_S = 400.0
REPEAT_S = 20.0
PATIENCE_S = 30.0
OPTIONS = {"method": "poselib+ratio", "max_keypoints": 500}
REPEATABLE = {"background_mapping": False}
FRAME = "camera_optical"


class Robot:
    """What the node is connected to: publishers of camera topics, subscribers of all the rest."""

    def __init__(self, process, log, context):
        self.process, self._log = process, log
        self.node = rclpy.create_node("robot", context=context)
        self.executor = SingleThreadedExecutor(context=context)
        self.executor.add_node(self.node)
        self._heard = {}
        self._clients = {}

    @property
    def log(self) -> str:
        return self._log.read_text()

    def spin_until(self, done, what="what was waited for"):
        """The first true value of `done()`; fails if the node ends or the deadline passes."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            value = done()
            if value:
                return value
            assert self.process.poll() is None, f"the node ended:\n{self.log}"
            assert time.monotonic() < deadline, f"{what} did not come:\n{self.log}"
            self.executor.spin_once(timeout_sec=0.1)

    def listen(self, kind, topic):
        """The list to which messages of the topic are added, once the node is connected."""
        if topic not in self._heard:
            self._heard[topic] = []
            subscription = self.node.create_subscription(
                kind, topic, self._heard[topic].append, QoSProfile(depth=100)
            )
            self.spin_until(lambda: subscription.get_publisher_count(), f"a publisher of {topic}")
        return self._heard[topic]

    def speak(self, kind, topic, qos=10):
        """A publisher that the node is connected to."""
        publisher = self.node.create_publisher(kind, topic, qos)
        self.spin_until(publisher.get_subscription_count, f"a subscriber of {topic}")
        return publisher

    def call(self, kind, service, **request):
        """The response of a service; asked again if it got lost while both sides connected."""
        if service not in self._clients:
            self._clients[service] = self.node.create_client(kind, service)
        client = self._clients[service]
        self.spin_until(client.service_is_ready, service)
        futures, asked_s = [], float("-inf")

        def responded():
            nonlocal asked_s
            if time.monotonic() - asked_s > REPEAT_S:
                futures.append(client.call_async(kind.Request(**request)))
                asked_s = time.monotonic()
            return next((future for future in futures if future.done()), None)

        return self.spin_until(responded, f"a response of {service}").result()

    def end(self, *signals: int) -> int:
        """The exit code after these signals."""
        for number in signals or (signal.SIGINT,):
            self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)


def environment(domain: int, folder) -> dict[str, str]:
    """Of a process that talks to this domain of this machine only."""
    return os.environ | {
        "ROS_DOMAIN_ID": str(domain),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "OMP_NUM_THREADS": "1",
        "ROS_LOG_DIR": str(folder),
    }


def lgc_command(*words) -> list[str]:
    return [sys.executable, "-c", "from lgc_ros.cli.main import main; main()", *map(str, words)]


def completed(folder, command, domain=None, **variables) -> subprocess.CompletedProcess:
    """Runs a process to its end in a domain, its own if none is given."""
    return subprocess.run(
        command,
        env=environment(domain or free_domain(), folder) | variables,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def end(process: subprocess.Popen) -> None:
    """Ends a process whatever it does; one that is killed would leave its shared memory behind."""
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def running_process(folder, command, domain=None):
    """Starts a process in a domain, its own if none is given, and yields the robot around it."""
    domain = domain or free_domain()
    folder.mkdir(exist_ok=True)
    log = folder / "process.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, env=environment(domain, folder), stdout=output, stderr=subprocess.STDOUT
        )
    context = Context()
    rclpy.init(context=context, domain_id=domain)
    robot = Robot(process, log, context)
    try:
        yield robot
    finally:
        end(process)
        robot.executor.shutdown()
        robot.node.destroy_node()
        context.try_shutdown()


def running_node(folder, *arguments, domain=None, **parameters):
    """Starts the node in a domain of its own, and yields the robot around it."""
    settings = [f"{name}:={value}" for name, value in (OPTIONS | REPEATABLE | parameters).items()]
    command = [sys.executable, "-m", "lgc_ros.ros.odometry_node", "--ros-args"]
    command += [word for setting in settings for word in ("-p", setting)]
    return running_process(folder, [*command, *arguments], domain)


def stamp(stamp_ns: int) -> Time:
    return Time(sec=stamp_ns // 10**9, nanosec=stamp_ns % 10**9)


def image_message(frame, stamp_ns=None) -> Image:
    """The picture of a frame as bgr8."""
    message = Image(height=frame.image.shape[0], width=frame.image.shape[1], encoding="bgr8")
    message.header.frame_id = FRAME
    message.header.stamp = stamp(frame.stamp_ns if stamp_ns is None else stamp_ns)
    message.step = 3 * message.width
    message.data.frombytes(np.ascontiguousarray(frame.image).tobytes())
    return message


def compressed_message(frame, stamp_ns=None, kind="png") -> CompressedImage:
    """The picture of a frame, encoded by OpenCV."""
    message = CompressedImage(header=image_message(frame, stamp_ns).header, format=kind)
    message.data.frombytes(cv2.imencode(f".{kind}", frame.image)[1].tobytes())
    return message


def info_message(frame, stamp_ns=None) -> CameraInfo:
    camera = frame.camera
    message = CameraInfo(width=camera.width, height=camera.height, distortion_model="plumb_bob")
    message.header.frame_id = FRAME
    message.header.stamp = stamp(frame.stamp_ns if stamp_ns is None else stamp_ns)
    message.d = np.zeros(5)
    message.k = camera.K.ravel()
    message.p = np.column_stack([camera.K, np.zeros(3)]).ravel()
    return message

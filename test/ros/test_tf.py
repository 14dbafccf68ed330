"""TF with upstream's tf2: what the node looks up in it, and what it adds to it."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")
pytest.importorskip("tf2_ros", reason="tf2_ros is not installed, and pip has none: no TF here")

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import TransformStamped, Vector3
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from nav_msgs.msg import Odometry
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from rclpy.time import Time
from ros.processes import FRAME, OPTIONS, image_message, info_message, running_node
from sensor_msgs.msg import CameraInfo, Image
from std_srvs.srv import Empty
from tf2_msgs.msg import TFMessage
from tf2_ros import Buffer, StaticTransformBroadcaster, TransformListener

from lgc_ros.geometry.camera import Camera
from lgc_ros.images.stamps import stamp_ns
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.visual_odometry import VisualOdometry
from lgc_ros.ros.messages import matrix_of, quaternion_message
from lgc_ros.sources.synthetic import SyntheticSource

NODE = "/lgc_odometry"
SECOND_NS = 10**9
RELIABLE = {
    f"qos_overrides./{topic}.subscription.reliability": "reliable"
    for topic in ("image", "camera_info")
}
# The camera looks along the robot's x axis from a mast that leans.
T_BASE_MAST = np.array([[0.8, 0, 0.6, 0.1], [0, 1, 0, 0], [-0.6, 0, 0.8, 0.5], [0, 0, 0, 1]])
T_MAST_CAMERA = np.array([[0, 0, 1, 0], [-1, 0, 0, 0.05], [0, -1, 0, 0.2], [0, 0, 0, 1.0]])
T_BC = T_BASE_MAST @ T_MAST_CAMERA


class TfCamera:
    """A camera whose images are answered in TF and with odometry."""

    def __init__(self, robot, frames):
        self.robot, self.frames = robot, frames
        self.images, self.infos = (
            robot.speak(Image, "image"),
            robot.speak(CameraInfo, "camera_info"),
        )
        self.odometry = robot.listen(Odometry, f"{NODE}/odometry")
        self.transforms = robot.listen(TFMessage, "/tf")
        self.tf = Buffer()
        self._listener = TransformListener(self.tf, robot.node)
        self.delay_ns = 0

    def send(self, frame) -> int:
        """The stamp under which the frame was sent."""
        frame = replace(frame, stamp_ns=frame.stamp_ns + self.delay_ns)
        self.infos.publish(info_message(frame))
        self.images.publish(image_message(frame))
        return frame.stamp_ns

    def send_later(self):
        self.delay_ns += 60 * SECOND_NS
        self.send(self.frames[0])

    def show(self, frame) -> Odometry:
        """The answer to a frame."""
        sent_ns = self.send(frame)

        def answer():
            return [m for m in self.odometry if stamp_ns(m.header.stamp) == sent_ns]

        return self.robot.spin_until(answer, "odometry")[0]

    def reset(self):
        """The next frame is the origin, and later than any before."""
        self.robot.call(Empty, f"{NODE}/reset")
        self.delay_ns += 60 * SECOND_NS

    def lookup(self, target, source, time) -> np.ndarray:
        """T_target_source, once TF knows it."""
        self.robot.spin_until(lambda: self.tf.can_transform(target, source, time), "the transform")
        return matrix_of(self.tf.lookup_transform(target, source, time).transform)

    def set(self, **parameters):
        changes = [Parameter(name, value=value) for name, value in parameters.items()]
        request = [change.to_parameter_msg() for change in changes]
        results = self.robot.call(
            SetParameters, f"{NODE}/set_parameters", parameters=request
        ).results
        assert all(result.successful for result in results)


def transform(parent, child, T) -> TransformStamped:
    message = TransformStamped(child_frame_id=child)
    message.header.frame_id = parent
    message.transform.translation = Vector3(**dict(zip("xyz", T[:3, 3], strict=True)))
    message.transform.rotation = quaternion_message(T[:3, :3])
    return message


def pose_of(message) -> np.ndarray:
    """(4, 4) matrix of the pose of an Odometry message."""
    pose = message.pose.pose
    as_transform = TransformStamped().transform
    as_transform.translation = Vector3(x=pose.position.x, y=pose.position.y, z=pose.position.z)
    as_transform.rotation = pose.orientation
    return matrix_of(as_transform)


@pytest.fixture(scope="module")
def frames(walk):
    camera = Camera.from_K([[262.0, 0, 159.5], [0, 262.0, 119.5], [0, 0, 1]], 320, 240)
    return list(SyntheticSource("walk", 4, rate_hz=5.0, camera=camera, world=walk.world))


@pytest.fixture(scope="module")
def silent(tmp_path_factory, frames):
    """A camera without a transform."""
    with running_node(tmp_path_factory.mktemp("tf"), **RELIABLE) as robot:
        yield TfCamera(robot, frames)


@pytest.fixture(scope="module")
def mounted(silent):
    """The camera once TF knows where it is; until then the node names what is missing."""
    robot = silent.robot
    statuses = robot.listen(DiagnosticArray, "/diagnostics")

    def explained():
        silent.send_later()
        robot.executor.spin_once(timeout_sec=0.5)
        last = statuses[-1].status[0].message if statuses else ""
        return f"'{FRAME}'" in last and "'base_link'" in last

    robot.spin_until(explained, "the reason why there is no output")
    assert not silent.odometry
    broadcaster = StaticTransformBroadcaster(robot.node)
    broadcaster.sendTransform(
        [transform("base_link", "mast", T_BASE_MAST), transform("mast", FRAME, T_MAST_CAMERA)]
    )

    def answered():
        silent.send_later()
        robot.executor.spin_once(timeout_sec=0.5)
        return silent.odometry

    robot.spin_until(answered, "the first answer")
    return silent


@pytest.fixture
def camera(mounted):
    mounted.set(publish_tf=True, invert_tf=False)
    mounted.reset()
    return mounted


def test_odometry_uses_the_mounting_from_tf(camera, frames):
    offline = VisualOdometry(OdometryOptions(**OPTIONS))
    for frame in frames:
        T_ob = T_BC @ offline.process(frame).T_wc @ np.linalg.inv(T_BC)
        np.testing.assert_allclose(pose_of(camera.show(frame)), T_ob, atol=1e-6)


def test_tf_and_odometry_have_the_same_pose_and_stamp(camera, frames):
    for frame in frames:
        odometry = camera.show(frame)
        time = Time.from_msg(odometry.header.stamp)
        T_ob = pose_of(odometry)
        np.testing.assert_allclose(camera.lookup("odom", "base_link", time), T_ob, atol=1e-9)
        np.testing.assert_allclose(camera.lookup("odom", FRAME, time), T_ob @ T_BC, atol=1e-9)


def test_tf_is_published_before_the_odometry_of_the_same_image(camera, frames):
    sent_ns = {TFMessage: {}, Odometry: {}}

    def keep(message, info):
        kind = type(message)
        header = (message.transforms[0] if kind is TFMessage else message).header
        sent_ns[kind][stamp_ns(header.stamp)] = info["source_timestamp"]

    subscriptions = [
        camera.robot.node.create_subscription(kind, topic, keep, 10)
        for kind, topic in ((TFMessage, "/tf"), (Odometry, f"{NODE}/odometry"))
    ]

    def of_one_image():
        camera.reset()
        camera.show(frames[0])
        return sent_ns[TFMessage].keys() & sent_ns[Odometry].keys()

    for image_ns in camera.robot.spin_until(of_one_image, "TF and odometry of one image"):
        assert sent_ns[TFMessage][image_ns] < sent_ns[Odometry][image_ns]
    for subscription in subscriptions:
        camera.robot.node.destroy_subscription(subscription)


def test_the_first_image_waits_for_a_late_static_transform(tmp_path, frames):
    """A player that holds images until they are answered would wait in vain for the first."""
    with running_node(tmp_path, **RELIABLE) as robot:
        camera = TfCamera(robot, frames)
        sent_ns = camera.send(frames[0])
        broadcaster = StaticTransformBroadcaster(robot.node)
        broadcaster.sendTransform(transform("base_link", FRAME, T_BC))
        robot.spin_until(lambda: camera.odometry, "the answer to the only image")
        assert stamp_ns(camera.odometry[0].header.stamp) == sent_ns
        assert "ERROR" not in robot.log


def test_a_node_waiting_for_a_transform_stays_responsive_and_shuts_down(tmp_path, frames):
    with running_node(tmp_path, **RELIABLE) as robot:
        camera = TfCamera(robot, frames)
        camera.send(frames[0])
        camera.reset()  # a service, while the worker waits
        camera.send(frames[0])
        assert robot.end() == 0
        assert "Traceback" not in robot.log


def test_invert_tf_publishes_the_inverse_with_the_base_as_parent(camera, frames):
    camera.set(invert_tf=True)
    camera.tf.clear()
    heard = len(camera.transforms)
    T_ob = pose_of(camera.show(frames[0]))
    T_ob = pose_of(camera.show(frames[1]))
    camera.robot.spin_until(lambda: len(camera.transforms) >= heard + 2, "transforms")
    last = camera.transforms[-1].transforms[0]
    assert (last.header.frame_id, last.child_frame_id) == ("base_link", "odom")
    np.testing.assert_allclose(np.linalg.inv(matrix_of(last.transform)), T_ob, atol=1e-9)


def test_without_publish_tf_only_odometry_is_published(camera, frames):
    camera.set(publish_tf=False)
    heard = len(camera.transforms)
    camera.show(frames[0])
    camera.set(publish_tf=True)
    shown = camera.show(frames[1])
    camera.robot.spin_until(lambda: len(camera.transforms) > heard, "a transform")
    first = camera.transforms[heard].transforms[0]
    assert first.header.stamp == shown.header.stamp


def test_an_unconfigured_node_does_not_publish_tf(camera):
    robot = camera.robot

    def trigger(number):
        request = {"transition": Transition(id=number)}
        assert robot.call(ChangeState, f"{NODE}/change_state", **request).success

    trigger(Transition.TRANSITION_DEACTIVATE)
    trigger(Transition.TRANSITION_CLEANUP)
    robot.spin_until(lambda: not robot.node.count_publishers("/tf"), "the end of /tf")
    trigger(Transition.TRANSITION_CONFIGURE)
    trigger(Transition.TRANSITION_ACTIVATE)
    robot.spin_until(lambda: robot.node.count_publishers("/tf") == 1, "one publisher of /tf")

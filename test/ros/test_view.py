"""`lgc view --node`: what the viewer logs of a real node over DDS."""

import signal
import time

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")
pytest.importorskip("rerun", reason="needs the extra `view`")

from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import Odometry
from recordings import points_of, read_recording
from ros.processes import (
    image_message,
    info_message,
    lgc_command,
    running_node,
    running_process,
)
from sensor_msgs.msg import CameraInfo, Image

from lgc_ros.ros.live import free_domain

NODE = "/lgc_odometry"
RATE_HZ = 5.0  # of a camera; a burst of images would be over before the viewer is connected
CONNECTED_S = 3.0  # until the viewer receives what it has discovered
POSITION = [0.1, 0.0, 0.2]
MOUNTING = "[0.1, 0.0, 0.2, -0.5, 0.5, -0.5, 0.5]"
# No image gets lost on the way to the node.
RELIABLE = {
    f"qos_overrides./{topic}.subscription.reliability": "reliable"
    for topic in ("image", "camera_info")
}


def test_a_node_is_shown_with_its_pose_picture_landmarks_and_status(tmp_path, short_walk):
    domain, saved = free_domain(), tmp_path / "node.rrd"
    viewer = lgc_command("view", "--node", "--save", saved)
    settings = RELIABLE | {"base_to_camera": MOUNTING}
    with (
        running_node(tmp_path / "node", domain=domain, **settings) as robot,
        running_process(tmp_path / "view", viewer, domain) as watching,
    ):
        images, infos = robot.speak(Image, "image"), robot.speak(CameraInfo, "camera_info")
        poses = robot.listen(Odometry, f"{NODE}/odometry")
        reports = robot.listen(DiagnosticArray, "/diagnostics")
        for topic in ("odometry", "inliers", "matches_image"):
            robot.spin_until(
                lambda topic=topic: robot.node.count_subscribers(f"{NODE}/{topic}"), topic
            )
        connected_s = time.monotonic() + CONNECTED_S
        robot.spin_until(lambda: time.monotonic() > connected_s)
        for count, frame in enumerate(short_walk, 1):
            next_s = time.monotonic() + 1 / RATE_HZ
            infos.publish(info_message(frame))
            images.publish(image_message(frame))
            robot.spin_until(
                lambda count=count, next_s=next_s: (
                    len(poses) >= count and time.monotonic() > next_s
                ),
                "an answer",
            )
        heard = len(reports)
        robot.spin_until(lambda: len(reports) > heard + 1, "a report of these frames")
        assert watching.end(signal.SIGINT) == 0, watching.log
    logged = read_recording(saved)
    rows = logged["/world/base"]
    assert len(rows) >= len(poses) / 2  # best effort, as for sensor data
    sent = [(p.x, p.y, p.z) for p in (pose.pose.pose.position for pose in poses)]
    shown = points_of(rows[-1][1], "Transform3D:translation")[0]
    assert np.linalg.norm(np.array(sent) - shown, axis=1).min() < 1e-5
    (mounting,) = logged["/world/base/camera"]
    np.testing.assert_allclose(points_of(mounting[1], "Transform3D:translation")[0], POSITION)
    assert len(points_of(logged["/world/base/camera/inliers"][-1][1], "Points3D:positions"))
    assert "/world/base/camera/rejected" not in logged  # they would hide everything else
    assert logged["/image"]
    reported = {item.key: item.value for item in reports[-1].status[0].values}
    assert logged["/status"][-1][1]["StateChange:state"] == [reported["status"]]
    assert logged.keys() >= {"/timing/latency", "/counts/inliers", "/world/trajectory/00000"}

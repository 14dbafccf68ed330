"""A robot that waits: minutes of the same view cost neither the pose nor memory."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from ros.campaign.harness import bench, reliable
from ros.campaign.sender import CampaignCamera, checked
from ros.campaign.summary import SUMMARY, scaled

from lgc_ros.ros.messages import pose_matrix

pytestmark = pytest.mark.campaign

IMAGES = 9000  # five minutes of a camera with 30 images per second
INTERVAL_NS = 33_333_333
NOISE = 4.0  # gray levels
# In units of the first baseline, which is the step between two views, and in radians.
HELD_POSITION, HELD_ROTATION = 0.02, 0.002
SEED = 20180618


def noisy_copies(view, count=20):
    """The same view with other sensor noise."""
    rng = np.random.default_rng(SEED)
    grains = (NOISE * rng.standard_normal(view.image.shape) for _ in range(count))
    return [
        replace(view, image=np.clip(view.image + grain, 0, 255).astype(np.uint8))
        for grain in grains
    ]


def keyframes_of(watching):
    """Number of keyframes in the map, from a new report."""
    watching.reports.clear()
    watching.spin_until(lambda: watching.reports, "diagnostics")
    values = {item.key: item.value for item in watching.reports[-1].values}
    return int(values["keyframes"])


def test_minutes_of_standstill_change_neither_pose_nor_map(views, tmp_path):
    images = scaled(IMAGES, at_least=90)
    with SUMMARY.phase("standstill") as row, bench(tmp_path, row) as watching:
        watching.start_node(**reliable("image", "camera_info"))
        camera = CampaignCamera(watching, views)
        with checked(watching, camera):
            copies = noisy_copies(camera.next_view())

            def wait(number):
                """The answer to one more image of the view."""

                def send():
                    camera.now_ns += INTERVAL_NS
                    view = replace(copies[number % len(copies)], stamp_ns=camera.now_ns)
                    camera.publish(*camera.pair(view))
                    return camera.now_ns

                return camera.show_good(send)

            arrived, keyframes = pose_matrix(wait(0).pose.pose), keyframes_of(watching)
            answers = [wait(number) for number in range(1, images)]
            moved = np.linalg.inv(arrived) @ [pose_matrix(a.pose.pose) for a in answers]
            row.good = images
            assert np.linalg.norm(moved[:, :3, 3], axis=1).max() < HELD_POSITION
            cosines = (np.trace(moved[:, :3, :3], axis1=1, axis2=2) - 1) / 2
            assert np.arccos(np.clip(cosines, -1, 1)).max() < HELD_ROTATION
            assert keyframes_of(watching) <= keyframes + 1

"""Settings and frames of a short odometry run, shared by the tests that need one."""

from lgc_ros.geometry.camera import Camera
from lgc_ros.odometry.options import OdometryOptions

CAMERA = Camera.from_K([[262.5, 0, 159.5], [0, 262.5, 119.5], [0, 0, 1]], 320, 240)
OPTIONS = OdometryOptions(method="poselib+ratio", max_keypoints=500, max_iterations=100)
SETTINGS = ["--set", "max_keypoints=500", "--set", "max_iterations=100"]
RESULTS = {
    "trajectory_tum.txt",
    "trajectory_kitti.txt",
    "states.csv",
    "timing.csv",
    "trajectory.png",
    "config.yaml",
    "metrics.json",
    "map.ply",
}


class Frames(list):
    """Frames in memory, with the name that a source has."""

    name = "walk"

"""Help text of `odometry_node --help`."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence

from lgc_ros.ros.node_parameters import default_parameters, describe_parameters

HELP_WORDS = ("-h", "--help")
MAIN_PARAMETERS = (
    "profile",
    "method",
    "tracking",
    "max_keypoints",
    "scale.source",
    "base_frame",
    "base_to_camera",
    "odom_frame",
    "publish_tf",
    "image_transport",
    "rectified",
    "approximate_sync",
    "sync_slop_s",
    "pipelined",
    "autostart",
)
HELP = """\
usage: odometry_node [--help] [--ros-args ...]

Visual odometry of one calibrated camera, as a managed (lifecycle) node that activates itself.

Subscribes to:
  image              sensor_msgs/Image (image/compressed with image_transport:=compressed)
  camera_info        sensor_msgs/CameraInfo, with the stamps of the images
  odom, depth        nav_msgs/Odometry, sensor_msgs/Image: metric scale (scale.source)
Publishes:
  ~/odometry, ~/pose, ~/relative_pose, ~/path    the motion of base_frame
  ~/inliers, ~/matches_image                     views for RViz, only while subscribed to
  /diagnostics                                   why there is no output, and what to do about it
  /tf                                            odom_frame -> base_frame (needs tf2_ros)
Services:
  ~/reset            std_srvs/Empty: re-initialize, the next frame is the origin

Main parameters (-p NAME:=VALUE; config/odometry.yaml lists all of them):
{parameters}

Examples:
  odometry_node --ros-args -r image:=/camera/image_raw -r camera_info:=/camera/camera_info \\
      -p base_frame:=camera_optical_frame
  odometry_node --ros-args --params-file odometry.yaml -p profile:=fast
  odometry_node --ros-args -p scale.source:=odom -r odom:=/wheel_odometry
"""


def wants_help(args: Sequence[str] | None) -> bool:
    return any(word in HELP_WORDS for word in (sys.argv[1:] if args is None else args))


def help_text() -> str:
    """Usage, topics, main parameters with their defaults, and examples."""
    descriptions, defaults = describe_parameters(), default_parameters()
    lines = []
    for name in MAIN_PARAMETERS:
        description, default = descriptions[name], defaults.get(name)
        if default not in (None, ""):
            description += f" (default: {str(default).lower()})"
        lines += textwrap.wrap(
            description, 96, initial_indent=f"  {name:<18} ", subsequent_indent=" " * 21
        )
    return HELP.format(parameters="\n".join(lines))

"""Visual odometry with learned correspondence filtering, for ROS 2 and for plain Python."""

__version__ = "0.1.0"

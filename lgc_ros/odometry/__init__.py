"""Visual odometry: frames in, poses with covariance and status out; no files, no ROS."""

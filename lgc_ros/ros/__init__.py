"""The thin coat of ROS 2 around the library: nothing outside this folder knows rclpy."""

"""ROS 2 interface of the library; nothing outside this package imports rclpy.

`odometry_node` is the node; `message_odometry` feeds its images to visual odometry, `inputs` and
`outputs` are its topics, `node_parameters` and `parameters` its parameters, `diagnostics` explains
missing output. `bags` plays and records, `live` runs a bag through the node, `demo` reports on it.
`compat` hides whether cv_bridge, message_filters and tf2_ros are installed.
"""

"""Bags over ROS without the rosbag2 tools, which pip lacks.

`player` publishes a bag (`play`, `PlayOptions`), in step with a node if `answers` are awaited.
`recorder` writes topics to a bag (`record`, `RecordOptions`, `Recorder`), and `topics` handles
message types and QoS of any topic.
"""

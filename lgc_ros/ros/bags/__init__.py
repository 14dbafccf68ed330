"""Bags over ROS without the rosbag2 tools, which pip lacks.

`player` publishes a bag (`play`, `PlayOptions`), `recorder` writes topics to one (`record`,
`RecordOptions`, `Recorder`), and `topics` handles message types and QoS of any topic.
"""

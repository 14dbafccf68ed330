"""Bags over ROS: play, record, and topics of any type."""

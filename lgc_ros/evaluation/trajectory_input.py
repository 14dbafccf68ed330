"""Trajectories to be evaluated: files and topics of bags."""

from __future__ import annotations

from pathlib import Path

from lgc_ros.geometry.trajectory import Trajectory
from lgc_ros.sources.bag_poses import read_poses
from lgc_ros.sources.trajectory import read_trajectory_file


def load_trajectory(where: str | Path) -> Trajectory:
    """Read a TUM or KITTI trajectory file, or the poses of a topic given as `BAG:/TOPIC`."""
    bag, colon, topic = str(where).rpartition(":/")
    return read_poses(bag, f"/{topic}") if colon else read_trajectory_file(where)

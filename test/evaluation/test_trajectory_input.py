"""Trajectories from files and bag topics."""

import numpy as np
import pytest
from sequences import winding_trajectory

from lgc_ros.errors import SourceError
from lgc_ros.evaluation.trajectory_input import load_trajectory
from lgc_ros.images.frame import Frame


def test_poses_are_read_from_bag_topics(tmp_path):
    pytest.importorskip("rosbags", reason="rosbags is not installed: no bags")
    from lgc_ros.sources.bag_writer import write_bag

    trajectory, image = winding_trajectory(5), np.zeros((4, 4), np.uint8)
    poses = zip(trajectory.stamps_ns.tolist(), trajectory.T_wc, strict=True)
    write_bag([Frame(i, s, image, None, T) for i, (s, T) in enumerate(poses)], tmp_path / "bag")
    back = load_trajectory(f"{tmp_path}/bag:/ground_truth")
    np.testing.assert_array_equal(back.stamps_ns, trajectory.stamps_ns)
    np.testing.assert_allclose(back.T_wc, trajectory.T_wc, atol=1e-12)
    with pytest.raises(SourceError, match="/ground_truth"):
        load_trajectory(f"{tmp_path}/bag:/odometry")

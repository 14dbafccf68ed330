"""A moving camera on a robot, shared by the tests of the node's parts."""

from dataclasses import replace

import numpy as np
from transforms3d.euler import euler2mat

from lgc_ros.odometry.state import OdometryState


def rigid(angles, position):
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = euler2mat(*angles), position
    return T


T_BC = rigid((-1.5, 0.1, -1.6), (0.3, -0.1, 0.5))
T_WC = rigid((0.2, -0.4, 0.3), (1.0, 2.0, -0.5))
RNG = np.random.default_rng(0)


def state(T_wc=T_WC, **changes):
    points = RNG.uniform((-1, -1, 2), (1, 1, 4), (50, 3))
    made = OdometryState(10**9, "ok", "", T_wc, np.eye(6), np.zeros(6), points_cam=points)
    return replace(made, **changes)

"""Distinguishable frames and a trajectory, shared by the tests of sources and evaluation."""

import numpy as np
from transforms3d.axangles import axangle2mat
from transforms3d.euler import euler2mat

from lgc_ros.geometry.trajectory import Trajectory

START_NS = 1_403_636_579_763_555_584  # a float would round it
STEP_NS = 50_000_001


def picture(i):
    """BGR, 64x48, mostly of gray level 20 i."""
    image = np.full((48, 64, 3), 20 * i, np.uint8)
    image[:, :8] = 255 - 20 * i
    return image


def pose(i):
    """A smooth T_wc."""
    T_wc = np.eye(4)
    T_wc[:3, :3] = euler2mat(0.03 * i, -0.05 * i, 0.1 * i)
    T_wc[:3, 3] = 0.2 * i, 0.1, -0.05 * i
    return T_wc


def winding_trajectory(count=60, step_m=0.3):
    """A winding path at 10 Hz whose stamps do not fit into a float64 of seconds."""
    T_wc = np.tile(np.eye(4), (count, 1, 1))
    for i in range(count):
        T_wc[i, :3, :3] = axangle2mat([0.2, 1, 0.1], 0.05 * i)
        T_wc[i, :3, 3] = step_m * i, np.sin(0.2 * i), 0.3 * np.cos(0.13 * i)
    return Trajectory(START_NS + 100_000_001 * np.arange(count), T_wc)


def pixel_grid(camera):
    """Coordinates (H * W, 2) of all pixel centers, row by row."""
    width, height = camera.size
    return np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1).reshape(-1, 2) * 1.0

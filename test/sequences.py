"""Frames that can be told apart, for the tests of sources."""

import numpy as np
from transforms3d.euler import euler2mat

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

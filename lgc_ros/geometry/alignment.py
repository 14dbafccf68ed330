"""Two trajectories of the same camera in worlds that differ in origin, orientation and scale."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lgc_ros.geometry.trajectory import Trajectory

# Of the orientations beside the positions: enough to decide what these leave open.
ROTATION_WEIGHT = 1e-9


class Similarity(NamedTuple):
    """Maps points: X_a = scale R X_b + t."""

    scale: float
    R: np.ndarray  # (3, 3)
    t: np.ndarray  # (3,)

    def __call__(self, points: np.ndarray) -> np.ndarray:
        return self.scale * points @ self.R.T + self.t

    def of_poses(self, T_b: np.ndarray) -> np.ndarray:
        """Poses (N, 4, 4) camera to world b, as poses camera to world a."""
        T_a = T_b.copy()
        T_a[:, :3, :3] = self.R @ T_b[:, :3, :3]
        T_a[:, :3, 3] = self(T_b[:, :3, 3])
        return T_a


def align_poses(T_b: np.ndarray, T_a: np.ndarray) -> Similarity:
    """The similarity that maps poses (N, 4, 4) of world b onto those of world a.

    The rotation is the mean of the rotations between single poses, so that it is known even if the
    camera moved along a straight line; scale and translation are least squares of the positions.
    """
    return _least_squares(_nearest_rotation(_rotations(T_b, T_a)), T_b, T_a)


def align_straight_paths(T_b: np.ndarray, T_a: np.ndarray, with_scale: bool = True) -> Similarity:
    """The similarity that brings positions of world b closest to those of world a.

    Positions along a straight line leave the rotation about the line open; it is that of the
    orientations. Without `with_scale` the scale is 1.
    """
    b, a = (T[:, :3, 3] - T[:, :3, 3].mean(axis=0) for T in (T_b, T_a))
    by_positions, by_rotations = a.T @ b, _rotations(T_b, T_a)
    weight = ROTATION_WEIGHT * np.linalg.norm(by_positions) / np.linalg.norm(by_rotations)
    R = _nearest_rotation(by_positions + weight * by_rotations)
    return _least_squares(R, T_b, T_a, with_scale)


def _rotations(T_b: np.ndarray, T_a: np.ndarray) -> np.ndarray:
    """Sum of the rotations from world b to world a of single poses."""
    return (T_a[:, :3, :3] @ T_b[:, :3, :3].swapaxes(1, 2)).sum(axis=0)


def _nearest_rotation(M: np.ndarray) -> np.ndarray:
    U, _, Vt = np.linalg.svd(M)
    return U @ np.diag([1.0, 1.0, np.linalg.det(U @ Vt)]) @ Vt


def _least_squares(
    R: np.ndarray, T_b: np.ndarray, T_a: np.ndarray, with_scale: bool = True
) -> Similarity:
    """Scale and translation that fit the positions, given the rotation between the worlds."""
    b, a = T_b[:, :3, 3] @ R.T, T_a[:, :3, 3]
    spread_b, spread_a = b - b.mean(axis=0), a - a.mean(axis=0)
    squares = float(np.sum(spread_b**2))
    scale = float(np.sum(spread_a * spread_b)) / squares if squares and with_scale else 1.0
    scale = scale if scale > 0 else 1.0
    return Similarity(scale, R, a.mean(axis=0) - scale * b.mean(axis=0))


def align_trajectories(b: Trajectory, a: Trajectory) -> Similarity | None:
    """`align_poses` for the poses with the same stamps; None if there are fewer than two."""
    _, of_b, of_a = np.intersect1d(b.stamps_ns, a.stamps_ns, return_indices=True)
    return align_poses(b.T_wc[of_b], a.T_wc[of_a]) if len(of_a) > 1 else None

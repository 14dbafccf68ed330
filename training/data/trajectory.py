"""Trajectories in TUM's format, `stamp tx ty tz qx qy qz qw`, and poses between their lines."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

import numpy as np
from transforms3d.quaternions import quat2mat

from lgc_ros.errors import DatasetError
from training.data.files import read_lines


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Poses body to world over time: stamps (N,) int64 ns, positions (N, 3), quaternions wxyz."""

    stamps_ns: np.ndarray
    positions: np.ndarray
    quaternions: np.ndarray

    def pose_at(self, stamp_ns: int, max_gap_ns: int) -> np.ndarray | None:
        """Pose (4, 4) between the two nearest ones; None if neither is within `max_gap_ns`."""
        after = int(np.searchsorted(self.stamps_ns, stamp_ns))
        before = max(after - 1, 0)
        after = min(after, len(self.stamps_ns) - 1)
        span = self.stamps_ns[[before, after]]
        if np.abs(span - stamp_ns).min() > max_gap_ns:
            return None
        # Outside of the trajectory the nearest pose is held.
        part = np.clip((stamp_ns - span[0]) / max(span[1] - span[0], 1), 0, 1)
        T_wb = np.eye(4)
        T_wb[:3, 3] = (1 - part) * self.positions[before] + part * self.positions[after]
        T_wb[:3, :3] = quat2mat(_slerp(self.quaternions[before], self.quaternions[after], part))
        return T_wb


def read_trajectory(path: Path) -> Trajectory:
    """Read a TUM file; its lines may come in any order."""
    remedy = "each line must hold: stamp tx ty tz qx qy qz qw"
    rows = []
    for number, line in enumerate(read_lines(path, "give a trajectory in TUM format"), 1):
        tokens = line.replace(",", " ").split()
        try:
            values = [float(token) for token in tokens[1:]]
            rows.append((stamp_to_ns(tokens[0]), *values))
        except (ValueError, InvalidOperation, IndexError) as error:
            raise DatasetError(
                f"{path}, entry {number} is not a pose ({line}): {remedy}."
            ) from error
        if len(values) != 7 or not np.isfinite(values).all() or np.linalg.norm(values[3:]) < 0.5:
            raise DatasetError(f"{path}, entry {number} is not a pose ({line}): {remedy}.")
    if not rows:
        raise DatasetError(f"{path} holds no poses: {remedy}.")
    rows.sort()
    poses = np.array([row[1:] for row in rows])
    quaternions = poses[:, [6, 3, 4, 5]]
    return Trajectory(
        stamps_ns=np.array([row[0] for row in rows], dtype=np.int64),
        positions=poses[:, :3],
        quaternions=quaternions / np.linalg.norm(quaternions, axis=1, keepdims=True),
    )


def stamp_to_ns(text: str) -> int:
    """Seconds as decimal text to nanoseconds, without the rounding of a float."""
    return int(Decimal(text).scaleb(9).to_integral_value())


def _slerp(q0: np.ndarray, q1: np.ndarray, part: float) -> np.ndarray:
    """Quaternion a part of the shorter way from q0 to q1."""
    cosine = float(q0 @ q1)
    if cosine < 0:
        q1, cosine = -q1, -cosine
    angle = np.arccos(min(cosine, 1.0))
    if angle < 1e-9:
        return q0
    return (np.sin((1 - part) * angle) * q0 + np.sin(part * angle) * q1) / np.sin(angle)

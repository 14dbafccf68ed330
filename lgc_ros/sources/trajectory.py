"""Ground truth over time: TUM's format `stamp tx ty tz qx qy qz qw`, and poses between samples."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property
from pathlib import Path

import numpy as np
from transforms3d.quaternions import quat2mat

from lgc_ros.errors import SourceError
from lgc_ros.sources.files import read_lines

log = logging.getLogger(__name__)

# Between samples further apart than this, and than some of their usual intervals, a pose is not
# known: tracking was lost there, it is not just slow.
MAX_GAP_NS = 100_000_000
MAX_GAP_INTERVALS = 3


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Poses body to world: stamps (N,) int64, increasing; positions (N, 3) m; quaternions wxyz."""

    stamps_ns: np.ndarray
    positions: np.ndarray
    quaternions: np.ndarray

    @classmethod
    def from_samples(
        cls, stamps_ns: Sequence[int], positions: np.ndarray, quaternions: np.ndarray, where: str
    ) -> Trajectory:
        """Samples in any order; those without a pose (NaN, zero quaternion) are left out."""
        try:
            stamps_ns = np.array(stamps_ns, np.int64)
        except OverflowError as error:
            raise SourceError(f"{where} holds a stamp that is no time in nanoseconds") from error
        positions = np.array(positions, np.float64).reshape(-1, 3)
        quaternions = np.array(quaternions, np.float64).reshape(-1, 4)
        norms = np.linalg.norm(quaternions, axis=1)
        valid = np.isfinite(positions).all(axis=1) & np.isfinite(norms) & (norms > 0.5)
        if not valid.any():
            raise SourceError(f"{where} holds no pose among {len(stamps_ns)} samples")
        if not valid.all():
            log.warning("%s: %d samples are no poses and left out", where, np.sum(~valid))
        # Of samples with the same stamp the first one counts.
        stamps_ns, first = np.unique(stamps_ns[valid], return_index=True)
        order = np.flatnonzero(valid)[first]
        return cls(stamps_ns, positions[order], quaternions[order] / norms[order, None])

    @cached_property
    def max_gap_ns(self) -> int:
        """Longest time between two samples over which a pose is interpolated."""
        intervals_ns = np.diff(self.stamps_ns)
        usual_ns = float(np.median(intervals_ns)) if len(intervals_ns) else 0.0
        return max(MAX_GAP_NS, round(MAX_GAP_INTERVALS * usual_ns))

    def pose_at(self, stamp_ns: int, max_gap_ns: int | None = None) -> np.ndarray | None:
        """Pose (4, 4) between two samples; None outside of them and in gaps of the recording."""
        after = int(np.searchsorted(self.stamps_ns, stamp_ns))
        if after == len(self.stamps_ns):
            return None
        before = after if self.stamps_ns[after] == stamp_ns else after - 1
        span_ns = int(self.stamps_ns[after] - self.stamps_ns[before])
        if before < 0 or span_ns > (self.max_gap_ns if max_gap_ns is None else max_gap_ns):
            return None
        part = (stamp_ns - int(self.stamps_ns[before])) / span_ns if span_ns else 0.0
        T_wb = np.eye(4)
        T_wb[:3, 3] = (1 - part) * self.positions[before] + part * self.positions[after]
        T_wb[:3, :3] = quat2mat(slerp(self.quaternions[before], self.quaternions[after], part))
        return T_wb


def read_trajectory(path: str | Path) -> Trajectory:
    """Read a TUM file; its lines may come in any order."""
    remedy = "each line must hold: stamp tx ty tz qx qy qz qw"
    stamps_ns, poses = [], []
    for line in read_lines(Path(path), f"give a trajectory in TUM format, {remedy}"):
        try:
            stamp, *numbers = line.replace(",", " ").split()
            stamps_ns.append(parse_stamp(stamp))
            poses.append([float(number) for number in numbers])
            if len(numbers) != 7:
                raise ValueError(f"{len(numbers) + 1} columns")
        except ValueError as error:
            raise SourceError(f"{path}: '{line}' is not a pose ({error}): {remedy}") from error
    poses = np.reshape(poses, (-1, 7))
    return Trajectory.from_samples(stamps_ns, poses[:, :3], poses[:, [6, 3, 4, 5]], str(path))


def parse_stamp(text: str) -> int:
    """Decimal seconds as nanoseconds, without the rounding of a float; ValueError if none."""
    try:
        stamp_ns = Decimal(text).scaleb(9)
        if not abs(stamp_ns) < 2**63:
            raise ValueError
        return int(stamp_ns.to_integral_value())
    except (InvalidOperation, OverflowError, ValueError) as error:
        raise ValueError(f"'{text}' is not a stamp in seconds") from error


def slerp(q0: np.ndarray, q1: np.ndarray, part: float) -> np.ndarray:
    """Unit quaternion a part of the shorter way from q0 to q1."""
    cosine = float(q0 @ q1)
    if cosine < 0:
        q1, cosine = -q1, -cosine
    angle = np.arccos(min(cosine, 1.0))
    if angle < 1e-9:
        return q0
    return (np.sin((1 - part) * angle) * q0 + np.sin(part * angle) * q1) / np.sin(angle)

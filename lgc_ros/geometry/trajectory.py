"""Trajectories: stamped poses with interpolation between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from transforms3d.quaternions import mat2quat, quat2mat

# Poses are interpolated across gaps up to the longer of these two. In longer gaps the tracking
# system lost its target; a low sampling rate alone is not a gap.
MAX_GAP_NS = 100_000_000
MAX_GAP_INTERVALS = 3


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Stamped poses of a camera, or of the body that a source names.

    Attributes:
        stamps_ns: (N,) int64.
        T_wc: (N, 4, 4) poses camera to world, in meters or up to scale.
        quaternions: (N, 4) unit quaternions wxyz as recorded, which `pose_at` interpolates; None
            to derive them from `T_wc`.
        timed: False if the poses come from a file without stamps; `stamps_ns` are then line
            numbers.
    """

    stamps_ns: np.ndarray
    T_wc: np.ndarray
    quaternions: np.ndarray | None = None
    timed: bool = True

    def __len__(self) -> int:
        return len(self.stamps_ns)

    @classmethod
    def from_poses(cls, poses: Iterable[tuple[int, np.ndarray]]) -> Trajectory:
        """Build from pairs of stamp in nanoseconds and 4x4 matrix, in the given order."""
        stamps_ns, matrices = [], []
        for stamp_ns, T_wc in poses:
            stamps_ns.append(stamp_ns)
            matrices.append(T_wc)
        return cls(np.array(stamps_ns, np.int64), np.reshape(matrices, (-1, 4, 4)).astype(float))

    @property
    def positions(self) -> np.ndarray:
        """Camera centers (N, 3) in the world."""
        return self.T_wc[:, :3, 3]

    @property
    def length_m(self) -> float:
        """Length of the path in the unit of the poses."""
        return float(np.linalg.norm(np.diff(self.positions, axis=0), axis=1).sum())

    @property
    def held(self) -> np.ndarray:
        """(N,) bool: poses equal to the one before, as a node publishes them while it is lost."""
        return np.append(False, (np.diff(self.T_wc, axis=0) == 0).all(axis=(1, 2)))

    def without(self, left_out: np.ndarray) -> Trajectory:
        """The poses that a mask (N,) does not leave out."""
        kept = ~np.asarray(left_out)
        quaternions = None if self.quaternions is None else self.quaternions[kept]
        return replace(
            self, stamps_ns=self.stamps_ns[kept], T_wc=self.T_wc[kept], quaternions=quaternions
        )

    @cached_property
    def max_gap_ns(self) -> int:
        """Maximum time between two samples for interpolation."""
        intervals_ns = np.diff(self.stamps_ns)
        median_ns = float(np.median(intervals_ns)) if len(intervals_ns) else 0.0
        return max(MAX_GAP_NS, round(MAX_GAP_INTERVALS * median_ns))

    def pose_at(self, stamp_ns: int, max_gap_ns: int | None = None) -> np.ndarray | None:
        """Interpolated pose (4, 4); None outside the samples and in gaps of the recording.

        Requires increasing stamps.
        """
        after = int(np.searchsorted(self.stamps_ns, stamp_ns))
        if after == len(self.stamps_ns):
            return None
        before = after if self.stamps_ns[after] == stamp_ns else after - 1
        span_ns = int(self.stamps_ns[after] - self.stamps_ns[before])
        if before < 0 or span_ns > (self.max_gap_ns if max_gap_ns is None else max_gap_ns):
            return None
        fraction = (stamp_ns - int(self.stamps_ns[before])) / span_ns if span_ns else 0.0
        positions, rotations = self.positions, self._rotations
        T_wc = np.eye(4)
        T_wc[:3, 3] = (1 - fraction) * positions[before] + fraction * positions[after]
        T_wc[:3, :3] = quat2mat(slerp(rotations[before], rotations[after], fraction))
        return T_wc

    @cached_property
    def _rotations(self) -> np.ndarray:
        if self.quaternions is not None:
            return self.quaternions
        return np.array([mat2quat(T_wc[:3, :3]) for T_wc in self.T_wc])


def slerp(q0: np.ndarray, q1: np.ndarray, fraction: float) -> np.ndarray:
    """Unit quaternion at a fraction of the shorter arc from q0 to q1."""
    cosine = float(q0 @ q1)
    if cosine < 0:
        q1, cosine = -q1, -cosine
    angle = np.arccos(min(cosine, 1.0))
    if angle < 1e-9:
        return q0
    return (np.sin((1 - fraction) * angle) * q0 + np.sin(fraction * angle) * q1) / np.sin(angle)

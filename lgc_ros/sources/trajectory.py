"""Trajectory files: TUM (`stamp tx ty tz qx qy qz qw`) and KITTI (3x4 matrices, no stamps)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from transforms3d.quaternions import mat2quat, quat2mat

from lgc_ros.errors import SourceError
from lgc_ros.geometry.trajectory import Trajectory
from lgc_ros.runtime.output_files import write_file
from lgc_ros.sources.files import read_lines

log = logging.getLogger(__name__)

TUM_LINE = "stamp tx ty tz qx qy qz qw"
KITTI_COLUMNS = 12


def trajectory_from_samples(
    stamps_ns: Sequence[int], positions: ArrayLike, quaternions: ArrayLike, where: str
) -> Trajectory:
    """Sort samples by stamp and drop invalid ones (NaN, zero quaternion) and repeated stamps.

    Args:
        positions: (N, 3).
        quaternions: (N, 4) wxyz, normalized here.
        where: origin of the samples, for messages.
    """
    try:
        stamps = np.array(stamps_ns, np.int64)
    except OverflowError as error:
        raise SourceError(
            f"{where} contains a stamp that exceeds the range of nanoseconds"
        ) from error
    centers = np.array(positions, np.float64).reshape(-1, 3)
    rotations = np.array(quaternions, np.float64).reshape(-1, 4)
    norms = np.linalg.norm(rotations, axis=1)
    valid = np.isfinite(centers).all(axis=1) & np.isfinite(norms) & (norms > 0.5)
    if not valid.any():
        raise SourceError(f"{where} has no valid pose in {len(stamps)} samples")
    if not valid.all():
        log.warning("%s: ignored %d samples without a valid pose", where, np.sum(~valid))
    # Of several samples with the same stamp, the first is used.
    stamps, first = np.unique(stamps[valid], return_index=True)
    order = np.flatnonzero(valid)[first]
    rotations = rotations[order] / norms[order, None]
    T_wc = np.tile(np.eye(4), (len(order), 1, 1))
    T_wc[:, :3, :3] = [quat2mat(q) for q in rotations]
    T_wc[:, :3, 3] = centers[order]
    return Trajectory(stamps, T_wc, rotations)


def read_trajectory(path: str | Path) -> Trajectory:
    """Read a TUM file; its lines may be in any order."""
    remedy = f"each line must contain: {TUM_LINE}"
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
    columns = np.reshape(poses, (-1, 7))
    return trajectory_from_samples(stamps_ns, columns[:, :3], columns[:, [6, 3, 4, 5]], str(path))


def read_trajectory_file(path: str | Path) -> Trajectory:
    """Read a TUM (8 columns) or KITTI (12 columns) file; the first line decides which."""
    path = Path(path)
    remedy = "give a trajectory in TUM (8 columns) or KITTI (12 columns) format, or BAG:/TOPIC"
    lines = read_lines(path, remedy)
    if not lines:
        raise SourceError(f"{path} contains no poses: {remedy}")
    if len(lines[0].split()) != KITTI_COLUMNS:
        return read_trajectory(path)
    T_wc = read_kitti_poses(lines, path)
    return Trajectory(np.arange(len(T_wc)), T_wc, timed=False)


def read_kitti_poses(lines: Sequence[str], path: Path) -> np.ndarray:
    """Poses (N, 4, 4) from lines of 3x4 finite numbers."""
    T_wc = np.tile(np.eye(4), (len(lines), 1, 1))
    for number, line in enumerate(lines):
        T_wc[number, :3] = read_matrix(line, path)
    return T_wc


def read_matrix(text: str, path: Path) -> np.ndarray:
    """A 3x4 matrix written row by row; SourceError unless these are 12 finite numbers."""
    try:
        matrix = np.array(text.split(), np.float64).reshape(3, 4)
        if np.isfinite(matrix).all():
            return matrix
    except ValueError:
        pass
    raise SourceError(f"{path}: '{text.strip():.120}' is not 12 finite numbers; correct this line")


def write_trajectory(path: Path, trajectory: Trajectory) -> None:
    """Write a TUM file with stamps in full nanosecond resolution."""
    lines = ["# timestamp tx ty tz qx qy qz qw"]
    for stamp_ns, T_wc in zip(trajectory.stamps_ns.tolist(), trajectory.T_wc, strict=True):
        w, x, y, z = mat2quat(T_wc[:3, :3])
        numbers = (*T_wc[:3, 3], x, y, z, w)
        lines.append(f"{format_stamp(stamp_ns)} " + " ".join(f"{n:.9f}" for n in numbers))
    write_file(path, "\n".join([*lines, ""]))


def write_kitti(path: Path, trajectory: Trajectory) -> None:
    """Write one 3x4 camera-to-world matrix per line, row by row; the format has no stamps."""
    rows = (" ".join(f"{n:.9e}" for n in T_wc[:3].ravel()) for T_wc in trajectory.T_wc)
    write_file(path, "\n".join([*rows, ""]))


def parse_stamp(text: str) -> int:
    """Convert decimal seconds to ns without rounding to float; ValueError if malformed."""
    try:
        stamp_ns = Decimal(text).scaleb(9)
        if not abs(stamp_ns) < 2**63:
            raise ValueError
        return int(stamp_ns.to_integral_value())
    except (InvalidOperation, OverflowError, ValueError) as error:
        raise ValueError(f"'{text}' is not a stamp in seconds") from error


def format_stamp(stamp_ns: int) -> str:
    """Convert nanoseconds to decimal seconds without loss."""
    return f"{stamp_ns // 10**9}.{stamp_ns % 10**9:09d}"

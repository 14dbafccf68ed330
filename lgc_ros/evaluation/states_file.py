"""states.csv of a run: status, pose and counts of every frame."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from transforms3d.quaternions import mat2quat, quat2mat

from lgc_ros.errors import SourceError
from lgc_ros.odometry.state import STATUSES, OdometryState
from lgc_ros.runtime.output_files import write_file

STATES_FILE = "states.csv"
POSITION, QUATERNION = ("x", "y", "z"), ("qx", "qy", "qz", "qw")
SIGMAS = ("sigma_x", "sigma_y", "sigma_z", "sigma_rx", "sigma_ry", "sigma_rz")
COUNTS = ("features", "matches", "kept", "inliers", "landmarks")
COLUMNS = (
    *("stamp_ns", "status", "keyframe", "tracking"),
    *(*POSITION, *QUATERNION, *SIGMAS, *COUNTS, "message"),
)


def write_states(folder: Path, states: Sequence[OdometryState]) -> None:
    """Write one line per frame, without anything that differs between equal runs."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for state in states:
        w, x, y, z = mat2quat(state.T_wc[:3, :3])
        numbers = (*state.T_wc[:3, 3], x, y, z, w, *np.sqrt(np.diag(state.covariance)))
        writer.writerow(
            [
                state.stamp_ns,
                state.status,
                int(state.keyframe),
                state.tracking,
                *(f"{number:.9g}" for number in numbers),
                *(state.counts.get(name, 0) for name in COUNTS),
                state.message,
            ]
        )
    write_file(folder / STATES_FILE, file.getvalue())


def read_states(folder: Path) -> list[OdometryState]:
    """The states of a run, without matches, landmarks, velocities and times."""
    path = folder / STATES_FILE
    try:
        with path.open(newline="", encoding="utf-8") as file:
            states = [_state(row) for row in csv.DictReader(file)]
    except FileNotFoundError as error:
        raise SourceError(
            f"{folder} holds no results of `lgc run`: {STATES_FILE} is missing; give the folder "
            "that `lgc run` wrote, such as results/latest"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{path} is damaged ({error!r:.200}): repeat the run") from error
    if not states:
        raise SourceError(f"{path} has no frames: repeat the run")
    return states


def _state(row: dict[str, str]) -> OdometryState:
    T_wc = np.eye(4)
    x, y, z, w = (float(row[name]) for name in QUATERNION)
    T_wc[:3, :3] = quat2mat([w, x, y, z])
    T_wc[:3, 3] = [float(row[name]) for name in POSITION]
    if row["status"] not in STATUSES or not np.isfinite(T_wc).all():
        raise ValueError(f"status {row['status']!r:.40} at {row['stamp_ns']!r:.40}")
    return OdometryState(
        int(row["stamp_ns"]),
        row["status"],
        row["message"],
        T_wc,
        np.diag(np.square([float(row[name]) for name in SIGMAS])),
        np.zeros(6),
        keyframe=row["keyframe"] == "1",
        counts={name: int(row[name]) for name in COUNTS},
    )

"""states.csv and timing.csv of a run: status, pose, counts and times of every frame."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from transforms3d.quaternions import mat2quat, quat2mat

from lgc_ros.errors import SourceError
from lgc_ros.odometry.state import STATUSES, OdometryState
from lgc_ros.runtime.output_files import write_file

STATES_FILE, TIMING_FILE = "states.csv", "timing.csv"
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


def write_timing(folder: Path, states: Sequence[OdometryState]) -> None:
    """Write the milliseconds of each stage by frame; empty where a stage was not run."""
    stages = list(dict.fromkeys(stage for state in states for stage in state.ms))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["stamp_ns", *(f"{stage}_ms" for stage in stages)])
    for state in states:
        times = (f"{state.ms[stage]:.3f}" if stage in state.ms else "" for stage in stages)
        writer.writerow([state.stamp_ns, *times])
    write_file(folder / TIMING_FILE, file.getvalue())


def read_states(folder: Path) -> list[OdometryState]:
    """The states of a run, without matches, landmarks and velocities; with times if it has any."""
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
    times = _read_times(folder / TIMING_FILE)
    return [replace(state, ms=times.get(state.stamp_ns, {})) for state in states]


def _read_times(path: Path) -> dict[int, dict[str, float]]:
    """Milliseconds by stage, by stamp; none if there is no such file, as of older runs."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return {
                int(row.pop("stamp_ns")): {
                    stage.removesuffix("_ms"): float(ms) for stage, ms in row.items() if ms
                }
                for row in csv.DictReader(file)
            }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{path} is damaged ({error!r:.200}): remove it") from error


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

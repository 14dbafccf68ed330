"""Read back what `lgc run` wrote: the state of every frame, and the source it came from."""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from transforms3d.quaternions import quat2mat

from lgc_ros.errors import LgcError, SourceError
from lgc_ros.estimation.methods import METHODS
from lgc_ros.images.frame import Frame
from lgc_ros.odometry.state import STATUSES, OdometryState
from lgc_ros.runtime.safe_yaml import YamlError, read_yaml
from lgc_ros.sources import Source, open_source

log = logging.getLogger(__name__)

COUNTS = ("features", "matches", "kept", "inliers", "landmarks")
STATES, TIMING = "states.csv", "timing.csv"


def method_folders(folder: Path) -> dict[str, Path]:
    """The folders of a run by method; if it has one method only, the folder itself by its name."""
    folders = {name: folder / name for name in METHODS}
    compared = {name: path for name, path in folders.items() if (path / STATES).is_file()}
    return {folder.name: folder} if (folder / STATES).is_file() or not compared else compared


def read_states(folder: Path) -> list[OdometryState]:
    """The states of a run, without matches and landmarks, and without times if it has none."""
    path = folder / STATES
    try:
        with path.open(newline="", encoding="utf-8") as file:
            states = [_state(row) for row in csv.DictReader(file)]
    except FileNotFoundError as error:
        raise SourceError(
            f"{folder} holds no results of `lgc run`: states.csv is missing; give the folder that "
            "`lgc run` wrote, such as results/latest"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{path} is damaged ({error!r:.200}): repeat the run") from error
    if not states:
        raise SourceError(f"{path} has no frames: repeat the run")
    times = _read_times(folder / TIMING)
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
    x, y, z, w = (float(row[name]) for name in ("qx", "qy", "qz", "qw"))
    T_wc[:3, :3] = quat2mat([w, x, y, z])
    T_wc[:3, 3] = [float(row[name]) for name in "xyz"]
    if row["status"] not in STATUSES or not np.isfinite(T_wc).all():
        raise ValueError(f"status {row['status']!r:.40} at {row['stamp_ns']!r:.40}")
    sigmas = ("sigma_x", "sigma_y", "sigma_z", "sigma_rx", "sigma_ry", "sigma_rz")
    return OdometryState(
        int(row["stamp_ns"]),
        row["status"],
        row["message"],
        T_wc,
        np.diag(np.square([float(row[name]) for name in sigmas])),
        np.zeros(6),
        keyframe=row["keyframe"] == "1",
        counts={name: int(row[name]) for name in COUNTS},
    )


def reopen_source(folder: Path) -> Source:
    """The source of a run, opened as config.yaml records it."""
    path = folder / "config.yaml"
    try:
        recipe = read_yaml(path)
        chosen = {name: recipe[name] for name in ("every", "limit", "gt")}
        further = {name: recipe.get(name) for name in ("kind", "image_topic")}
        rate_hz = recipe.get("fps")
        return open_source(
            recipe["source"], recipe["camera"], rate_hz=rate_hz, **chosen, **further
        )
    except (OSError, YamlError, KeyError, TypeError) as error:
        raise SourceError(
            f"{path} does not name the source of the run ({error!r:.200})"
        ) from error


def frames_of_run(folder: Path, states: list[OdometryState]) -> Iterator[Frame | None]:
    """The frame of each state, by its stamp; None where there is none, or without the source."""
    try:
        frames = iter(reopen_source(folder))
        frame = next(frames, None)
    except LgcError as error:
        log.warning("no images: %s", error)
        frames, frame = iter(()), None
    for state in states:
        while frame is not None and frame.stamp_ns < state.stamp_ns:
            frame = next(frames, None)
        yield frame if frame is not None and frame.stamp_ns == state.stamp_ns else None

"""The folder of results that a run leaves behind."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import yaml

import lgc_ros
from lgc_ros.errors import LgcError
from lgc_ros.estimation.methods import METHODS
from lgc_ros.evaluation.runner import Run
from lgc_ros.evaluation.states_file import STATES_FILE, TIMING_FILE, write_states, write_timing
from lgc_ros.geometry.trajectory import Trajectory
from lgc_ros.odometry.profiles import RUN_SECTION, dump_profile
from lgc_ros.runtime.output_files import write_file, write_json
from lgc_ros.runtime.result_folders import result_folder
from lgc_ros.sources.trajectory import write_kitti, write_trajectory
from lgc_ros.visualization.figures import save_figure
from lgc_ros.visualization.point_cloud import write_ply
from lgc_ros.visualization.trajectory import draw_comparison, draw_run

log = logging.getLogger(__name__)

RESULTS = Path("results")
LATEST = "latest"
COMPARISON = ("comparison.json", "comparison.png")
RUN_FILES = (
    "trajectory_tum.txt",
    "trajectory_kitti.txt",
    STATES_FILE,
    TIMING_FILE,
    "trajectory.png",
    "config.yaml",
    "metrics.json",
    "video.mp4",
    "map.ply",
    "report.html",
    *COMPARISON,
)


def write_run(folder: Path, run: Run) -> None:
    """Write trajectories, states, settings, metrics and the plot of a run."""
    write_trajectory(folder / "trajectory_tum.txt", run.trajectory)
    every_frame = Trajectory.from_poses((state.stamp_ns, state.T_wc) for state in run.states)
    write_kitti(folder / "trajectory_kitti.txt", every_frame)
    write_states(folder, run.states)
    write_timing(folder, run.states)
    config = {
        "version": lgc_ros.__version__,
        "source": run.name,
        **run.recipe,
        RUN_SECTION: dump_profile(run.options),
    }
    text = yaml.safe_dump(config, sort_keys=False)
    write_file(folder / "config.yaml", text)
    write_json(folder / "metrics.json", run.metrics())
    world = "x right, y down, z forward of the first camera; unit as in trajectory_tum.txt"
    write_ply(folder / "map.ply", run.cloud, world)
    try:
        figure = draw_run(
            run_title(run), run.states, run.trajectory, run.errors, run.ground, run.truth
        )
    except LgcError as error:
        log.warning("no plot: %s", error)
    else:
        save_figure(folder / "trajectory.png", figure)


def run_title(run: Run) -> str:
    """Source, method, error and the share of frames that it covers."""
    title = f"{run.name}, {run.options.method}"
    if run.errors is not None:
        title += f": ATE {run.errors.ate_rmse_m:.3f} m over {run.errors.truth.length_m:.1f} m"
    return f"{title}\n{run.coverage}"


def comparison(runs: Mapping[str, Run]) -> dict:
    """Metrics of several methods on one source, as JSON results."""
    name = next(iter(runs.values())).name
    return {"dataset": name, "methods": {method: run.metrics() for method, run in runs.items()}}


def write_comparison(folder: Path, runs: Mapping[str, Run]) -> None:
    """Write the metrics of several methods into one file, and their trajectories into one plot."""
    write_json(folder / COMPARISON[0], comparison(runs))
    try:
        figure = draw_comparison(list(runs.values()))
    except LgcError as error:
        log.warning("no plot: %s", error)
    else:
        save_figure(folder / COMPARISON[1], figure)


@contextmanager
def results_folder(
    out: Path | None, name: str, parent: Path = RESULTS, force: bool = False
) -> Iterator[Path]:
    """The folder `out`, or a new one in `parent` to which the link `latest` then points.

    See `result_folder`. If the work fails, `latest` stays as it was.
    """
    folder = out or _new_folder(parent, name)
    with result_folder(folder, _earlier_results, force):
        yield folder
    if out is None:
        _link_latest(folder)


def _earlier_results(folder: Path) -> list[Path]:
    """The files of a run, and the folders of the methods that it compared."""
    files = [path for name in RUN_FILES if (path := folder / name).is_file()]
    places = (folder / method for method in METHODS)
    methods = [place for place in places if any((place / name).is_file() for name in RUN_FILES)]
    return [*files, *methods]


def _new_folder(parent: Path, name: str) -> Path:
    """A folder that does not exist yet, named after the source and the time."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    folder, count = parent / f"{name}-{stamp}", 1
    while folder.exists():
        count += 1
        folder = parent / f"{name}-{stamp}-{count}"
    return folder


def _link_latest(folder: Path) -> None:
    link = folder.with_name(LATEST)
    if link.is_symlink() or not link.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(folder.name, target_is_directory=True)

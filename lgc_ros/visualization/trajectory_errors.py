"""The figure of `lgc evaluate trajectory`: path, position, orientation and error over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from transforms3d.euler import mat2euler

from lgc_ros.geometry.trajectory import Trajectory
from lgc_ros.visualization.figures import load_pyplot
from lgc_ros.visualization.paths import (
    ESTIMATE_COLOR,
    TRUTH_COLOR,
    Line,
    gaps_in,
    plot_paths,
    widest_plane,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from lgc_ros.evaluation.trajectory_metrics import TrajectoryErrors


def draw_trajectory_errors(
    title: str, errors: TrajectoryErrors, plane: str | None = None
) -> Figure:
    """Draw an aligned estimate and the ground truth in a plane, and both over time.

    Args:
        plane: two axes of the ground truth, such as "xz"; None: those of largest extent.
    """
    plt = load_pyplot()
    figure = plt.figure(figsize=(12, 8), layout="constrained")
    grid = figure.add_gridspec(6, 2)
    figure.suptitle(title, fontsize="medium")
    estimate, truth = (
        Line(name, trajectory, gaps_in(trajectory.stamps_ns), color, style)
        for name, trajectory, color, style in (
            ("estimate", errors.aligned, ESTIMATE_COLOR, "-"),
            ("ground truth", errors.truth, TRUTH_COLOR, "--"),
        )
    )
    path = figure.add_subplot(grid[:4, 0])
    plot_paths(path, [truth, estimate], plane or widest_plane(errors.truth.positions), " (m)")
    error = figure.add_subplot(grid[4:, 0])
    _plot_over_time(error, [(estimate, 100 * errors.position_m)], "error (cm)")
    error.axhline(100 * errors.ate_rmse_m, color=TRUTH_COLOR, linestyle=":", label="RMSE")
    error.set_ylim(bottom=0)
    error.legend(fontsize="small")
    _label_time(error, errors.aligned)
    angles = [euler_angles_deg(line.trajectory) for line in (truth, estimate)]
    angles[1] = angles[1] - 360 * np.round((angles[1] - angles[0]).mean(axis=0) / 360)
    panels = {
        **{
            f"{axis} (m)": [line.trajectory.positions[:, k] for line in (truth, estimate)]
            for k, axis in enumerate("xyz")
        },
        **{
            f"{name} (°)": [both[:, k] for both in angles]
            for k, name in enumerate(("roll", "pitch", "yaw"))
        },
    }
    for row, (label, values) in enumerate(panels.items()):
        axes = figure.add_subplot(grid[row, 1], sharex=error)
        _plot_over_time(axes, list(zip((truth, estimate), values, strict=True)), label)
        axes.tick_params(labelbottom=row == len(panels) - 1)
    _label_time(axes, errors.aligned)
    return figure


def euler_angles_deg(trajectory: Trajectory) -> np.ndarray:
    """Roll, pitch and yaw (N, 3) about the fixed axes x, y, z, without jumps of 360 degrees."""
    angles = np.array([mat2euler(T_wc[:3, :3], "sxyz") for T_wc in trajectory.T_wc])
    return np.degrees(np.unwrap(angles, axis=0))


def _plot_over_time(axes: Axes, curves: list[tuple[Line, np.ndarray]], label: str) -> None:
    for line, values in curves:
        # Stamps of files without time are line numbers.
        start_ns = line.trajectory.stamps_ns[0]
        times = line.seconds(start_ns) if line.trajectory.timed else line.seconds(0) * 1e9
        axes.plot(times, line.points(values), line.style, color=line.color, linewidth=1.3)
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)


def _label_time(axes: Axes, trajectory: Trajectory) -> None:
    axes.set_xlabel("time (s)" if trajectory.timed else "frame")

"""Plots of a run: trajectory, position error and status over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lgc_ros.geometry.alignment import align_trajectories
from lgc_ros.geometry.trajectory import Trajectory
from lgc_ros.odometry.state import STATUSES, OdometryState
from lgc_ros.visualization.figures import load_pyplot
from lgc_ros.visualization.paths import (
    LINE_COLORS,
    TRUTH_COLOR,
    Line,
    missing_frames,
    plot_paths,
    widest_plane,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lgc_ros.evaluation.runner import Run
    from lgc_ros.evaluation.trajectory_metrics import TrajectoryErrors

# Distinguishable with red-green color blindness, from good to bad.
STATUS_COLORS = {
    "ok": "#0072b2",
    "no_motion": "#56b4e9",
    "rotation_only": "#009e73",
    "initializing": "#bbbbbb",
    "degenerate": "#f0e442",
    "few_matches": "#e69f00",
    "lost": "#d55e00",
}
# The world of an estimate is its first camera: x right, z forward.
CAMERA_GROUND = "xz"


def draw_run(
    title: str,
    states: Sequence[OdometryState],
    trajectory: Trajectory,
    errors: TrajectoryErrors | None,
    ground: str | None = None,
    truth: Trajectory | None = None,
) -> Figure:
    """Draw the top view, the position error (or the distance traveled) and the status over time.

    Lines are interrupted where frames were not tracked. With errors, the top view is in the world
    of the ground truth, whose horizontal axes are `ground`; if these are unknown, in the plane of
    largest extent. `truth` holds the true poses of all frames, tracked or not.
    """
    plt = load_pyplot()
    figure = plt.figure(figsize=(8, 8.5), layout="constrained")
    grid = figure.add_gridspec(3, 1, height_ratios=(5, 1.6, 0.35))
    top, middle, strip = (figure.add_subplot(cell) for cell in grid)
    figure.suptitle(title, fontsize="medium")
    stamps_ns = np.array([state.stamp_ns for state in states])
    seconds = (stamps_ns - stamps_ns[0]) * 1e-9
    if errors is None:
        estimate = _line("estimate", trajectory, stamps_ns)
        plot_paths(top, [estimate], CAMERA_GROUND, "")
        top.set_title("top view: x right, z forward of the first camera", fontsize="small")
        steps = np.linalg.norm(np.diff(trajectory.positions, axis=0), axis=1)
        traveled = estimate.points(np.append(0.0, np.cumsum(steps)))
        middle.plot(estimate.seconds(stamps_ns[0]), traveled)
        middle.set_ylabel("distance")
    else:
        every = errors.truth if truth is None else truth
        true_line = _line("ground truth", every, stamps_ns)._replace(color=TRUTH_COLOR, style="--")
        estimate = _line("estimate", errors.aligned, stamps_ns)
        plane = ground or widest_plane(every.positions)
        plot_paths(top, [true_line, estimate], plane, " (m)")
        view = "top view" if ground else "plane of largest extent"
        top.set_title(f"{view}: {'-'.join(plane)} of the ground truth", fontsize="small")
        error_cm = estimate.points(100 * errors.position_m)
        middle.plot(estimate.seconds(stamps_ns[0]), error_cm, color=STATUS_COLORS["ok"])
        middle.axhline(100 * errors.ate_rmse_m, color=TRUTH_COLOR, linestyle=":")
        middle.set_ylabel("position error (cm)")
        middle.set_ylim(bottom=0)
    middle.grid(alpha=0.3)
    middle.tick_params(labelbottom=False)
    _plot_statuses(strip, seconds, states)
    for axes in (middle, strip):
        axes.set_xlim(0, max(seconds[-1], 1e-3))
    return figure


def draw_comparison(runs: Sequence[Run]) -> Figure:
    """Draw the trajectories of several methods on one source, and their errors over time.

    Without errors, all are aligned with the first one, because each has a scale of its own.
    """
    plt = load_pyplot()
    stamps_ns = np.array([state.stamp_ns for state in runs[0].states])
    scored = [run for run in runs if run.errors is not None]
    truth = scored[0].truth if scored else None
    figure, axes = plt.subplots(
        2 if scored else 1,
        1,
        figsize=(8, 8.5 if scored else 6.5),
        height_ratios=(4, 1.4) if scored else (1,),
        squeeze=False,
        layout="constrained",
    )
    top = axes[0, 0]
    figure.suptitle(f"{runs[0].name}: {len(runs)} methods", fontsize="medium")
    lines: list[Line] = []
    for index, run in enumerate(scored or runs):
        if run.errors is None:
            trajectory = _in_world_of(runs[0].trajectory, run.trajectory)
        else:
            trajectory = run.errors.aligned
        label = f"{run.options.method}, {100 * run.tracked_share:.0f} % tracked"
        if run.errors is not None:
            label += f", ATE {run.errors.ate_rmse_m:.3f} m"
        color = LINE_COLORS[index % len(LINE_COLORS)]
        # Where methods agree, the lines below show beside those above.
        width = 1.6 + 1.2 * (len(scored or runs) - 1 - index)
        line = _line(label, trajectory, stamps_ns)
        lines.append(line._replace(color=color, width=width))
        if run.errors is not None:
            error_cm = lines[-1].points(100 * run.errors.position_m)
            axes[1, 0].plot(lines[-1].seconds(stamps_ns[0]), error_cm, color=color)
    if truth is None:
        plot_paths(top, lines, CAMERA_GROUND, "")
        first = runs[0].options.method
        top.set_title(
            f"top view of the first camera of {first}; others aligned with {first} by rotation, "
            "translation and scale",
            fontsize="small",
        )
        return figure
    plane = scored[0].ground or widest_plane(truth.positions)
    dashed = _line("ground truth", truth, stamps_ns)._replace(color=TRUTH_COLOR, style="--")
    plot_paths(top, [dashed, *lines], plane, " (m)")
    axes[1, 0].set(xlabel="time (s)", ylabel="position error (cm)", ylim=(0, None))
    axes[1, 0].grid(alpha=0.3)
    return figure


def _in_world_of(reference: Trajectory, trajectory: Trajectory) -> Trajectory:
    """The trajectory, aligned with the reference where they have stamps in common."""
    alignment = align_trajectories(trajectory, reference)
    if alignment is None:
        return trajectory
    return replace(trajectory, T_wc=alignment.of_poses(trajectory.T_wc), quaternions=None)


def _line(name: str, trajectory: Trajectory, frame_stamps_ns: np.ndarray) -> Line:
    return Line(name, trajectory, missing_frames(frame_stamps_ns, trajectory.stamps_ns))


def _plot_statuses(axes, seconds: np.ndarray, states: Sequence[OdometryState]) -> None:
    interval = float(np.median(np.diff(seconds))) if len(states) > 1 else 1.0
    ends = np.append(seconds[1:], seconds[-1] + interval)
    for status in STATUSES:
        spans = [
            (start, end - start)
            for start, end, state in zip(seconds, ends, states, strict=True)
            if state.status == status
        ]
        if spans:
            axes.broken_barh(spans, (0, 1), color=STATUS_COLORS[status], label=status)
    keyframes = [t for t, state in zip(seconds, states, strict=True) if state.keyframe]
    axes.vlines(keyframes, 0, 0.3, color="white", linewidth=0.6)
    axes.set(yticks=[], ylim=(0, 1), xlabel="time (s); white marks: keyframes")
    axes.legend(
        fontsize="x-small", ncols=7, loc="upper center", bbox_to_anchor=(0.5, 1.9), frameon=False
    )

"""Plots and videos of a run: trajectory, position error and status over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np

from lgc_ros.errors import LgcError
from lgc_ros.geometry.trajectory import Trajectory
from lgc_ros.images.frame import Frame
from lgc_ros.odometry.state import STATUSES, OdometryState
from lgc_ros.visualization.figures import load_pyplot, save_figure
from lgc_ros.visualization.matches import write_caption

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lgc_ros.evaluation.trajectory_metrics import TrajectoryErrors

# Distinguishable with red-green colour blindness, from good to bad.
STATUS_COLOURS = {
    "ok": "#0072b2",
    "no_motion": "#56b4e9",
    "rotation_only": "#009e73",
    "initializing": "#bbbbbb",
    "degenerate": "#f0e442",
    "few_matches": "#e69f00",
    "lost": "#d55e00",
}
TRUTH_COLOUR = "#444444"
INSET_SHARE = 0.3
# The world of an estimate is its first camera: x right, z forward.
CAMERA_GROUND = "xz"


def plot_run(
    path: Path,
    title: str,
    states: Sequence[OdometryState],
    trajectory: Trajectory,
    errors: TrajectoryErrors | None,
    ground: str | None = None,
) -> None:
    """Write the figure of `draw_run` to a file."""
    save_figure(path, draw_run(title, states, trajectory, errors, ground))


def draw_run(
    title: str,
    states: Sequence[OdometryState],
    trajectory: Trajectory,
    errors: TrajectoryErrors | None,
    ground: str | None = None,
) -> Figure:
    """Draw the top view, the position error (or the distance travelled) and the status over time.

    With errors, the top view is in the world of the ground truth, whose horizontal axes are
    `ground`; if these are unknown, in the plane of largest extent.
    """
    plt = load_pyplot()
    figure = plt.figure(figsize=(8, 8.5), layout="constrained")
    grid = figure.add_gridspec(3, 1, height_ratios=(5, 1.6, 0.35))
    top, middle, strip = (figure.add_subplot(cell) for cell in grid)
    figure.suptitle(title)
    seconds = (np.array([state.stamp_ns for state in states]) - states[0].stamp_ns) * 1e-9
    if errors is None:
        estimate = trajectory.positions
        _plot_paths(top, [("estimate", estimate, STATUS_COLOURS["ok"], "-")], CAMERA_GROUND, "")
        top.set_title("top view: x right, z forward of the first camera", fontsize="small")
        steps = np.linalg.norm(np.diff(estimate, axis=0), axis=1)
        times = (trajectory.stamps_ns - states[0].stamp_ns) * 1e-9
        middle.plot(times, np.append(0.0, np.cumsum(steps)))
        middle.set_ylabel("distance")
    else:
        truth, aligned = errors.truth.positions, errors.aligned.positions
        paths = [
            ("ground truth", truth, TRUTH_COLOUR, "--"),
            ("estimate", aligned, STATUS_COLOURS["ok"], "-"),
        ]
        plane = ground or widest_plane(truth)
        _plot_paths(top, paths, plane, " (m)")
        view = "top view" if ground else "plane of largest extent"
        top.set_title(f"{view}: {'-'.join(plane)} of the ground truth", fontsize="small")
        times = (errors.aligned.stamps_ns - states[0].stamp_ns) * 1e-9
        middle.plot(times, 100 * errors.position_m, color=STATUS_COLOURS["ok"])
        middle.axhline(100 * errors.ate_rmse_m, color=TRUTH_COLOUR, linestyle=":")
        middle.set_ylabel("position error (cm)")
        middle.set_ylim(bottom=0)
    middle.grid(alpha=0.3)
    middle.tick_params(labelbottom=False)
    _plot_statuses(strip, seconds, states)
    for axes in (middle, strip):
        axes.set_xlim(0, max(seconds[-1], 1e-3))
    return figure


def widest_plane(positions: np.ndarray) -> str:
    """The two axes along which positions (N, 3) extend most, such as "xy"."""
    extent = np.ptp(positions, axis=0)
    return "".join("xyz"[axis] for axis in sorted(np.argsort(-extent, kind="stable")[:2]))


def _plot_paths(
    axes, paths: list[tuple[str, np.ndarray, str, str]], plane: str, unit: str
) -> None:
    """Plot named, coloured and styled paths in the plane of two axes, the first to the right."""
    across, along = ("xyz".index(axis) for axis in plane)
    for name, path, colour, style in paths:
        axes.plot(path[:, across], path[:, along], style, color=colour, label=name, linewidth=1.6)
    start = paths[0][1][0]
    axes.plot(start[across], start[along], "o", color="black", markersize=5, label="start")
    axes.set(xlabel=f"{plane[0]}{unit}", ylabel=f"{plane[1]}{unit}")
    axes.set_aspect("equal", adjustable="datalim")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


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
            axes.broken_barh(spans, (0, 1), color=STATUS_COLOURS[status], label=status)
    keyframes = [t for t, state in zip(seconds, states, strict=True) if state.keyframe]
    axes.vlines(keyframes, 0, 0.3, color="white", linewidth=0.6)
    axes.set(yticks=[], ylim=(0, 1), xlabel="time (s); white marks: keyframes")
    axes.legend(
        fontsize="x-small", ncols=7, loc="upper center", bbox_to_anchor=(0.5, 1.9), frameon=False
    )


class VideoWriter:
    """Writes a video of annotated frames: landmarks by score, status, and trajectory so far."""

    def __init__(self, path: Path, rate_hz: float = 20.0) -> None:
        self.path = path
        self._rate_hz = rate_hz
        self._writer: cv2.VideoWriter | None = None
        self._positions: list[np.ndarray] = []

    def add(self, frame: Frame, state: OdometryState) -> None:
        """Append one frame."""
        if state.tracked:
            self._positions.append(state.T_wc[:3, 3])
        picture = draw_state(frame.image, state, self._positions)
        if self._writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            size = picture.shape[1], picture.shape[0]
            # OpenCV's type stubs lack this function.
            codec = cv2.VideoWriter_fourcc(*"mp4v")  # type: ignore[attr-defined]
            self._writer = cv2.VideoWriter(str(self.path), codec, self._rate_hz, size)
            if not self._writer.isOpened():
                raise LgcError(f"cannot write video {self.path}: use the suffix .mp4")
        self._writer.write(picture)

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.release()


def draw_state(
    image: np.ndarray, state: OdometryState, positions: Sequence[np.ndarray] = ()
) -> np.ndarray:
    """A BGR picture of an image with landmarks, status and the trajectory so far."""
    picture = cv2.cvtColor(image, cv2.COLOR_GRAY2BGR) if image.ndim == 2 else image.copy()
    # From yellow (low score) to green (high score).
    for (x, y), score in zip(state.points_px, state.scores, strict=True):
        colour = (0, 220, round(220 * (1 - score)))
        cv2.circle(picture, (round(x), round(y)), 3, colour, 1, cv2.LINE_AA)
    text = f"{state.status}  {len(state.points_px)} landmarks"
    text += "  keyframe" if state.keyframe else ""
    write_caption(picture, [text])
    if len(positions) > 1:
        _draw_path(picture, np.array(positions))
    return picture


def _draw_path(picture: np.ndarray, positions: np.ndarray) -> None:
    """Draw the top view of a path (x right, z up) into the lower right corner."""
    side = round(INSET_SHARE * picture.shape[0])
    inset = picture[-side:, -side:]
    inset //= 3
    plan = positions[:, [0, 2]] * (1, -1)
    low, span = plan.min(axis=0), max(np.ptp(plan, axis=0).max(), 1e-9)
    offset = (1 - np.ptp(plan, axis=0) / span) / 2
    pixels = (((plan - low) / span + offset) * 0.9 + 0.05) * side
    cv2.polylines(inset, [np.round(pixels).astype(np.int32)], False, (255, 200, 0), 1, cv2.LINE_AA)

"""Trajectories as lines of a plot, interrupted where poses are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lgc_ros.errors import ConfigError
from lgc_ros.geometry.trajectory import Trajectory

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ESTIMATE_COLOR = "#0072b2"
TRUTH_COLOR = "#444444"
# Distinguishable with red-green color blindness (Okabe and Ito).
LINE_COLORS = (ESTIMATE_COLOR, "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999")
# Between poses this many median intervals apart, others are missing.
GAP_INTERVALS = 1.5


class Line(NamedTuple):
    """A trajectory with name, color, style and width (points) of its line.

    Attributes:
        breaks: indices of the poses before which the line is interrupted.
    """

    name: str
    trajectory: Trajectory
    breaks: np.ndarray
    color: str = ESTIMATE_COLOR
    style: str = "-"
    width: float = 1.6

    def points(self, values: np.ndarray) -> np.ndarray:
        """Values (N, ...) of the poses, with NaN where the line is interrupted."""
        return np.insert(np.asarray(values, float), self.breaks, np.nan, axis=0)

    def seconds(self, start_ns: int) -> np.ndarray:
        """Times since a stamp, see `points`."""
        return self.points((self.trajectory.stamps_ns - start_ns) * 1e-9)

    @property
    def isolated(self) -> np.ndarray:
        """Indices of poses without neighbors, which a line alone would not show."""
        edges = np.concatenate([[0], self.breaks, [len(self.trajectory)]])
        return edges[:-1][np.diff(edges) == 1]


def gaps_in(stamps_ns: np.ndarray) -> np.ndarray:
    """Indices of poses that follow a gap in time, by the median interval."""
    intervals_ns = np.diff(stamps_ns)
    if not len(intervals_ns):
        return np.empty(0, int)
    return np.flatnonzero(intervals_ns > GAP_INTERVALS * np.median(intervals_ns)) + 1


def coverage(scored: Trajectory, truth: Trajectory) -> str:
    """How much of the ground truth's time the scored poses cover, gaps apart; empty without time.

    Args:
        scored: the true poses at the stamps of the estimate.
        truth: all of the ground truth.
    """
    if not scored.timed:
        return ""
    intervals_s = 1e-9 * np.diff(scored.stamps_ns)
    covered_s = intervals_s.sum() - intervals_s[gaps_in(scored.stamps_ns) - 1].sum()
    total_s = 1e-9 * float(np.ptp(truth.stamps_ns))
    share = f"{100 * covered_s / total_s:.0f} %"
    return f"{covered_s:.1f} of {total_s:.1f} s of the ground truth ({share})"


def missing_frames(frame_stamps_ns: np.ndarray, stamps_ns: np.ndarray) -> np.ndarray:
    """Indices of poses that follow frames without a pose; each pose has the stamp of a frame."""
    frames = np.searchsorted(frame_stamps_ns, stamps_ns)
    return np.flatnonzero(np.diff(frames) > 1) + 1


def plot_paths(axes: Axes, lines: list[Line], plane: str, unit: str) -> None:
    """Plot lines in the plane of two axes, such as "xz", the first of them to the right."""
    columns = plane_axes(plane)
    for line in lines:
        positions = line.trajectory.positions[:, columns]
        x, y = line.points(positions).T
        axes.plot(x, y, line.style, label=line.name, color=line.color, linewidth=line.width)
        axes.plot(*positions[line.isolated].T, ".", color=line.color, markersize=3)
    start = lines[0].trajectory.positions[0, columns]
    axes.plot(*start, "o", color="black", markersize=5, label="start")
    axes.set(xlabel=f"{plane[0]}{unit}", ylabel=f"{plane[1]}{unit}")
    axes.set_aspect("equal", adjustable="datalim")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def plane_axes(plane: str) -> list[int]:
    """Indices of the axes of a plane.

    Raises:
        ConfigError: it is not named by two of x, y and z.
    """
    if len(set(plane)) != 2 or not set(plane) <= set("xyz"):
        raise ConfigError(f"unknown plane {plane!r}: name two axes, such as xy or xz")
    return ["xyz".index(axis) for axis in plane]


def widest_plane(positions: np.ndarray) -> str:
    """The two axes along which positions (N, 3) extend most, such as "xy"."""
    extent = np.ptp(positions, axis=0)
    return "".join("xyz"[axis] for axis in sorted(np.argsort(-extent, kind="stable")[:2]))

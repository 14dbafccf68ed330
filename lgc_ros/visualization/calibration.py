"""A picture of a calibration: where corners were seen, and how far off they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lgc_ros.calibration.intrinsics import Calibration
from lgc_ros.visualization.figures import load_pyplot, save_figure
from lgc_ros.visualization.paths import ESTIMATE_COLOR

COLORS = "viridis"
ARROW_SHARE = 0.03  # length of the longest arrows, as a share of the image width
PERCENTILE = 95  # of the residuals that axes and colors show in full


def plot_calibration(path: Path, calibration: Calibration, title: str) -> None:
    """Write residuals over the image, their distribution, and the error of every view."""
    figure = load_pyplot().figure(figsize=(11, 5.6), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(1.7, 1))
    image, scatter, bars = (
        figure.add_subplot(cell) for cell in (grid[:, 0], grid[0, 1], grid[1, 1])
    )
    figure.suptitle(title)
    residuals = np.concatenate(calibration.residuals_px)
    size_px = np.linalg.norm(residuals, axis=1)
    shown_px = float(np.percentile(size_px, PERCENTILE)) or 1.0
    _plot_image(image, calibration, residuals, size_px, shown_px)
    scatter.scatter(*residuals.T, s=4, c=size_px, cmap=COLORS, vmax=shown_px, linewidths=0)
    limit = 1.6 * shown_px
    scatter.set(xlim=(-limit, limit), ylim=(limit, -limit), aspect="equal")
    scatter.set(xlabel="right (px)", ylabel="down (px)", title="detected minus predicted corner")
    bars.bar(range(1, 1 + len(calibration.views)), calibration.view_rms_px, color=ESTIMATE_COLOR)
    bars.axhline(calibration.rms_px, color="#444444", linestyle=":")
    bars.set(xlabel="view", ylabel="RMS (px)", title="error per view; dotted: all views")
    for axes in (scatter, bars):
        axes.grid(alpha=0.3)
        axes.title.set_fontsize("small")
    save_figure(path, figure)


def _plot_image(
    axes, calibration: Calibration, residuals: np.ndarray, size_px: np.ndarray, shown_px: float
) -> None:
    """Corners in the image, with their residuals as magnified arrows."""
    width, height = calibration.camera.size
    corners = np.concatenate([view.corners_px for view in calibration.views])
    magnified = ARROW_SHARE * width / shown_px
    arrows = axes.quiver(
        *corners.T,
        *(residuals * magnified).T,
        size_px,
        cmap=COLORS,
        clim=(0, shown_px),
        angles="xy",
        scale_units="xy",
        scale=1,
        width=0.0022,
    )
    axes.plot(*calibration.camera.K[:2, 2], "+", color="#d55e00", markersize=14)
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="equal", xlabel="x (px)", ylabel="y (px)")
    axes.set_title(
        f"corners of {len(calibration.views)} views; arrows: residuals × {magnified:.0f}; "
        "cross: principal point",
        fontsize="small",
    )
    axes.figure.colorbar(arrows, ax=axes, label="residual (px)", shrink=0.8, extend="max")

"""Charts of the demo report: SVG drawn by matplotlib, for files and inline in the page."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lgc_ros.visualization.figures import load_pyplot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colors by the CSS variable that replaces them in the page, so that charts follow its theme.
COLORS = {
    "accent": "#0b7fab",
    "truth": "#b9c4cf",
    "line": "#e2e7ec",
    "muted": "#5a6775",
    "s2": "#f08c00",
    "card": "#ffffff",
}
ACCENT, TRUTH, LINE, MUTED, MARK, _ = COLORS.values()
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "lgc_ros",
    "font.size": 13,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "grid.color": LINE,
    "xtick.bottom": False,
    "xtick.labelcolor": MUTED,
    "ytick.left": False,
    "ytick.labelcolor": MUTED,
}
LATENCY_BINS = 20


def plot_map(
    truth_m: np.ndarray | None,
    estimate_m: np.ndarray,
    breaks: Sequence[int] | np.ndarray = (),
    labels: tuple[str, str] = ("x (m)", "y (m)"),
) -> tuple[str, np.ndarray]:
    """Top view of the true (if known) and the estimated positions (N, 2).

    The line of the estimate is interrupted before the positions `breaks`. Returns the SVG and the
    pixels (N, 2) of the estimate in it. The last one is marked by a circle with the id `here`,
    which the page moves.
    """
    figure, axes = _new_chart(640, 480)
    if truth_m is not None:
        axes.plot(*truth_m.T, color=TRUTH, linewidth=7, solid_capstyle="round")
    axes.plot(*np.insert(estimate_m, breaks, np.nan, axis=0).T, color=ACCENT, linewidth=2.2)
    axes.set(xlabel=labels[0], ylabel=labels[1])
    axes.set_aspect("equal", adjustable="datalim")
    svg = _svg(figure)
    pixels = axes.transData.transform(estimate_m) * (1, -1) + (0, figure.bbox.height)
    (x0, y0), (x1, y1) = pixels[0], pixels[-1]
    circles = (
        f'<circle class="start" cx="{x0:.1f}" cy="{y0:.1f}" r="5" fill="{ACCENT}"/>\n'
        f'<circle class="here" id="here" cx="{x1:.1f}" cy="{y1:.1f}" r="8" fill="{ACCENT}"/>\n'
    )
    return svg.replace("</svg>", f"{circles}</svg>"), pixels


def plot_line(x: np.ndarray, y: np.ndarray, x_label: str, y_label: str) -> str:
    """A curve with the area beneath it tinted; it is interrupted at NaN."""
    figure, axes = _new_chart(480, 240)
    for part in np.ma.clump_unmasked(np.ma.masked_invalid(y)):
        across, up = x[part], y[part]
        axes.fill(
            [across[0], *across, across[-1]], [0, *up, 0], color=ACCENT, alpha=0.15, linewidth=0
        )
    axes.plot(x, y, color=ACCENT, linewidth=2.2, clip_on=False)
    axes.set(xlabel=x_label, ylabel=y_label, ylim=(0, None))
    axes.margins(x=0)
    axes.grid(axis="x", visible=False)
    return _svg(figure)


def plot_histogram(values: Sequence[float], label: str, mark: float) -> str:
    """A histogram of values, with a line at `mark`.

    Values beyond three medians fall into the last bar, so that outliers do not squeeze the others.
    """
    limit = 3 * float(np.median(values))
    if max(values) > limit:
        label = f"{label}; last bar: this or more"
    figure, axes = _new_chart(480, 240)
    clipped = np.minimum(values, limit)
    axes.hist(clipped, LATENCY_BINS, color=ACCENT, alpha=0.75, rwidth=0.9)
    axes.axvline(min(mark, limit), color=MARK, linewidth=2, linestyle="--")
    axes.set(xlabel=label, ylabel="frames")
    axes.grid(axis="x", visible=False)
    return _svg(figure)


def inline(svg: str) -> str:
    """A chart to be placed into the page, with colors and fonts of the page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns:xlink="[^"]*"| font-family: [^;"]*;', "", svg)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    for name, color in COLORS.items():
        svg = svg.replace(color, f"var(--{name})")
    return svg.replace("<svg", '<svg class="chart" role="img"', 1)


def _new_chart(width_px: int, height_px: int) -> tuple[Figure, Axes]:
    plt = load_pyplot()
    with plt.rc_context(STYLE):  # an SVG has 72 pixels per inch
        size = width_px / 72, height_px / 72
        return plt.subplots(figsize=size, dpi=72, layout="constrained")


def _svg(figure: Figure) -> str:
    plt = load_pyplot()
    file = io.StringIO()
    with plt.rc_context(STYLE):
        figure.savefig(file, format="svg", metadata={"Date": None})
    plt.close(figure)
    return file.getvalue()

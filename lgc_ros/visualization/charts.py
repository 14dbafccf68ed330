"""Charts as inline SVG: sharp at any size, and coloured by the page they stand in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MARGIN = 38
# Steps between grid lines that read well, times a power of ten.
ROUND_STEPS = np.array([1.0, 2.0, 5.0, 10.0])


@dataclass(frozen=True, eq=False)
class Map:
    """A plan of ways in metres, and where its points are in the picture.

    Attributes:
        svg: the picture.
        pixels: (N, 2) positions of the estimate in it.
    """

    svg: str
    pixels: np.ndarray


def plot_map(
    truth_m: np.ndarray, estimate_m: np.ndarray, width: int = 640, height: int = 480
) -> Map:
    """True and estimated way (N, 2), x to the right and y up, over a grid of whole metres."""
    both = np.concatenate([truth_m, estimate_m])
    low, high = both.min(axis=0), both.max(axis=0)
    inner = np.array([width, height]) - 2 * MARGIN
    scale = float(np.min(inner / np.maximum(high - low, 1e-6)))
    middle = (low + high) / 2

    def pixels(points: np.ndarray) -> np.ndarray:
        return (points - middle) * (scale, -scale) + (width / 2, height / 2)

    step = round_step(max(width, height) / scale / 8)
    reach = np.array([width, height]) / 2 / scale
    grid = []
    for axis in range(2):
        first, last = (middle + sign * reach for sign in (-1, 1))
        for value in np.arange(np.ceil(first[axis] / step), last[axis] / step) * step:
            a, b = first.copy(), last.copy()
            a[axis] = b[axis] = value
            grid.append(_path(pixels(np.array([a, b])), "grid"))
    estimate = pixels(estimate_m)
    start, end = estimate[0], estimate[-1]
    bar = step * scale
    x, y = MARGIN / 2, height - MARGIN / 2
    body = [
        *grid,
        _path(pixels(truth_m), "truth"),
        _path(estimate, "estimate"),
        f'<circle class="start" cx="{start[0]:.1f}" cy="{start[1]:.1f}" r="5"/>',
        f'<circle class="here" id="here" cx="{end[0]:.1f}" cy="{end[1]:.1f}" r="8"/>',
        _path(np.array([[x, y], [x + bar, y]]), "axis"),
        _text(x + bar + 8, y + 4, f"{step:g} m"),
    ]
    return Map(_svg(body, width, height, "map"), estimate)


def plot_line(
    x: np.ndarray, y: np.ndarray, x_label: str, y_label: str, width: int = 480, height: int = 240
) -> str:
    """One curve over its axis, with the area beneath it tinted."""
    frame = _Frame(0.0, float(x[-1]), float(max(y.max(), 1e-9)) * 1.1, width, height)
    curve = np.column_stack([frame.across(x), frame.up(y)])
    floor = frame.up(0.0)
    area = np.concatenate([[[curve[0, 0], floor]], curve, [[curve[-1, 0], floor]]])
    body = [*frame.axes(x_label, y_label), _path(area, "area"), _path(curve, "estimate")]
    return _svg(body, width, height, "line")


def plot_histogram(
    values: Sequence[float],
    label: str,
    mark: float,
    bins: int = 20,
    width: int = 480,
    height: int = 240,
) -> str:
    """How often values occur, with a line at a value of interest."""
    low, high = float(np.min(values)), float(np.max(values))
    # A single slow frame must not press all others into one bar.
    limit = 3 * float(np.median(values))
    if high > limit:
        high, label = limit, f"{label} (last bar: or more)"
    high = max(high, low + 1e-6)
    counts, edges = np.histogram(np.clip(values, low, high), bins, (low, high))
    frame = _Frame(low, high, counts.max() * 1.1, width, height)
    bars = [
        f'<rect class="bar" x="{frame.across(a) + 1:.1f}" y="{frame.up(count):.1f}" '
        f'width="{max(frame.across(b) - frame.across(a) - 2, 1):.1f}" '
        f'height="{frame.up(0) - frame.up(count):.1f}" rx="2"/>'
        for count, a, b in zip(counts, edges[:-1], edges[1:], strict=True)
        if count
    ]
    at = frame.across(min(mark, high))
    line = _path(np.array([[at, frame.up(frame.top)], [at, frame.up(0)]]), "mark")
    return _svg([*frame.axes(label, "frames"), *bars, line], width, height, "histogram")


@dataclass(frozen=True)
class _Frame:
    """Where numbers lie in a chart whose y axis begins at 0."""

    left: float
    right: float
    top: float
    width: int
    height: int

    def across(self, x):
        span = max(self.right - self.left, 1e-9)
        return MARGIN + (x - self.left) / span * (self.width - 1.5 * MARGIN)

    def up(self, y):
        return self.height - MARGIN - y / self.top * (self.height - 1.7 * MARGIN)

    def axes(self, x_label: str, y_label: str) -> list[str]:
        parts = []
        for value in _ticks(self.left, self.right, 5):
            parts.append(_text(self.across(value), self.height - 20, f"{value:g}", "middle"))
        for value in _ticks(0, self.top, 4):
            ends = np.array([[MARGIN, self.up(value)], [self.width - MARGIN / 2, self.up(value)]])
            parts.append(_path(ends, "grid"))
            parts.append(_text(MARGIN - 6, self.up(value) + 4, f"{value:g}", "end"))
        parts.append(_text(self.width - MARGIN / 2, self.height - 4, x_label, "end"))
        parts.append(_text(2, 13, y_label))
        return parts


def _ticks(low: float, high: float, most: int) -> np.ndarray:
    step = round_step((high - low) / most)
    return np.arange(np.ceil(low / step), high / step + 1e-9) * step


def round_step(about: float) -> float:
    """The smallest number of the form 1, 2 or 5 times a power of ten that is not below `about`."""
    power = 10.0 ** np.floor(np.log10(max(about, 1e-12)))
    return float(power * ROUND_STEPS[np.searchsorted(ROUND_STEPS, about / power - 1e-9)])


def _path(points: np.ndarray, kind: str) -> str:
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    tag = "polygon" if kind == "area" else "polyline"
    return f'<{tag} class="{kind}" points="{way}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _svg(body: Sequence[str], width: int, height: int, kind: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart {kind}" role="img" '
        f'viewBox="0 0 {width} {height}">\n' + "\n".join(body) + "\n</svg>"
    )

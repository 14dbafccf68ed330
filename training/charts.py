"""Bar charts in the manner of the paper's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lgc_ros.visualization.figures import load_pyplot, save_figure

COLORS = [f"C{index}" for index in range(10)]  # matplotlib's default cycle
HEIGHT_IN = 3.2
MIN_WIDTH_IN = 3.5
MAX_WIDTH_IN = 14.0  # of the whole figure
BAR_IN = 0.16
NUMBERS_UP_TO = 30  # bars in a panel; the numbers of more bars would overlap


@dataclass(frozen=True)
class Panel:
    """One plot: for each series a value per category, None where there is none."""

    title: str
    categories: Sequence[str]
    series: Mapping[str, Sequence[float | None]]


def bar_chart(path: Path, panels: Sequence[Panel], ylabel: str = "mAP") -> None:
    """Panels side by side under one legend.

    Series that differ in what follows a ``+`` share a color, and the longer one is hatched.
    """
    found = dict.fromkeys(name for panel in panels for name in panel.series)
    families = list(dict.fromkeys(_family(name) for name in found))
    names = sorted(found, key=lambda name: families.index(_family(name)))
    bars = [len(panel.categories) * len(names) for panel in panels]
    widths = np.array([max(MIN_WIDTH_IN, 1 + BAR_IN * count) for count in bars])
    widths *= min(1.0, MAX_WIDTH_IN / widths.sum())
    legend_rows = -(-len(names) // max(int(widths.sum() / 1.6), 1))
    figure, axes = load_pyplot().subplots(
        1,
        len(panels),
        figsize=(widths.sum(), HEIGHT_IN + 0.2 * legend_rows),
        width_ratios=widths,
        squeeze=False,
        layout="constrained",
    )
    top = max(
        (v or 0 for panel in panels for row in panel.series.values() for v in row), default=0
    )
    for axis, panel, count in zip(axes[0], panels, bars, strict=True):
        width = 0.84 / len(names)
        for position, name in enumerate(names):
            values = panel.series.get(name, [None] * len(panel.categories))
            drawn = axis.bar(
                np.arange(len(panel.categories)) + (position - (len(names) - 1) / 2) * width,
                [value or 0 for value in values],
                width,
                label=name,
                color=COLORS[families.index(_family(name)) % len(COLORS)],
                hatch="////" if _family(name) != name else None,
                edgecolor="white",
                linewidth=0.3,
            )
            if count <= NUMBERS_UP_TO:
                texts = ["" if v is None else f"{v:.2f}".removeprefix("0") for v in values]
                axis.bar_label(drawn, texts, fontsize=6, padding=1)
        axis.set_title(panel.title, fontsize="medium")
        turned = {"rotation": 30, "ha": "right"} if len(panel.categories) > 8 else {}
        axis.set_xticks(range(len(panel.categories)), panel.categories, **turned)
        axis.set_xlim(-0.6, len(panel.categories) - 0.4)
        axis.set_ylim(0, 1.1 * top or 1)  # room for the numbers
        axis.grid(axis="y", alpha=0.3)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel(ylabel)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=-(-len(names) // legend_rows),
        fontsize="small",
        frameon=False,
    )
    save_figure(path, figure)


def _family(name: str) -> str:
    return name.split("+")[0].strip()

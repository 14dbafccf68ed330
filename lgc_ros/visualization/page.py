"""Self-contained HTML pages of reports: skeleton, slider of pictures, rotating point cloud."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from lgc_ros.visualization.point_cloud import PointCloud

FOLDER = Path(__file__).parent
STAGES = {
    "features": "feature extraction",
    "match": "matching",
    "filter": "learned filter",
    "estimate": "two-view pose",
    "track": "pose from landmarks",
    "map": "keyframes, bundle adjustment",
}


def make_page(
    title: str,
    body: str,
    values: Mapping[str, Any],
    frames: Sequence[Mapping[str, Any]],
    cloud: PointCloud,
    path: np.ndarray,
) -> str:
    """A page that needs nothing but a browser.

    Args:
        body: name of the file with its content, filled with `values`.
        frames: pictures of the slider: `src` (see `data_uri`), position `x`, `y` in the chart, and
            texts by the id of the element that shows them.
        cloud: landmarks, z up.
        path: (N, 3) camera positions among them.
    """
    skeleton, content, slider = (
        Template((FOLDER / name).read_text(encoding="utf-8"))
        for name in ("report.html", body, "report_slider.html")
    )
    data = json.dumps({"frames": frames, "cloud": _packed(cloud, path)})
    filled = content.substitute(values, slider=slider.template)
    return skeleton.substitute(title=title, body=filled, data=data)


def _packed(cloud: PointCloud, path: np.ndarray) -> dict[str, str]:
    """Points and camera path, scaled to 16-bit integers for the viewer of the page."""
    every = np.concatenate([cloud.points, path])
    middle = (every.min(axis=0) + every.max(axis=0)) / 2
    size = max(float(np.abs(every - middle).max()), 1e-6)

    def packed(points: np.ndarray) -> str:
        whole = np.round((points - middle) / size * 32000).astype("<i2")
        return base64.b64encode(whole.tobytes()).decode()

    colors = base64.b64encode(cloud.colors.astype(np.uint8).tobytes()).decode()
    return {"points": packed(cloud.points), "colors": colors, "path": packed(path)}


def stage_bar(ms: Mapping[str, float]) -> str:
    """A stacked bar of the mean milliseconds per stage."""
    times = {label: ms.get(stage, 0.0) for stage, label in STAGES.items()}
    total = max(sum(times.values()), 1e-9)
    bars = "".join(
        f'<i class="s{k}" style="width:{100 * value / total:.1f}%"></i>'
        for k, value in enumerate(times.values())
    )
    legend = "".join(
        f'<li><i class="s{k}"></i>{label}<b>{value:.0f} ms</b></li>'
        for k, (label, value) in enumerate(times.items())
    )
    return f'<div class="stack">{bars}</div><ul class="legend">{legend}</ul>'


def data_uri(jpeg: bytes) -> str:
    """A picture inside the page."""
    return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode()

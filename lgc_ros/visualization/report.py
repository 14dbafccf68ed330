"""The report of the demo: one self-contained HTML file."""

from __future__ import annotations

import base64
import html
import json
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import cv2
import numpy as np

import lgc_ros
from lgc_ros.runtime.output_files import write_file
from lgc_ros.visualization.charts import inline, plot_histogram, plot_line, plot_map

if TYPE_CHECKING:
    from lgc_ros.evaluation.trajectory_metrics import TrajectoryErrors
    from lgc_ros.ros.live import LiveRun

TEMPLATE = Path(__file__).with_name("report.html")
STAGES = {
    "features": "feature extraction",
    "match": "matching",
    "filter": "learned filter",
    "estimate": "two-view pose",
    "track": "pose from landmarks",
    "map": "keyframes, bundle adjustment",
}
TITLES = {"ransac": "RANSAC on all matches", "cn": "Learned filter, then robust estimation"}
GOOD_ERROR_DEG = 5.0
REPORT_FILES = (
    "report.html",
    "trajectory.svg",
    "error.svg",
    "latency.svg",
    "matches.jpg",
    "inliers.ply",
)


@dataclass(frozen=True, eq=False)
class MethodComparison:
    """Result of a method on the pair of views: BGR picture, inliers, pose error."""

    method: str
    picture: np.ndarray
    inliers: int
    true_inliers: int
    error_deg: float


@dataclass(frozen=True, eq=False)
class Report:
    """Results of the demo.

    Attributes:
        frames: number of images in the sequence.
        live: the run of the node.
        errors: errors of its trajectory against the ground truth.
        points, colours: (N, 3) landmarks in the world, and their RGB colours.
        comparisons: methods on the pair of views.
    """

    frames: int
    live: LiveRun
    errors: TrajectoryErrors
    points: np.ndarray
    colours: np.ndarray
    comparisons: list[MethodComparison]

    def metrics(self) -> dict:
        """The content of metrics.json."""
        latency = np.array(list(self.live.latency_ms.values()))
        return {
            "frames": self.frames,
            "answered": self.live.answered,
            "dropped": int(self.live.diagnostics.get("dropped", 0)),
            "held": int(self.errors.aligned.held.sum()),
            **self.errors.as_dict(),
            "path_m": self.errors.truth.length_m,
            "fps": self.live.answered / self.live.seconds,
            "latency_ms": {
                "median": float(np.median(latency)),
                "p95": float(np.percentile(latency, 95)),
            },
            "pair_error_deg": {c.method: c.error_deg for c in self.comparisons},
        }


def write_report(out: Path, report: Report) -> None:
    """Write report.html, and its pictures as separate files."""
    errors, live, m = report.errors, report.live, report.metrics()
    truth, estimate = errors.truth.positions, errors.aligned.positions
    trajectory_svg, pixels = plot_map(truth[:, :2], estimate[:, :2])
    seconds = (errors.aligned.stamps_ns - errors.aligned.stamps_ns[0]) * 1e-9
    latency = list(live.latency_ms.values())
    charts = {
        "trajectory": trajectory_svg,
        "error": plot_line(seconds, 100 * errors.position_m, "time (s)", "error (cm)"),
        "latency": plot_histogram(latency, "latency (ms)", m["latency_ms"]["median"]),
    }
    for name, svg in charts.items():
        write_file(out / f"{name}.svg", svg)
    frames = _frames(report, pixels, seconds)
    stamps = sorted(live.pictures)
    if stamps:
        write_file(out / "matches.jpg", live.pictures[stamps[len(stamps) // 2]])
    write_ply(out / "inliers.ply", report.points, report.colours)
    page = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        version=lgc_ros.__version__,
        date=datetime.now().strftime("%Y-%m-%d %H:%M"),
        machine=html.escape(f"{os.cpu_count()} CPU cores, filter on {_device(live)}"),
        domain=live.domain,
        dds=html.escape(live.dds),
        frames=report.frames,
        rate=f"{m['fps']:.1f}",
        answered=m["answered"],
        dropped=m["dropped"],
        ate_cm=f"{100 * m['ate_rmse_m']:.1f}",
        path_m=f"{m['path_m']:.1f}",
        ate_percent=f"{100 * m['ate_rmse_m'] / m['path_m']:.2f}",
        rotation_deg="–" if m["rpe_rot_deg"] is None else f"{m['rpe_rot_deg']:.2f}",
        worst_cm=f"{100 * errors.position_m.max():.1f}",
        median_ms=f"{m['latency_ms']['median']:.0f}",
        p95_ms=f"{m['latency_ms']['p95']:.0f}",
        points=f"{len(report.points):,}",
        map=inline(charts["trajectory"]),
        error=inline(charts["error"]),
        latency=inline(charts["latency"]),
        stages=_stages(live.reports),
        pair=_pair(report.comparisons),
        data=json.dumps({"frames": frames, "cloud": _cloud(report, estimate)}),
    )
    write_file(out / "report.html", page)


def _device(live: LiveRun) -> str:
    return live.diagnostics.get("device", "cpu")


def _frames(report: Report, pixels: np.ndarray, seconds: np.ndarray) -> list[dict]:
    """The content of the slider: the node's picture, position, error and latency by frame."""
    errors, live = report.errors, report.live
    at = {stamp: i for i, stamp in enumerate(errors.aligned.stamps_ns.tolist())}
    return [
        {
            "t": round(float(seconds[at[stamp]]), 2),
            "x": round(float(pixels[at[stamp], 0]), 1),
            "y": round(float(pixels[at[stamp], 1]), 1),
            "cm": round(100 * float(errors.position_m[at[stamp]]), 1),
            "ms": round(live.latency_ms[stamp]),
            "src": _data_uri(data),
        }
        for stamp, data in sorted(live.pictures.items())
        if stamp in at
    ]


def _cloud(report: Report, path: np.ndarray) -> dict:
    """Points and camera path, scaled to 16-bit integers for the viewer of the page."""
    every = np.concatenate([report.points, path])
    middle = (every.min(axis=0) + every.max(axis=0)) / 2
    size = max(float(np.abs(every - middle).max()), 1e-6)

    def packed(points: np.ndarray) -> str:
        whole = np.round((points - middle) / size * 32000).astype("<i2")
        return base64.b64encode(whole.tobytes()).decode()

    colours = base64.b64encode(report.colours.astype(np.uint8).tobytes()).decode()
    return {"points": packed(report.points), "colours": colours, "path": packed(path)}


def _stages(reports: list[dict[str, str]]) -> str:
    """A stacked bar of the mean time per stage, from the diagnostics of the node."""
    timed = [report for report in reports if "latency_ms" in report]
    times = {
        label: float(np.mean([float(report.get(f"{stage}_ms", 0)) for report in timed]))
        for stage, label in STAGES.items()
        if timed
    }
    total = max(sum(times.values()), 1e-9)
    bars = "".join(
        f'<i class="s{k}" style="width:{100 * ms / total:.1f}%"></i>'
        for k, ms in enumerate(times.values())
    )
    legend = "".join(
        f'<li><i class="s{k}"></i>{label}<b>{ms:.0f} ms</b></li>'
        for k, (label, ms) in enumerate(times.items())
    )
    return f'<div class="stack">{bars}</div><ul class="legend">{legend}</ul>'


def _pair(comparisons: list[MethodComparison]) -> str:
    cards = []
    for c in comparisons:
        _, data = cv2.imencode(".jpg", c.picture, [cv2.IMWRITE_JPEG_QUALITY, 80])
        verdict = "good" if c.error_deg < GOOD_ERROR_DEG else "bad"
        cards.append(
            f'<figure><img src="{_data_uri(data.tobytes())}" alt="Matches of {c.method}">'
            f"<figcaption><h3>{TITLES.get(c.method, c.method)} <code>{c.method}</code></h3>"
            f'<span class="pill {verdict}">{c.error_deg:.1f}° error</span>'
            f"<p>{c.inliers} inliers, {c.true_inliers} of them true matches.</p>"
            "</figcaption></figure>"
        )
    return "".join(cards)


def _data_uri(jpeg: bytes) -> str:
    return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode()


def write_ply(path: Path, points: np.ndarray, colours: np.ndarray) -> None:
    """Write a coloured point cloud in binary PLY."""
    header = (
        f"ply\nformat binary_little_endian 1.0\nelement vertex {len(points)}\n"
        "property float x\nproperty float y\nproperty float z\n"
        "property uchar red\nproperty uchar green\nproperty uchar blue\nend_header\n"
    )
    vertices = np.empty(len(points), [("xyz", "<f4", 3), ("rgb", "u1", 3)])
    vertices["xyz"], vertices["rgb"] = points, colours
    write_file(path, header.encode() + vertices.tobytes())

"""The report of the demo: one self-contained HTML file."""

from __future__ import annotations

import html
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np

import lgc_ros
from lgc_ros.runtime.output_files import write_file
from lgc_ros.visualization.charts import inline, plot_histogram, plot_line, plot_map
from lgc_ros.visualization.page import STAGES, data_uri, make_page, stage_bar
from lgc_ros.visualization.point_cloud import PointCloud, write_ply

if TYPE_CHECKING:
    from lgc_ros.evaluation.trajectory_metrics import TrajectoryErrors
    from lgc_ros.ros.live import LiveRun

TITLES = {
    "ransac": "RANSAC on all matches",
    "poselib+ratio+unique": "Ratio test, one match per keypoint, LO-RANSAC",
    "cn": "Learned filter, then robust estimation",
}
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
        cloud: landmarks in the world of the ground truth.
        comparisons: methods on the pair of views.
    """

    frames: int
    live: LiveRun
    errors: TrajectoryErrors
    cloud: PointCloud
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
    write_ply(out / "inliers.ply", report.cloud, "landmarks in meters, world of the ground truth")
    values = {
        "version": lgc_ros.__version__,
        "date": datetime.now().strftime("%Y-%m-%d %H:%M"),
        "machine": html.escape(f"{os.cpu_count()} CPU cores, filter on {_device(live)}"),
        "domain": live.domain,
        "dds": html.escape(live.dds),
        "frames": report.frames,
        "rate": f"{m['fps']:.1f}",
        "answered": m["answered"],
        "dropped": m["dropped"],
        "ate_cm": f"{100 * m['ate_rmse_m']:.1f}",
        "path_m": f"{m['path_m']:.1f}",
        "ate_percent": f"{100 * m['ate_rmse_m'] / m['path_m']:.2f}",
        "rotation_deg": "–" if m["rpe_rot_deg"] is None else f"{m['rpe_rot_deg']:.2f}",
        "worst_cm": f"{100 * errors.position_m.max():.1f}",
        "median_ms": f"{m['latency_ms']['median']:.0f}",
        "p95_ms": f"{m['latency_ms']['p95']:.0f}",
        "points": f"{len(report.cloud.points):,}",
        "map": inline(charts["trajectory"]),
        "error": inline(charts["error"]),
        "latency": inline(charts["latency"]),
        "stages": _stages(live.reports),
        "pair": _pair(report.comparisons),
    }
    title = f"lgc_ros demo: {values['ate_cm']} cm error over {values['path_m']} m"
    page = make_page(title, "report_demo.html", values, frames, report.cloud, estimate)
    write_file(out / "report.html", page)


def _device(live: LiveRun) -> str:
    return live.diagnostics.get("device", "cpu")


def _frames(report: Report, pixels: np.ndarray, seconds: np.ndarray) -> list[dict]:
    """The content of the slider: the node's picture, position, error and latency by frame."""
    errors, live = report.errors, report.live
    at = {stamp: i for i, stamp in enumerate(errors.aligned.stamps_ns.tolist())}
    return [
        {
            "t": f"{seconds[at[stamp]]:.1f}",
            "x": round(float(pixels[at[stamp], 0]), 1),
            "y": round(float(pixels[at[stamp], 1]), 1),
            "cm": f"{100 * errors.position_m[at[stamp]]:.1f}",
            "ms": round(live.latency_ms[stamp]),
            "src": data_uri(data),
        }
        for stamp, data in sorted(live.pictures.items())
        if stamp in at
    ]


def _stages(reports: list[dict[str, str]]) -> str:
    """The mean time per stage, from the diagnostics of the node."""
    timed = [report for report in reports if "latency_ms" in report]
    return stage_bar(
        {
            stage: float(np.mean([float(report.get(f"{stage}_ms", 0)) for report in timed]))
            for stage in STAGES
            if timed
        }
    )


def _pair(comparisons: list[MethodComparison]) -> str:
    cards = []
    for c in comparisons:
        _, data = cv2.imencode(".jpg", c.picture, [cv2.IMWRITE_JPEG_QUALITY, 80])
        verdict = "good" if c.error_deg < GOOD_ERROR_DEG else "bad"
        cards.append(
            f'<figure><img src="{data_uri(data.tobytes())}" alt="Matches of {c.method}">'
            f"<figcaption><h3>{TITLES.get(c.method, c.method)} <code>{c.method}</code></h3>"
            f'<span class="pill {verdict}">{c.error_deg:.1f}° error</span>'
            f"<p>{c.inliers} inliers, {c.true_inliers} of them true matches.</p>"
            "</figcaption></figure>"
        )
    return "".join(cards)

"""The report of a demonstration: one HTML file with all it shows inside, readable anywhere."""

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
from lgc_ros.visualization.charts import plot_histogram, plot_line, plot_map

if TYPE_CHECKING:
    from lgc_ros.evaluation.trajectory_metrics import TrajectoryErrors
    from lgc_ros.ros.live import LiveRun

TEMPLATE = Path(__file__).with_name("report.html")
STAGES = {
    "features": "keypoints",
    "match": "matching",
    "filter": "learned filter",
    "estimate": "robust pose",
    "track": "pose from landmarks",
    "map": "keyframes, refinement",
}


@dataclass(frozen=True, eq=False)
class MethodComparison:
    """What a method made of one pair of views: BGR picture, counts of matches, pose error."""

    method: str
    picture: np.ndarray
    matches: int
    right: int
    inliers: int
    right_inliers: int
    error_deg: float


@dataclass(frozen=True, eq=False)
class Report:
    """All that a demonstration found out.

    Attributes:
        frames: images in the sequence.
        live: how the node did.
        errors: its trajectory against the truth.
        points, colours: (N, 3) landmarks in the world, and RGB.
        contestants: methods on the pair of views.
    """

    frames: int
    live: LiveRun
    errors: TrajectoryErrors
    points: np.ndarray
    colours: np.ndarray
    contestants: list[MethodComparison]

    def metrics(self) -> dict:
        """The numbers, for metrics.json."""
        latency = np.array(list(self.live.latency_ms.values()))
        return {
            "frames": self.frames,
            "answered": self.live.answered,
            "dropped": int(self.live.diagnostics.get("dropped", 0)),
            **self.errors.as_dict(),
            "path_m": self.errors.truth.length_m,
            "fps": self.live.answered / self.live.seconds,
            "latency_ms": {
                "median": float(np.median(latency)),
                "p95": float(np.percentile(latency, 95)),
            },
            "pair_error_deg": {c.method: c.error_deg for c in self.contestants},
        }


def write_report(out: Path, report: Report) -> None:
    """Write report.html, and its pictures as files of their own."""
    errors, live, m = report.errors, report.live, report.metrics()
    truth, estimate = errors.truth.T_wc[:, :3, 3], errors.aligned.T_wc[:, :3, 3]
    plan = plot_map(truth[:, :2], estimate[:, :2])
    seconds = (errors.aligned.stamps_ns - errors.aligned.stamps_ns[0]) * 1e-9
    latency = list(live.latency_ms.values())
    charts = {
        "trajectory": plan.svg,
        "error": plot_line(seconds, 100 * errors.position_m, "seconds", "cm"),
        "latency": plot_histogram(latency, "milliseconds", m["latency_ms"]["median"]),
    }
    for name, svg in charts.items():
        (out / f"{name}.svg").write_text(_standalone(svg), encoding="utf-8")
    frames = _frames(report, plan.pixels, seconds)
    stamps = sorted(live.pictures)
    if stamps:
        (out / "matches.jpg").write_bytes(live.pictures[stamps[len(stamps) // 2]])
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
        map=charts["trajectory"],
        error=charts["error"],
        latency=charts["latency"],
        stages=_stages(live.reports),
        pair=_pair(report.contestants),
        data=json.dumps({"frames": frames, "cloud": _cloud(report, estimate)}),
    )
    (out / "report.html").write_text(page, encoding="utf-8")


def _device(live: LiveRun) -> str:
    return live.diagnostics.get("device", "cpu")


def _frames(report: Report, pixels: np.ndarray, seconds: np.ndarray) -> list[dict]:
    """What the slider shows: the node's picture, and where and how good it was then."""
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


def _cloud(report: Report, way: np.ndarray) -> dict:
    """Points and way in thousandths of the room, as the page's viewer reads them."""
    every = np.concatenate([report.points, way])
    middle = (every.min(axis=0) + every.max(axis=0)) / 2
    size = max(float(np.abs(every - middle).max()), 1e-6)

    def packed(points: np.ndarray) -> str:
        whole = np.round((points - middle) / size * 32000).astype("<i2")
        return base64.b64encode(whole.tobytes()).decode()

    colours = base64.b64encode(report.colours.astype(np.uint8).tobytes()).decode()
    return {"points": packed(report.points), "colours": colours, "way": packed(way)}


def _stages(reports: list[dict[str, str]]) -> str:
    """A bar of the time that each stage takes, on average over the reports of the node."""
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


def _pair(contestants: list[MethodComparison]) -> str:
    titles = {"ransac": "RANSAC on all matches", "cn": "The learned filter first"}
    cards = []
    for c in contestants:
        _, data = cv2.imencode(".jpg", c.picture, [cv2.IMWRITE_JPEG_QUALITY, 80])
        verdict = "good" if c.error_deg < 5 else "bad"
        cards.append(
            f'<figure><img src="{_data_uri(data.tobytes())}" alt="Matches of {c.method}">'
            f"<figcaption><h3>{titles.get(c.method, c.method)} <code>{c.method}</code></h3>"
            f'<span class="pill {verdict}">{c.error_deg:.1f}° off</span>'
            f"<p>{c.inliers} matches believed, {c.right_inliers} of them right.</p>"
            "</figcaption></figure>"
        )
    return "".join(cards)


def _data_uri(jpeg: bytes) -> str:
    return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode()


def _standalone(svg: str) -> str:
    """The chart with colours of its own, for viewers that know nothing of the page."""
    style = (
        "<style>text{font:12px sans-serif;fill:#667}polyline{fill:none}.grid{stroke:#dde}"
        ".axis{stroke:#445;stroke-width:2}.truth{stroke:#aab;stroke-width:7}.mark{stroke:#d9480f}"
        ".estimate{stroke:#0b7fab;stroke-width:2.5}.area,.bar{fill:#0b7fab55}.here{fill:#0b7fab}"
        "</style>"
    )
    head, newline, body = svg.partition("\n")
    return head + newline + style + '<rect width="100%" height="100%" fill="#fff"/>' + body


def write_ply(path: Path, points: np.ndarray, colours: np.ndarray) -> None:
    """Write a coloured point cloud that CloudCompare, MeshLab and RViz plug-ins read."""
    header = (
        f"ply\nformat binary_little_endian 1.0\nelement vertex {len(points)}\n"
        "property float x\nproperty float y\nproperty float z\n"
        "property uchar red\nproperty uchar green\nproperty uchar blue\nend_header\n"
    )
    vertices = np.empty(len(points), [("xyz", "<f4", 3), ("rgb", "u1", 3)])
    vertices["xyz"], vertices["rgb"] = points, colours
    path.write_bytes(header.encode() + vertices.tobytes())

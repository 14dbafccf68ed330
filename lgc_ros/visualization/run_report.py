"""The report of one run of `lgc run` or `lgc evaluate bag`: one self-contained HTML file."""

from __future__ import annotations

import html
import shlex
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

import lgc_ros
from lgc_ros.geometry.trajectory import Trajectory
from lgc_ros.images.frame import Frame
from lgc_ros.odometry.state import OdometryState
from lgc_ros.runtime.output_files import write_file
from lgc_ros.visualization.charts import inline, plot_line, plot_map
from lgc_ros.visualization.page import data_uri, make_page, stage_bar
from lgc_ros.visualization.paths import Line, missing_frames, plane_axes, widest_plane
from lgc_ros.visualization.point_cloud import PointCloud
from lgc_ros.visualization.trajectory import CAMERA_GROUND
from lgc_ros.visualization.video import draw_state

if TYPE_CHECKING:
    from lgc_ros.evaluation.runner import Run

MAX_PICTURES = 40
PICTURE_WIDTH_PX = 640
JPEG_QUALITY = 78
MAX_POINTS = 9000
DEFAULTS = {"every": 1, "align": "sim3"}


class RunPictures:
    """Annotated images of a run, evenly spaced; at most 80 at any time."""

    def __init__(self) -> None:
        self.jpegs: dict[int, tuple[bytes, str]] = {}  # and the text below them, by stamp
        self._frames, self._every = 0, 1

    def add(self, frame: Frame, state: OdometryState) -> None:
        """Keep the picture of a frame if it is due."""
        if self._frames % self._every == 0:
            picture = draw_state(frame.image, state)
            factor = min(1.0, PICTURE_WIDTH_PX / picture.shape[1])
            small = cv2.resize(picture, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)
            _, data = cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
            self.jpegs[state.stamp_ns] = data.tobytes(), state.status
        self._frames += 1
        if len(self.jpegs) == 2 * MAX_PICTURES:
            self.jpegs = dict(list(self.jpegs.items())[::2])
            self._every *= 2


def write_run_report(path: Path, run: Run, pictures: RunPictures) -> None:
    """Write the page of a run."""
    stamps_ns = np.array([state.stamp_ns for state in run.states])
    estimate = run.trajectory if run.errors is None else run.errors.aligned
    line = Line("estimate", estimate, missing_frames(stamps_ns, estimate.stamps_ns))
    truth = None if run.errors is None else run.truth
    plane = CAMERA_GROUND if truth is None else run.ground or widest_plane(truth.positions)
    columns, unit = plane_axes(plane), "" if truth is None else " (m)"
    chart, pixels = plot_map(
        None if truth is None else truth.positions[:, columns],
        estimate.positions[:, columns],
        line.breaks,
        (f"{plane[0]}{unit}", f"{plane[1]}{unit}"),
    )
    m = run.metrics()
    headline = _headline(run, m)
    values = {
        "version": lgc_ros.__version__,
        "date": datetime.now().strftime("%Y-%m-%d %H:%M"),
        "method": html.escape(run.options.method),
        "headline": headline,
        "lead": f"{html.escape(run.name)}: {run.coverage}.",
        "map": inline(chart),
        "truth_key": "" if truth is None else '<span class="key t">ground truth</span>',
        "tiles": _tiles(m),
        "landmarks": _landmarks(run.cloud),
        "stages": stage_bar(m["ms"]),
        "statuses": _statuses(m["statuses"]),
        "reading": _reading(run),
        "command": html.escape(_command(run.recipe, run.options.method)),
        **_curve(run, line, stamps_ns[0]),
    }
    cloud = _upright(_in_world_of(run, _fewer(run.cloud)), plane)
    path_points = _upright(PointCloud(estimate.positions), plane).points
    frames = _frames(run, pictures, estimate, pixels)
    title = f"{html.escape(run.name)}: {headline}"
    page = make_page(title, "report_run.html", values, frames, cloud, path_points)
    write_file(path, page)


def _headline(run: Run, m: Mapping[str, Any]) -> str:
    if run.is_mostly_untracked:
        return f"Only {m['tracked']} of {m['frames']} frames tracked"
    if m["ate_rmse_m"] is None:
        return f"{100 * m['tracked_share']:.0f} % of {m['frames']} frames tracked"
    return f"{m['ate_rmse_m']:.3f}&nbsp;m error over {m['path_m']:.1f}&nbsp;m"


def _tiles(m: Mapping[str, Any]) -> str:
    tiles = [
        (f"{m['tracked']} <small>/ {m['frames']}</small>", "frames tracked"),
        (f"{m['fps']:.1f} <small>fps</small>", "odometry, without reading images"),
        (str(m["keyframes"]), "keyframes"),
    ]
    if m["ate_rmse_m"] is not None and m["path_m"]:
        percent = 100 * m["ate_rmse_m"] / m["path_m"]
        text = "absolute trajectory error (ATE), relative to the path length"
        tiles.insert(0, (f"{percent:.2f} <small>%</small>", text))
    return "".join(
        f'<div class="card tile"><b>{value}</b><span>{text}</span></div>' for value, text in tiles
    )


def _landmarks(cloud: PointCloud) -> str:
    if not len(cloud.points):
        return ""
    return (
        '<h2>Landmarks</h2><p class="note">The landmarks used by the poses, colored by the '
        f"images: {len(cloud.points):,} points in <code>map.ply</code>.</p>"
        '<div class="card cloud"><canvas id="cloud"></canvas>'
        "<p>drag to rotate · line: camera trajectory</p></div>"
    )


def _statuses(counts: Mapping[str, int]) -> str:
    rows = "".join(f"<li>{status}<b>{count}</b></li>" for status, count in counts.items())
    return f'<ul class="legend">{rows}</ul>'


def _reading(run: Run) -> str:
    text = (
        "Lines are interrupted where frames were not tracked, and errors cover tracked frames "
        "only. The first frame defines the world and counts as tracked."
    )
    if run.errors is not None:
        align = run.recipe.get("align", "sim3")
        text += f" The estimate was aligned with the ground truth ({align}) before comparing."
    if reason := run.untracked():
        text += f" {html.escape(reason)}."
    return text


def _command(recipe: Mapping[str, Any], method: str) -> str:
    """The command of the run; further settings are in config.yaml."""
    words = ["lgc", "run", recipe.get("source", "SOURCE")]
    words += ["--profile", "config.yaml", "--method", method]
    for name in ("camera", "kind", "gt", "every", "limit", "fps", "align", "image_topic"):
        value = recipe.get(name)
        if value not in (None, DEFAULTS.get(name)):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


def _curve(run: Run, line: Line, start_ns: int) -> dict[str, str]:
    """The position error over time, or the distance traveled without ground truth."""
    seconds = line.seconds(start_ns)
    if run.errors is not None:
        error_cm = line.points(100 * run.errors.position_m)
        chart = plot_line(seconds, error_cm, "time (s)", "error (cm)")
        return {"curve_title": "Position error", "curve": inline(chart)}
    steps = np.linalg.norm(np.diff(line.trajectory.positions, axis=0), axis=1)
    traveled = line.points(np.append(0.0, np.cumsum(steps)))
    chart = plot_line(seconds, traveled, "time (s)", "distance")
    return {"curve_title": "Distance traveled", "curve": inline(chart)}


def _frames(
    run: Run, pictures: RunPictures, estimate: Trajectory, pixels: np.ndarray
) -> list[dict[str, Any]]:
    """The slider; the marker of an untracked frame stays at the last pose."""
    start_ns, errors = run.states[0].stamp_ns, run.errors
    frames = []
    for stamp_ns, (jpeg, status) in pictures.jpegs.items():
        at = max(int(np.searchsorted(estimate.stamps_ns, stamp_ns, side="right")) - 1, 0)
        caption = status
        if errors is not None and errors.aligned.stamps_ns[at] == stamp_ns:
            caption += f" · error {100 * errors.position_m[at]:.1f} cm"
        frames.append(
            {
                "t": f"{(stamp_ns - start_ns) * 1e-9:.1f}",
                "x": round(float(pixels[at, 0]), 1),
                "y": round(float(pixels[at, 1]), 1),
                "caption": caption,
                "src": data_uri(jpeg),
            }
        )
    return frames


def _fewer(cloud: PointCloud) -> PointCloud:
    count = len(cloud.points)
    kept = np.linspace(0, count - 1, min(count, MAX_POINTS)).round().astype(int)
    return PointCloud(cloud.points[kept], cloud.colors[kept])


def _in_world_of(run: Run, cloud: PointCloud) -> PointCloud:
    """The landmarks in the world of the ground truth, if there are errors."""
    if run.errors is None:
        return cloud
    aligned, own = run.errors.aligned, run.trajectory
    T_aligned = aligned.T_wc[0]
    T_own = own.T_wc[int(np.searchsorted(own.stamps_ns, aligned.stamps_ns[0]))]
    R = T_aligned[:3, :3] @ T_own[:3, :3].T
    points = run.errors.scale * (cloud.points - T_own[:3, 3]) @ R.T + T_aligned[:3, 3]
    return PointCloud(points, cloud.colors)


def _upright(cloud: PointCloud, plane: str) -> PointCloud:
    """With z up; where the ground is xz, as of cameras, y points down."""
    if plane != "xz":
        return cloud
    return PointCloud(cloud.points[:, [0, 2, 1]] * (1, 1, -1), cloud.colors)

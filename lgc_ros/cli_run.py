"""The commands about trajectories: `lgc run`, `lgc evaluate trajectory`, `lgc evaluate bag`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from lgc_ros.cli_errors import stderr
from lgc_ros.errors import ConfigError

if TYPE_CHECKING:
    from lgc_ros.odometry import OdometryOptions, OdometryState
    from lgc_ros.run import Run
    from lgc_ros.sources import Source

stdout = Console()

RESULTS = Path("results")

MethodsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        help="Two-view method, such as cn or ransac+ratio; several are compared. Default: as in "
        "the profile.",
    ),
]
ProfileOption = Annotated[
    str, typer.Option(help="default, fast, accurate, or a YAML file of your own.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change one setting of the profile, e.g. --set window=8."),
]
CameraOption = Annotated[Path | None, typer.Option(help="Camera of the images: camera_info YAML.")]
EveryOption = Annotated[int, typer.Option(min=1, help="Take every N-th frame only.")]
LimitOption = Annotated[int | None, typer.Option(min=1, help="Stop after so many frames.")]
AlignOption = Annotated[
    str, typer.Option(help="Before errors are measured: sim3, se3, scale or none.")
]
ScaleOption = Annotated[
    str | None,
    typer.Option(
        help="Where metres come from: none, constant_speed:MPS, odom, depth, camera_height:METRES."
    ),
]
ImageTopicOption = Annotated[
    str | None, typer.Option(help="Bags: topic of the images; found by type if not given.")
]
InfoTopicOption = Annotated[
    str | None, typer.Option(help="Bags: topic of CameraInfo; beside the images by default.")
]
OdomTopicOption = Annotated[
    str | None,
    typer.Option(help="Bags, --scale odom: topic of wheel odometry; found by type by default."),
]
DepthTopicOption = Annotated[
    str | None,
    typer.Option(help="Bags, --scale depth: topic of depth images; found by type by default."),
]
GroundTruthOption = Annotated[
    str | None, typer.Option(help="Ground truth: a TUM file, or a topic of a bag.")
]
JsonOption = Annotated[
    Path | None, typer.Option("--json", help="Write the results to this JSON file.")
]
OutOption = Annotated[
    Path | None,
    typer.Option(help="Folder for the results; by default a new one in results/, see latest."),
]


def register(app: typer.Typer, evaluate_app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("run")(run)
    evaluate_app.command("trajectory")(evaluate_trajectory)
    evaluate_app.command("bag")(evaluate_bag)


def run(
    source: Annotated[
        str,
        typer.Argument(
            help="KITTI, TUM or EuRoC sequence, folder of images, video, rosbag2, or "
            "synthetic:walk."
        ),
    ],
    camera: CameraOption = None,
    method: MethodsOption = None,
    profile: ProfileOption = "default",
    settings: SetOption = None,
    scale: ScaleOption = None,
    every: EveryOption = 1,
    limit: LimitOption = None,
    gt: GroundTruthOption = None,
    align: AlignOption = "sim3",
    video: Annotated[
        bool, typer.Option("--video", help="Also write video.mp4 of annotated frames.")
    ] = False,
    out: OutOption = None,
    image_topic: ImageTopicOption = None,
    camera_info_topic: InfoTopicOption = None,
    odom_topic: OdomTopicOption = None,
    depth_topic: DepthTopicOption = None,
) -> None:
    """Visual odometry over any source: trajectory, states, plot and, with ground truth, errors."""
    from lgc_ros.sources import open_source

    choices = _choices(method, profile, settings, scale)
    opened = open_source(
        source,
        camera,
        every=every,
        limit=limit,
        gt=gt,
        image_topic=image_topic,
        camera_info_topic=camera_info_topic,
        **_metre_topics(source, choices, odom_topic, depth_topic),
    )
    _run_methods(opened, choices, align, video, out, None)


def evaluate_bag(
    bag: Annotated[Path, typer.Argument(help="rosbag2 folder, .mcap or .db3 file.")],
    image_topic: ImageTopicOption = None,
    camera_info_topic: InfoTopicOption = None,
    gt: GroundTruthOption = None,
    camera: CameraOption = None,
    method: MethodsOption = None,
    profile: ProfileOption = "default",
    settings: SetOption = None,
    scale: ScaleOption = None,
    odom_topic: OdomTopicOption = None,
    depth_topic: DepthTopicOption = None,
    every: EveryOption = 1,
    limit: LimitOption = None,
    align: AlignOption = "sim3",
    json_file: JsonOption = None,
    out: OutOption = None,
) -> None:
    """Replay a bag offline, always with the same result, and compare methods on it.

    Without --method: cn and ransac+ratio.
    """
    from lgc_ros.sources import open_source

    choices = _choices(method or ["cn", "ransac+ratio"], profile, settings, scale)
    opened = open_source(
        bag,
        camera,
        kind="rosbag",
        every=every,
        limit=limit,
        gt=gt,
        image_topic=image_topic,
        camera_info_topic=camera_info_topic,
        **_metre_topics(bag, choices, odom_topic, depth_topic),
    )
    _run_methods(opened, choices, align, False, out, json_file)


def evaluate_trajectory(
    estimate: Annotated[
        Path, typer.Argument(help="Estimated trajectory: TUM or KITTI file, or BAG:/TOPIC.")
    ],
    truth: Annotated[
        Path, typer.Argument(help="True trajectory: TUM or KITTI file, or BAG:/TOPIC.")
    ],
    align: AlignOption = "sim3",
    json_file: JsonOption = None,
) -> None:
    """Absolute and relative errors and KITTI drift of a trajectory."""
    from lgc_ros.trajectory import evaluate_track, read_track

    track, true_track = read_track(estimate), read_track(truth)
    errors = evaluate_track(track, true_track, align)
    table = Table(title=f"{estimate.name}: {len(errors.aligned)} poses, aligned by {align}")
    table.add_column("")
    table.add_column("", justify="right")
    for label, value in (
        ("ATE, RMSE", _number(errors.ate_rmse_m, "m", 4)),
        ("way", _number(errors.truth.length_m, "m", 2)),
        ("RPE over 1 s", _number(errors.rpe_trans_m, "m", 4)),
        ("", _number(errors.rpe_rot_deg, "°", 3)),
        ("KITTI drift", _number(errors.kitti_trans_percent, "%", 3)),
        ("", _number(errors.kitti_rot_deg_per_m, "°/m", 5)),
        ("scale", _number(errors.scale, "", 4)),
    ):
        table.add_row(label, value)
    stdout.print(table)
    if json_file:
        _write_json(json_file, {"align": align, "poses": len(errors.aligned), **errors.as_dict()})
        typer.echo(f"wrote {json_file}")


def _choices(
    methods: list[str] | None, profile: str, settings: list[str] | None, scale: str | None
) -> list[OdometryOptions]:
    """The settings of each method asked for, or of the profile's own."""
    from lgc_ros.profiles import load_profile, parse_assignments

    overrides = parse_assignments(settings or ())
    if scale:
        overrides["scale"] = {**overrides.get("scale", {}), **_scale_settings(scale)}
    each = [{**overrides, "method": m} for m in dict.fromkeys(methods or ())] or [overrides]
    return [load_profile(profile, settings_of_one) for settings_of_one in each]


def _metre_topics(
    source: str | Path,
    choices: list[OdometryOptions],
    odom_topic: str | None,
    depth_topic: str | None,
) -> dict[str, str | None]:
    """Where a bag has what the source of scale needs; found by type if it is not named."""
    from lgc_ros.sources.rosbag import FIND, is_rosbag

    wanted = choices[0].scale.source
    is_bag = is_rosbag(Path(source))
    if wanted == "odom" and not is_bag:
        raise ConfigError(
            "scale source odom needs wheel odometry (nav_msgs/Odometry), which only bags hold: "
            "choose another --scale"
        )
    return {
        "odom_topic": odom_topic or (FIND if wanted == "odom" else None),
        "depth_topic": depth_topic or (FIND if wanted == "depth" and is_bag else None),
    }


def _run_methods(
    source: Source,
    options: list[OdometryOptions],
    align: str,
    video: bool,
    out: Path | None,
    json_file: Path | None,
) -> None:
    """One run per choice of settings; several get a folder each."""
    from lgc_ros.run import new_results_folder, run_odometry, write_run
    from lgc_ros.trajectory_plot import VideoWriter

    folder = out or new_results_folder(RESULTS, source.name)
    runs: dict[str, Run] = {}
    for choice in options:
        target = folder / choice.method if len(options) > 1 else folder
        target.mkdir(parents=True, exist_ok=True)
        writer = VideoWriter(target / "video.mp4") if video else None
        with _progress(f"{source.name}, {choice.method}", _length(source)) as progress:
            done = run_odometry(source, choice, align=align, progress=progress, video=writer)
        if writer:
            writer.close()
        write_run(target, done)
        runs[choice.method] = done
    stdout.print(_runs_table(source.name, runs))
    for error in getattr(source, "errors", ()):
        stderr.print(f"skipped: {error}", style="yellow", markup=False)
    if json_file:
        methods_metrics = {name: done.metrics() for name, done in runs.items()}
        _write_json(json_file, {"dataset": source.name, "methods": methods_metrics})
    for written in filter(None, (json_file, folder)):
        typer.echo(f"wrote {written}")


def _scale_settings(text: str) -> dict[str, Any]:
    """`constant_speed:1.2` names the source and the number it needs."""
    source, colon, number = text.partition(":")
    if not colon:
        return {"source": source}
    names = {"constant_speed": "speed_mps", "camera_height": "camera_height_m"}
    if source not in names:
        raise ConfigError(f"scale source {source!r} takes no number; give --scale {source}")
    return {"source": source, names[source]: number}


def _length(source: Any) -> int | None:
    try:
        return len(source)
    except TypeError:
        return None


def _runs_table(name: str, runs: dict[str, Run]) -> Table:
    table = Table(title=name)
    table.add_column("method", no_wrap=True, min_width=max(map(len, runs)))
    for heading in ("tracked", "ATE m", "% way", "RPE m", "RPE °", "drift %", "fps"):
        table.add_column(heading, justify="right")
    for method, done in runs.items():
        m = done.metrics()
        share = None
        if m["ate_rmse_m"] is not None and m["path_m"]:
            share = 100 * m["ate_rmse_m"] / m["path_m"]
        table.add_row(
            method,
            f"{m['tracked']}/{m['frames']}",
            _number(m["ate_rmse_m"], "", 4),
            _number(share, "", 2),
            _number(m["rpe_trans_m"], "", 4),
            _number(m["rpe_rot_deg"], "", 3),
            _number(m["kitti_trans_percent"], "", 2),
            _number(m["fps"], "", 1),
        )
    return table


def _number(value: float | None, unit: str, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f} {unit}".strip()


@contextmanager
def _progress(title: str, total: int | None) -> Iterator[Any]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[fps]:.1f} fps"),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=stderr, transient=True) as bar:
        task = bar.add_task(title, total=total, fps=0.0, status="")

        def update(state: OdometryState) -> None:
            bar.update(task, advance=1, fps=bar.tasks[0].speed or 0.0, status=state.status)

        yield update


def _write_json(path: Path, content: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

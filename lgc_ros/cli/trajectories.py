"""The commands about trajectories: `lgc run`, `lgc evaluate trajectory`, `lgc evaluate bag`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from lgc_ros.cli.errors import INTERRUPTED, stderr
from lgc_ros.cli.output import JsonOption, check_folder, write_json
from lgc_ros.errors import ConfigError

if TYPE_CHECKING:
    from lgc_ros.evaluation.runner import Run
    from lgc_ros.odometry.options import OdometryOptions
    from lgc_ros.odometry.state import OdometryState
    from lgc_ros.sources import Source

stdout = Console()
log = logging.getLogger(__name__)

METHODS_HELP = (
    "Which matches to trust: cn (learned filter), ransac+ratio or another that `lgc match --help` "
    "explains. Several are compared. "
)
MethodsOption = Annotated[
    list[str] | None,
    typer.Option("--method", help=f"{METHODS_HELP}Default: as in the profile, cn."),
]
ComparedOption = Annotated[
    list[str] | None,
    typer.Option("--method", help=f"{METHODS_HELP}Default: cn and ransac+ratio."),
]
BAG_METHODS = ["cn", "ransac+ratio"]
ProfileOption = Annotated[
    str,
    typer.Option(
        help="default, fast, accurate, a YAML file of your own, or the config.yaml of a run."
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change one setting of the profile, e.g. --set window=8; config/default.yaml "
        "explains them all.",
    ),
]
CameraOption = Annotated[
    Path | None,
    typer.Option(
        help="Camera of the images: camera_info YAML. By default that of the data set or bag, or "
        "camera.yaml beside the images."
    ),
]
EveryOption = Annotated[int, typer.Option(min=1, help="Take every N-th frame only.")]
LimitOption = Annotated[int | None, typer.Option(min=1, help="Stop after so many frames.")]
AlignOption = Annotated[
    str,
    typer.Option(
        help="How the estimate is laid over the truth before errors are measured: sim3 for one "
        "camera without metres, se3 if metres are known (--scale), scale if the first pose is "
        "right, none if both share world and metres."
    ),
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
    str | None,
    typer.Option(
        help="Ground truth, instead of the source's own: a TUM file of camera poses, or a topic "
        "of the bag."
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        callback=check_folder,
        help="Folder for the results; by default a new one in results/, to which results/latest "
        "points.",
    ),
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
            help="KITTI, TUM or EuRoC sequence, folder of images or video with camera.yaml "
            "beside it, rosbag2, or synthetic:walk."
        ),
    ],
    camera: CameraOption = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="What SOURCE is, where its files do not tell: kitti, tum, euroc, rosbag, video "
            "or folder."
        ),
    ] = None,
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
    """Visual odometry over any source: trajectory, states, plot and, with ground truth, errors.

    Writes trajectory_tum.txt, trajectory_kitti.txt, states.csv, trajectory.png, config.yaml and
    metrics.json.

    Examples:

    lgc run path/to/kitti/sequences/07 --every 2

    lgc run images/ --camera camera.yaml --profile fast --scale constant_speed:1.2

    lgc run walk.mcap --method cn --method ransac+ratio --gt /ground_truth
    """
    from lgc_ros.sources import open_source

    choices = _choices(method, profile, settings, scale)
    opened = open_source(
        source,
        camera,
        kind=kind,
        every=every,
        limit=limit,
        gt=gt,
        image_topic=image_topic,
        camera_info_topic=camera_info_topic,
        **_metre_topics(source, kind, choices, odom_topic, depth_topic),
    )
    recipe = _recipe(source, camera, gt, every, limit)
    _run_methods(opened, choices, align, video, out, None, recipe)


def evaluate_bag(
    bag: Annotated[Path, typer.Argument(help="rosbag2 folder, .mcap or .db3 file.")],
    image_topic: ImageTopicOption = None,
    camera_info_topic: InfoTopicOption = None,
    gt: GroundTruthOption = None,
    camera: CameraOption = None,
    method: ComparedOption = None,
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

    Examples:

    lgc evaluate bag walk.mcap --gt /ground_truth --json results.json

    lgc evaluate bag walk.mcap --gt mocap.txt --scale odom --align se3 --method cn
    """
    from lgc_ros.sources import open_source

    choices = _choices(method or BAG_METHODS, profile, settings, scale)
    opened = open_source(
        bag,
        camera,
        kind="rosbag",
        every=every,
        limit=limit,
        gt=gt,
        image_topic=image_topic,
        camera_info_topic=camera_info_topic,
        **_metre_topics(bag, "rosbag", choices, odom_topic, depth_topic),
    )
    if opened.truth is None:
        log.warning("no ground truth: give --gt TOPIC or --gt FILE, or there are no errors")
    recipe = _recipe(bag, camera, gt, every, limit)
    _run_methods(opened, choices, align, False, out, json_file, recipe)


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
    """Absolute and relative errors and KITTI drift of a trajectory.

    Examples:

    lgc evaluate trajectory results/latest/trajectory_tum.txt groundtruth.txt

    lgc evaluate trajectory live.mcap:/lgc_odometry/odometry bag:/ground_truth --align se3
    """
    from lgc_ros.evaluation.trajectory_input import load_trajectory
    from lgc_ros.evaluation.trajectory_metrics import evaluate_trajectory as evaluate

    errors = evaluate(load_trajectory(estimate), load_trajectory(truth), align)
    typer.echo(f"{estimate.name}: {len(errors.aligned)} poses, aligned by {align}")
    table = Table(box=None, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for label, value in (
        ("ATE, RMSE", _number(errors.ate_rmse_m, "m", 4)),
        ("way", _number(errors.truth.length_m, "m", 2)),
        (f"RPE over {errors.rpe_over}", _number(errors.rpe_trans_m, "m", 4)),
        ("", _number(errors.rpe_rot_deg, "°", 3)),
        ("KITTI drift", _number(errors.kitti_trans_percent, "%", 3)),
        ("", _number(errors.kitti_rot_deg_per_m, "°/m", 5)),
        ("scale", _number(errors.scale, "", 4)),
    ):
        table.add_row(label, value)
    stdout.print(table)
    if json_file:
        about = {"align": align, "poses": len(errors.aligned), "path_m": errors.truth.length_m}
        write_json(json_file, {**about, "rpe_over": errors.rpe_over, **errors.as_dict()})
        typer.echo(f"wrote {json_file}")


def _choices(
    methods: list[str] | None, profile: str, settings: list[str] | None, scale: str | None
) -> list[OdometryOptions]:
    """The settings of each method asked for, or of the profile's own."""
    from lgc_ros.odometry.profiles import load_profile, parse_assignments, parse_scale

    overrides = parse_assignments(settings or ())
    if scale:
        changed = overrides.get("scale", {})
        if not isinstance(changed, dict):
            raise ConfigError(f"--set scale={changed} contradicts --scale {scale}: give one only")
        own = asdict(load_profile(profile).scale)
        known = [name for name, value in {**own, **changed}.items() if value is not None]
        overrides["scale"] = {**changed, **parse_scale(scale, known)}
    each = [{**overrides, "method": m} for m in dict.fromkeys(methods or ())] or [overrides]
    return [load_profile(profile, settings_of_one) for settings_of_one in each]


def _recipe(
    source: str | Path, camera: Path | None, gt: str | None, every: int, limit: int | None
) -> dict[str, Any]:
    """What was asked for beside the settings, as config.yaml keeps it."""
    return {
        "source": str(source),
        "camera": None if camera is None else str(camera),
        "gt": gt,
        "every": every,
        "limit": limit,
    }


def _metre_topics(
    source: str | Path,
    kind: str | None,
    choices: list[OdometryOptions],
    odom_topic: str | None,
    depth_topic: str | None,
) -> dict[str, str | None]:
    """Where a bag has what the source of scale needs; found by type if it is not named."""
    from lgc_ros.sources.rosbag import FIND, is_rosbag

    wanted = choices[0].scale.source
    is_bag = kind == "rosbag" or (kind is None and is_rosbag(Path(source)))
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
    recipe: dict[str, Any],
) -> None:
    """One run per choice of settings; several get a folder each. Ctrl-C ends them all."""
    from lgc_ros.evaluation.results import results_folder, write_run
    from lgc_ros.evaluation.runner import run_odometry
    from lgc_ros.visualization.trajectory import VideoWriter

    runs: dict[str, Run] = {}
    with results_folder(out, source.name) as folder:
        for choice in options:
            target = folder / choice.method if len(options) > 1 else folder
            writer = VideoWriter(target / "video.mp4") if video else None
            with _progress(f"{source.name}, {choice.method}", _length(source)) as progress:
                done = run_odometry(
                    source, choice, align=align, progress=progress, video=writer, recipe=recipe
                )
            if writer:
                writer.close()
            write_run(target, done)
            runs[choice.method] = done
            if done.interrupted:
                break
    stdout.print(_runs_table(source.name, runs))
    _explain(source, runs)
    if json_file:
        methods_metrics = {name: done.metrics() for name, done in runs.items()}
        write_json(json_file, {"dataset": source.name, "methods": methods_metrics})
    for written in filter(None, (json_file, folder)):
        typer.echo(f"wrote {written}")
    if done.interrupted:
        raise typer.Exit(INTERRUPTED)


def _explain(source: Source, runs: dict[str, Run]) -> None:
    """What the table does not tell: why frames were not tracked, skipped, or not measured."""
    from lgc_ros.evaluation.runner import missing_ground_truth

    for method, done in runs.items():
        if reason := done.untracked():
            typer.echo(f"{method}: {reason}; states.csv tells it for every frame")
    *_, last = runs.values()
    if last.skipped:
        typer.echo(f"frames skipped because they could not be read: {last.skipped}", err=True)
    if problem := missing_ground_truth(source, last):
        log.warning(problem)


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

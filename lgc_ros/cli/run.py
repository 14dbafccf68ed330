"""`lgc run`: visual odometry over any source; `run_methods` also serves `lgc evaluate bag`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import TextColumn

from lgc_ros.cli import tables
from lgc_ros.cli.errors import INTERRUPTED
from lgc_ros.cli.options import (
    AlignOption,
    CameraOption,
    DepthTopicOption,
    EveryOption,
    ExtractorModelOption,
    ForceOption,
    FpsOption,
    GroundTruthOption,
    ImageTopicOption,
    InfoTopicOption,
    KindOption,
    LimitOption,
    MethodsOption,
    OdomTopicOption,
    OutOption,
    ProfileOption,
    ReportOption,
    RunFeaturesOption,
    ScaleOption,
    SetOption,
)
from lgc_ros.cli.output import FrameRate, echo_written, progress_bar, stdout
from lgc_ros.cli.view import SaveViewOption, ViewOption, viewing
from lgc_ros.errors import ConfigError
from lgc_ros.runtime.output_files import write_json

if TYPE_CHECKING:
    from lgc_ros.evaluation.runner import Run
    from lgc_ros.geometry.camera import Camera
    from lgc_ros.odometry.options import OdometryOptions
    from lgc_ros.sources import Source
    from lgc_ros.visualization.run_report import RunPictures
    from lgc_ros.visualization.video import VideoWriter
    from lgc_ros.visualization.viewer import Viewer

log = logging.getLogger(__name__)

VIDEO, REPORT = "video.mp4", "report.html"

SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="KITTI, TUM or EuRoC sequence, image folder, 'FOLDER/*.png' (in quotes), video, "
        "rosbag2, /dev/video0, URL, GStreamer pipeline, or synthetic:walk.",
    ),
]
VideoOption = Annotated[
    bool, typer.Option("--video", help="Also write video.mp4 with annotated frames.")
]


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("run")(run)


def run(
    source: SourceArgument,
    camera: CameraOption = None,
    kind: KindOption = None,
    method: MethodsOption = None,
    profile: ProfileOption = "default",
    settings: SetOption = None,
    features: RunFeaturesOption = None,
    extractor_model: ExtractorModelOption = None,
    scale: ScaleOption = None,
    every: EveryOption = 1,
    limit: LimitOption = None,
    fps: FpsOption = None,
    gt: GroundTruthOption = None,
    align: AlignOption = "sim3",
    video: VideoOption = False,
    report: ReportOption = False,
    view: ViewOption = None,
    save_view: SaveViewOption = None,
    out: OutOption = None,
    force: ForceOption = False,
    image_topic: ImageTopicOption = None,
    camera_info_topic: InfoTopicOption = None,
    odom_topic: OdomTopicOption = None,
    depth_topic: DepthTopicOption = None,
) -> None:
    """Run visual odometry over a dataset, video, bag or image folder.

    Writes trajectory_tum.txt, trajectory_kitti.txt, states.csv, timing.csv,
    trajectory.png, map.ply, config.yaml and metrics.json, which has the errors if
    ground truth is known. With several methods, writes a folder for each, and
    compares them in comparison.json and comparison.png.

    Examples:

    lgc run path/to/kitti/sequences/07 --every 2

    lgc run images/ --camera camera.yaml --profile fast --scale constant_speed:1.2

    lgc run walk.mcap --method cn --method ransac+ratio --gt /ground_truth

    lgc run /dev/video0 --camera camera.yaml --profile fast --view
    """
    from lgc_ros.sources import open_source

    chosen = {"features": features, "extractor_model": extractor_model}
    choices = method_options(method, profile, settings, scale, chosen)
    opened = open_source(
        source,
        camera,
        kind=kind,
        every=every,
        limit=limit,
        rate_hz=fps,
        gt=gt,
        image_topic=image_topic,
        camera_info_topic=camera_info_topic,
        **scale_topics(source, kind, choices, odom_topic, depth_topic),
    )
    recipe = run_recipe(
        source, camera, gt, every, limit, kind=kind, fps=fps, image_topic=image_topic
    )
    methods = [choice.method for choice in choices]
    with viewing(opened.name, methods, view, save_view) as viewers:
        run_methods(
            opened,
            choices,
            align,
            recipe,
            out,
            force=force,
            video=video,
            report=report,
            viewers=viewers,
        )


def method_options(
    methods: list[str] | None,
    profile: str,
    settings: list[str] | None,
    scale: str | None,
    chosen: Mapping[str, str | None],
) -> list[OdometryOptions]:
    """The settings for each method; without methods, those of the profile alone.

    `chosen` are settings with an option of their own, None where it is not given.
    """
    from lgc_ros.odometry.profiles import load_profile, parse_assignments, parse_scale

    overrides = parse_assignments(settings or ())
    overrides |= {name: value for name, value in chosen.items() if value is not None}
    if scale:
        changed = overrides.get("scale", {})
        if not isinstance(changed, dict):
            raise ConfigError(f"--set scale={changed} contradicts --scale {scale}: give only one")
        own = asdict(load_profile(profile).scale)
        known = [name for name, value in {**own, **changed}.items() if value is not None]
        overrides["scale"] = {**changed, **parse_scale(scale, known)}
    each = [{**overrides, "method": m} for m in dict.fromkeys(methods or ())] or [overrides]
    return [load_profile(profile, settings_of_one) for settings_of_one in each]


def run_recipe(
    source: str | Path,
    camera: str | None,
    gt: str | None,
    every: int,
    limit: int | None,
    **further: Any,
) -> dict[str, Any]:
    """The arguments beside the settings, as config.yaml records them; further ones if given."""
    from lgc_ros.sources.stream import without_login

    return {
        "source": without_login(str(source)),
        "camera": camera,
        "gt": gt,
        "every": every,
        "limit": limit,
        **{name: value for name, value in further.items() if value is not None},
    }


def _described(camera: Camera) -> dict[str, Any]:
    """The calibration of a camera, for config.yaml."""
    K = camera.K
    return {
        "width": camera.width,
        "height": camera.height,
        "model": camera.model,
        "fx_fy_cx_cy": [float(K[0, 0]), float(K[1, 1]), float(K[0, 2]), float(K[1, 2])],
        "D": camera.D.tolist(),
    }


def scale_topics(
    source: str | Path,
    kind: str | None,
    choices: list[OdometryOptions],
    odom_topic: str | None,
    depth_topic: str | None,
) -> dict[str, str | None]:
    """The topics of a bag that the scale source needs; found by type unless given."""
    from lgc_ros.sources.bag_reader import is_rosbag
    from lgc_ros.sources.bag_types import FIND

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


def run_methods(
    source: Source,
    options: list[OdometryOptions],
    align: str,
    recipe: dict[str, Any],
    out: Path | None,
    *,
    force: bool = False,
    video: bool = False,
    report: bool = False,
    json_file: Path | None = None,
    viewers: Mapping[str, Viewer] | None = None,
) -> None:
    """Run each choice of settings, several into a folder each; Ctrl-C skips the remaining ones."""
    from lgc_ros.evaluation.results import comparison, results_folder, write_comparison, write_run
    from lgc_ros.visualization.run_report import RunPictures, write_run_report
    from lgc_ros.visualization.video import video_writer

    recipe = {**recipe, "camera_used": _described(source.camera)}
    runs: dict[str, Run] = {}
    with _shown_at_the_end(source, runs), results_folder(out, source.name, force=force) as folder:
        for choice in options:
            target = folder / choice.method if len(options) > 1 else folder
            pictures = RunPictures() if report else None
            viewer = (viewers or {}).get(choice.method)
            with (
                ExitStack() as afterwards,
                video_writer(target / VIDEO) if video else nullcontext() as writer,
            ):
                done = _run_one(source, choice, align, recipe, writer, pictures, viewer)
                runs[choice.method] = done
                # Also if there was no room for the video.
                afterwards.callback(write_run, target, done)
            if pictures:
                write_run_report(target / REPORT, done, pictures)
            if done.interrupted:
                break
        if len(options) > 1:
            write_comparison(folder, runs)
    if json_file:
        write_json(json_file, comparison(runs))
    echo_written(json_file, folder)
    if done.interrupted:
        raise typer.Exit(INTERRUPTED)


@contextmanager
def _shown_at_the_end(source: Source, runs: dict[str, Run]) -> Iterator[None]:
    """Print the table of the runs, also if there was no room for their files."""
    try:
        yield
    finally:
        if runs:
            stdout.print(tables.runs(source.name, runs))
            _explain(source, runs)


def _run_one(
    source: Source,
    choice: OdometryOptions,
    align: str,
    recipe: dict[str, Any],
    video: VideoWriter | None,
    pictures: RunPictures | None,
    viewer: Viewer | None,
) -> Run:
    """Run one choice of settings with a progress bar."""
    from lgc_ros.evaluation.runner import run_odometry

    columns = FrameRate(), TextColumn("{task.fields[status]}")
    with progress_bar(f"{source.name}, {choice.method}", *columns, status="") as update:
        update(total=source.known_length)
        return run_odometry(
            source,
            choice,
            align=align,
            progress=lambda state: update(advance=1, status=state.status),
            video=video,
            pictures=pictures,
            viewer=viewer,
            recipe=recipe,
        )


def _explain(source: Source, runs: dict[str, Run]) -> None:
    """Why frames were not tracked, not read or not evaluated; what was corrected."""
    from lgc_ros.evaluation.runner import missing_ground_truth

    for method, done in runs.items():
        if done.camera_correction_px >= 1:
            typer.echo(
                f"{method}: the calibration left radial distortion, up to "
                f"{done.camera_correction_px:.1f} px at the corners of the image, which was "
                "corrected"
            )
        if reason := done.untracked():
            typer.echo(f"{method}: {reason}; see states.csv for every frame")
        if done.is_mostly_untracked:
            log.warning(
                "%s: only %s: errors and plots cover these alone, so the run says little about "
                "the sequence",
                method,
                done.coverage,
            )
    *_, last = runs.values()
    if last.skipped:
        typer.echo(f"frames skipped because they could not be read: {last.skipped}", err=True)
    if problem := missing_ground_truth(source, last):
        log.warning(problem)

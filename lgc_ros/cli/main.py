"""`lgc`: parse, call, print. Heavy modules are imported by the command that needs them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    track,
)
from rich.table import Table

import lgc_ros
from lgc_ros.cli import ros as cli_ros
from lgc_ros.cli import trajectories as cli_run
from lgc_ros.cli.errors import ConsoleHandler, explained_errors, stderr
from lgc_ros.cli.output import JsonOption, check_folder, write_json
from lgc_ros.errors import LgcError
from lgc_ros.runtime.allocator import retain_freed_memory

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Visual odometry with learned correspondence filtering.",
)
evaluate_app = typer.Typer(no_args_is_help=True, help="Score methods on data with ground truth.")
app.add_typer(evaluate_app, name="evaluate")
cli_run.register(app, evaluate_app)
cli_ros.register(app)

stdout = Console()

LITTLE_PARALLAX_DEG = 0.2
METHOD_HELP = (
    "cn (learned filter, then robust estimation on the survivors), cn-8pt (one forward pass, "
    "weighted 8-point and refinement, nothing sampled), cn-8pt-plain (without the refinement, as "
    "in the paper), or a baseline on all matches: ransac, lmeds, mlesac, magsac, usac, poselib, "
    "gms; with +ratio (e.g. ransac+ratio) the ratio test comes first, with +ratio+unique also one "
    "match per keypoint, as for cn."
)
FeaturesOption = Annotated[
    str, typer.Option(help="sift, rootsift, orb, akaze, or the path of an ONNX extractor.")
]
KeypointsOption = Annotated[int, typer.Option(min=8, help="Most keypoints per image.")]
ModelOption = Annotated[
    str | None,
    typer.Option(
        help="Filter model: a shipped name or a .safetensors file; by features if not given."
    ),
]
DeviceOption = Annotated[
    str, typer.Option(help="Where the filter runs: auto, cpu, cuda or cuda:N.")
]
ThresholdOption = Annotated[
    float | None,
    typer.Option(
        min=0.01,
        help="Inlier threshold of the estimator in pixels; by default 1.5 for cn and 1 for the "
        "others.",
        show_default=False,
    ),
]


@app.callback(invoke_without_command=True)
def _common(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what is done.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(message)s", handlers=[ConsoleHandler()], force=True)
    if version:
        typer.echo(f"lgc_ros {lgc_ros.__version__}")
        raise typer.Exit


@app.command("match")
def match_pair(
    image0: Annotated[Path, typer.Argument(help="First image.")],
    image1: Annotated[Path, typer.Argument(help="Second image.")],
    camera: Annotated[Path, typer.Option(help="Camera of the first image: camera_info YAML.")],
    camera1: Annotated[
        Path | None, typer.Option(help="Camera of the second image, if it is another one.")
    ] = None,
    method: Annotated[str, typer.Option(help=METHOD_HELP)] = "cn",
    features: FeaturesOption = "sift",
    keypoints: KeypointsOption = 2000,
    model: ModelOption = None,
    device: DeviceOption = "auto",
    threshold: ThresholdOption = None,
    gt: Annotated[
        Path | None,
        typer.Option(
            help="True T_10 (text, 4x4, camera 0 to camera 1): colours then tell right from wrong."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write a picture of the matches.")] = None,
    json_file: JsonOption = None,
) -> None:
    """Relative pose of two images, the matches it rests on, and a picture of them."""
    from lgc_ros.estimation.two_view import TwoViewPipeline, estimator_options
    from lgc_ros.evaluation.pair_metrics import read_pose, score_result
    from lgc_ros.geometry.camera import Camera
    from lgc_ros.images.frame import read_image
    from lgc_ros.visualization.matches import draw_two_view, write_image

    cameras = Camera.from_yaml(camera), Camera.from_yaml(camera1 or camera)
    images = read_image(image0), read_image(image1)
    for path, image, its_camera in zip((image0, image1), images, cameras, strict=True):
        its_camera.check_image(image, name=str(path))
    true_pose = read_pose(gt) if gt else None
    options = estimator_options(method, threshold)
    pipeline = TwoViewPipeline(method, features, keypoints, model, device, options)
    result = pipeline(*images, *cameras)

    summary = {"method": method, **result.as_dict()}
    if true_pose is not None:
        summary["error_deg"] = score_result(result, *true_pose).error_deg
    if json_file:
        write_json(json_file, summary)
    if out:
        caption = [
            f"{method}: {summary['inliers']} inliers of {summary['matches']} matches",
            f"{summary['ms']['total']:.0f} ms",
        ]
        write_image(out, draw_two_view(*images, result, true_pose, caption))
    if result.pose is None:
        raise LgcError(result.failure)
    _print_pose(summary)
    for written in filter(None, (out, json_file)):
        typer.echo(f"wrote {written}")


def _print_pose(summary: dict) -> None:
    rows = "\n  ".join("  ".join(f"{v: .6f}" for v in row) for row in summary["R_10"])
    typer.echo(f"R_10 =\n  {rows}")
    typer.echo("t_10 = " + "  ".join(f"{v: .6f}" for v in summary["t_10"]) + "  (unit length)")
    typer.echo(
        f"{summary['matches']} matches, {summary['kept']} kept, {summary['inliers']} inliers"
    )
    typer.echo("ms: " + ", ".join(f"{k} {v:.1f}" for k, v in summary["ms"].items()))
    if "error_deg" in summary:
        typer.echo(f"pose error {summary['error_deg']:.2f} degrees")
    if summary["parallax_deg"] < LITTLE_PARALLAX_DEG:
        typer.echo(
            f"warning: the views have {summary['parallax_deg']:.2f} degrees of parallax only; the "
            "camera may just have turned, or stood still, and t_10 is then arbitrary",
            err=True,
        )


@evaluate_app.command("pairs")
def evaluate_pair_set(
    folder: Annotated[Path, typer.Argument(help="Folder with pairs.txt and images/.")],
    method: Annotated[
        list[str] | None, typer.Option(help=METHOD_HELP + " May be given several times.")
    ] = None,
    keypoints: KeypointsOption = 2000,
    features: Annotated[
        str,
        typer.Option(
            help="As for match, or stored:SUFFIX for hdf5 files beside the images, e.g. "
            "stored:.sift-2000.hdf5 or stored:.desc.h5 (LIFT)."
        ),
    ] = "sift",
    model: ModelOption = None,
    device: DeviceOption = "auto",
    threshold: ThresholdOption = None,
    images: Annotated[
        Path | None, typer.Option(help="Folder of the images, if not images/ beside pairs.txt.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Take so many pairs, evenly spaced.")
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out lines and images that cannot be read.")
    ] = False,
    json_file: JsonOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            callback=check_folder, help="Write results.json, errors.csv and a plot here."
        ),
    ] = None,
) -> None:
    """mAP and AUC at 5, 10 and 20 degrees, precision and recall, and time, on posed pairs.

    Without --method cn, cn-8pt, cn-8pt-plain and all baselines with and without +ratio are
    compared.
    """
    from lgc_ros.estimation.methods import DEFAULT_METHODS
    from lgc_ros.estimation.two_view import RelativePoseSolver, estimator_options
    from lgc_ros.evaluation.pair_metrics import (
        evaluate_pairs,
        feature_kind,
        summarize,
        write_pair_report,
    )

    methods = dict.fromkeys(method or DEFAULT_METHODS)
    kind = feature_kind(features)
    deciders = {
        name: RelativePoseSolver(name, kind, model, device, estimator_options(name, threshold))
        for name in methods
    }
    with _progress(f"pairs of {folder.name}") as progress:
        scores = evaluate_pairs(
            folder,
            deciders,
            features=features,
            max_keypoints=keypoints,
            limit=limit,
            images=images,
            skip_bad=skip_bad,
            progress=progress,
        )
    results = {
        "dataset": folder.resolve().name,
        "features": features,
        "keypoints": keypoints,
        "methods": {name: summarize(rows) for name, rows in scores.items()},
    }
    stdout.print(_accuracy_table(results), _time_table(results))
    if json_file:
        write_json(json_file, results)
    if out:
        write_json(out / "results.json", results)
        write_pair_report(out, scores)
    for written in filter(None, (json_file, out)):
        typer.echo(f"wrote {written}")


def _accuracy_table(results: dict) -> Table:
    pairs = next(iter(results["methods"].values()))["pairs"]
    title = f"{results['dataset']}: {pairs} pairs, {results['features']}, scores in %"
    headings = ("mAP5", "@10", "@20", "AUC5", "@10", "@20", "prec.", "recall")
    rows = {
        name: [*row["map"].values(), *row["auc"].values(), row["precision"], row["recall"]]
        for name, row in results["methods"].items()
    }
    best = max(row["map"]["20"] for row in results["methods"].values())
    table = _number_table(title, headings)
    for name, values in rows.items():
        style = "bold" if results["methods"][name]["map"]["20"] == best else None
        table.add_row(name, *(f"{100 * value:.1f}" for value in values), style=style)
    return table


def _time_table(results: dict) -> Table:
    table = _number_table(
        "milliseconds per pair", ("features", "match", "filter", "estimate", "total")
    )
    for name, row in results["methods"].items():
        table.add_row(name, *(f"{value:.1f}" for value in row["ms"].values()))
    return table


def _number_table(title: str, headings: tuple[str, ...]) -> Table:
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False
    )
    table.add_column("method", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


@app.command()
def export(
    path: Annotated[Path, typer.Argument(help="ONNX file to write.")],
    model: Annotated[str, typer.Option(help="Shipped model or .safetensors file.")] = "sift",
) -> None:
    """Write a filter model as ONNX: matches (N, 4 + side) in, logits (N,) out, any N."""
    from lgc_ros.filter.backends.onnx_export import export_onnx

    export_onnx(model, path)
    typer.echo(f"wrote {path}")


@app.command()
def doctor() -> None:
    """Say what is wrong with this installation and what to do about it."""
    from lgc_ros.cli.installation import BROKEN, OK, examine

    table = Table("", "", "found", "remedy", box=None)
    failed = False
    for finding in examine():
        bad = finding.status == BROKEN or (finding.required and finding.status != OK)
        failed |= bad and finding.required
        mark = "[green]✓[/]" if finding.status == OK else "[red]✗[/]" if bad else "[dim]–[/]"
        table.add_row(mark, finding.subject, escape(finding.detail), escape(finding.remedy))
    stdout.print(table)
    typer.echo(
        "Something required is missing or broken." if failed else "All that is required works."
    )
    raise typer.Exit(int(failed))


@app.command()
def synth(
    folder: Annotated[Path, typer.Argument(help="Folder to write.")],
    trajectory: Annotated[str, typer.Option(help="walk, loop, rotation or standstill.")] = "walk",
    frames: Annotated[int, typer.Option(min=1, help="Number of frames.")] = 200,
    rate: Annotated[float, typer.Option(help="Frames per second.")] = 20.0,
    seed: Annotated[int, typer.Option(help="Another seed is another room.")] = 0,
    noise: Annotated[float, typer.Option(min=0, help="Image noise in grey levels.")] = 2.0,
    format_: Annotated[
        str, typer.Option("--format", help="tum (RGB-D folder) or bag (rosbag2, mcap).")
    ] = "tum",
) -> None:
    """Write a rendered sequence with exact poses, as a TUM RGB-D folder or a rosbag2."""
    from lgc_ros.errors import ConfigError
    from lgc_ros.sources.bag_writer import write_bag
    from lgc_ros.sources.synthetic import SyntheticSource
    from lgc_ros.sources.tum import write_tum

    writers = {"tum": write_tum, "bag": write_bag}
    if format_ not in writers:
        raise ConfigError(f"unknown format {format_!r}: use {' or '.join(writers)}")
    source = SyntheticSource(trajectory, frames, rate_hz=rate, seed=seed, noise=noise)
    writers[format_](
        source, folder, progress=lambda frames: track(frames, "rendering", console=stderr)
    )
    typer.echo(f"wrote {folder}")


@app.command()
def bench(
    rounds: Annotated[int, typer.Option(min=1, help="How often each contestant runs.")] = 15,
    device: DeviceOption = "auto",
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="Folder with pairs.txt and images/: RANSAC meets its hard pairs, not rendered "
            "ones."
        ),
    ] = None,
    json_file: JsonOption = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the times into this picture.")] = None,
) -> None:
    """How fast every stage and every engine is on this machine, and ratios to compare by."""
    from lgc_ros.evaluation.benchmark import RATIOS, plot_bench, run_bench

    with _progress("rounds") as progress:
        results = run_bench(rounds, device, pairs, progress)
    _print_bench(results, RATIOS)
    if json_file:
        write_json(json_file, results)
    if plot:
        plot_bench(plot, results)
    for written in filter(None, (json_file, plot)):
        typer.echo(f"wrote {written}")


def _print_bench(results: dict, meanings: dict[str, str]) -> None:
    def cell(spread: dict[str, float], two_decimals_below: float = 1) -> str:
        def number(value: float) -> str:
            decimals = sum(value < factor * two_decimals_below for factor in (1, 10))
            return f"{value:.{decimals}f}"

        return f"{number(spread['median'])} ({number(spread['p5'])}-{number(spread['p95'])})"

    machine = results["machine"]
    title = f"milliseconds, median (5-95 %), {machine['threads']} threads"
    stages = _number_table(title, ("features", "match", "filter", "estimate"))
    for name, row in results["ms"].items():
        stages.add_row(name, *(cell(times) for times in row.values()))
    engines: dict[str, dict[str, str]] = {}
    others = {}
    for name, times in results["filter_ms"].items():
        engine, _, count = name.rpartition(" ")
        if count.isdigit():
            engines.setdefault(engine, {})[count] = cell(times)
        else:
            others[name] = cell(times)
    counts = tuple(next(iter(engines.values())))
    filters = _number_table("the filter by engine and number of matches", counts)
    for name, cells in engines.items():
        filters.add_row(name, *cells.values())
    for name, text in others.items():
        filters.add_row(name, *(text if count == "2000" else "" for count in counts))
    frames = _number_table("a frame of a sequence", ("ms",))
    for name, times in results["frame_ms"].items():
        frames.add_row(name, cell(times))
    ratios = Table(title="ratios", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1))
    for heading in ("ratio", "median (5-95 %)", ""):
        ratios.add_column(heading)
    for name, spread in results["ratio_spread"].items():
        ratios.add_row(name, cell(spread, two_decimals_below=10), meanings[name])
    stdout.print(stages, filters, frames, ratios)


@contextmanager
def _progress(title: str) -> Iterator[Callable[[int, int], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=stderr, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def main() -> None:
    """Entry point of `lgc`: an error the user can solve is shown without a traceback."""
    retain_freed_memory()
    with explained_errors():
        app()

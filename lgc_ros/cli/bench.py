"""`lgc bench`: latency of every stage on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lgc_ros.cli import tables
from lgc_ros.cli.options import DeviceOption, JsonOption
from lgc_ros.cli.output import echo_written, progress_bar, stdout
from lgc_ros.runtime.output_files import write_json


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("bench")(bench)


def bench(
    rounds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of measurements per case.")
    ] = 15,
    device: DeviceOption = "auto",
    pairs: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder with pairs.txt and images/: benchmark RANSAC on the hard pairs of this "
            "set instead of rendered ones.",
        ),
    ] = None,
    extractor_model: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="ONNX file of a learned extractor: compare SIFT with it."
        ),
    ] = None,
    json_file: JsonOption = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Plot the times to this image file.")
    ] = None,
) -> None:
    """Measure the latency of every stage and engine on this machine.

    Ratios compare this package with alternatives measured in the same run, so
    that they hold on a busy machine, too.
    """
    from lgc_ros.evaluation.benchmark import RATIOS, plot_bench, run_bench

    with progress_bar("rounds") as update:
        results = run_bench(
            rounds,
            device,
            pairs,
            extractor_model,
            lambda done, total: update(completed=done, total=total),
        )
    stdout.print(*tables.benchmark(results, RATIOS))
    if json_file:
        write_json(json_file, results)
    if plot:
        plot_bench(plot, results)
    echo_written(json_file, plot)

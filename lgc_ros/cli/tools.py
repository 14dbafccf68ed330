"""Tools: `lgc synth`, `lgc export` and `lgc doctor`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from lgc_ros.cli import tables
from lgc_ros.cli.output import FrameRate, counted, echo_written, progress_bar, stdout
from lgc_ros.errors import ConfigError


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("synth")(synth)
    app.command("export")(export)
    app.command("doctor")(doctor)


def synth(
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write.")],
    world: Annotated[str, typer.Option(metavar="NAME", help="room or street.")] = "room",
    trajectory: Annotated[
        str, typer.Option(metavar="NAME", help="walk, loop, rotation or standstill.")
    ] = "walk",
    frames: Annotated[int, typer.Option(min=1, metavar="N", help="Number of frames.")] = 200,
    rate: Annotated[float, typer.Option(metavar="HZ", help="Frames per second.")] = 20.0,
    speed: Annotated[
        float, typer.Option(min=0, metavar="M/S", help="Speed along the path.")
    ] = 0.8,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the world and the path.")] = 0,
    noise: Annotated[
        float,
        typer.Option(
            min=0, metavar="LEVELS", help="Standard deviation of image noise in gray levels."
        ),
    ] = 2.0,
    blur: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="SHARE",
            help="Motion blur: exposure time as a fraction of the frame interval.",
        ),
    ] = 0.0,
    format_: Annotated[
        str,
        typer.Option(
            "--format", metavar="NAME", help="tum (RGB-D folder) or bag (rosbag2 with mcap)."
        ),
    ] = "tum",
) -> None:
    """Render a sequence with exact poses and depth: a TUM RGB-D folder or a rosbag2."""
    from lgc_ros.sources.bag_writer import write_bag
    from lgc_ros.sources.synthetic import SyntheticSource
    from lgc_ros.sources.tum import write_tum

    writers: dict[str, Callable[..., None]] = {
        "tum": write_tum,
        "bag": partial(write_bag, depth=True),
    }
    if format_ not in writers:
        raise ConfigError(f"unknown format {format_!r}: use {' or '.join(writers)}")
    source = SyntheticSource(
        trajectory,
        frames,
        rate_hz=rate,
        speed_mps=speed,
        seed=seed,
        kind=world,
        noise=noise,
        blur=blur,
    )
    with progress_bar("rendering", FrameRate()) as update:
        update(total=frames)
        writers[format_](counted(source, update), folder)
    echo_written(folder)


def export(
    path: Annotated[Path, typer.Argument(metavar="OUT", help="ONNX file to write.")],
    model: Annotated[
        str, typer.Option(metavar="NAME", help="Shipped model or .safetensors file.")
    ] = "sift",
) -> None:
    """Export a filter model to ONNX.

    Input: matches (N, 4 + side channels). Output: logits (N,). N is dynamic.
    """
    from lgc_ros.filter.backends.onnx_export import export_onnx

    export_onnx(model, path)
    echo_written(path)


def doctor() -> None:
    """Check this installation and say how to fix what is missing or broken."""
    from lgc_ros.cli.installation import examine

    findings = list(examine())
    stdout.print(tables.installation(findings))
    failed = any(finding.required and finding.is_problem for finding in findings)
    typer.echo(
        "A required component is missing or broken."
        if failed
        else "All required components found."
    )
    raise typer.Exit(int(failed))

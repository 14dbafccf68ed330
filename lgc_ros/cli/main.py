"""The entry point of `lgc`, assembled from the command groups."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

import lgc_ros
from lgc_ros.cli import bench, calibrate, convert, evaluate, match, ros, run, tools, view
from lgc_ros.cli.app import App
from lgc_ros.cli.errors import ConsoleHandler, calm_interrupts, explained_errors
from lgc_ros.runtime.allocator import retain_freed_memory

app = App("Visual odometry with learned correspondence filtering.")
for group in (run, match, evaluate, calibrate, convert, view, ros, tools, bench):
    group.register(app)


@app.callback(invoke_without_command=True)
def _common(
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also show informational messages.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(message)s", handlers=[ConsoleHandler()], force=True)
    if version:
        typer.echo(f"lgc_ros {lgc_ros.__version__}")
        raise typer.Exit


def main() -> None:
    """Run `lgc`; errors that the user can fix are shown without a traceback."""
    retain_freed_memory()
    with explained_errors(), calm_interrupts():
        app(view.with_default_place(sys.argv[1:]))

"""`lgc view`, and the options `--view` and `--save-view` of `lgc run`: the Rerun viewer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lgc_ros.cli.errors import stderr
from lgc_ros.cli.output import echo_written, progress_bar
from lgc_ros.errors import ConfigError, SourceError
from lgc_ros.visualization.viewer_outputs import PLACES, WEB, WINDOW

if TYPE_CHECKING:
    from lgc_ros.visualization.viewer import Viewer
    from lgc_ros.visualization.viewer_outputs import ViewerOutput

CLOUD = "map.ply"

ViewOption = Annotated[
    str | None,
    typer.Option(
        "--view",
        metavar="[web]",
        help="Show the run while it is computed, in a window, or with `web` in the browser "
        "(extra `view`).",
    ),
]
SaveViewOption = Annotated[
    Path | None,
    typer.Option(
        "--save-view",
        metavar="FILE",
        help="Write what the viewer shows to this .rrd file, for `lgc view FILE`.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("view")(view)


def with_default_place(arguments: list[str]) -> list[str]:
    """The same arguments with `--view` as `--view window`, unless a place follows it."""
    completed = []
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        completed.append(argument)
        if argument == "--view" and following not in PLACES:
            completed.append(WINDOW)
    return completed


def view(
    results: Annotated[
        Path | None,
        typer.Argument(
            metavar="RESULTS", help="Folder that `lgc run` wrote, or an .rrd file of --save-view."
        ),
    ] = None,
    node: Annotated[
        bool, typer.Option("--node", help="Show a running odometry node instead (needs ROS).")
    ] = False,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Full name of the node, with --node.")
    ] = "/lgc_odometry",
    web: Annotated[
        bool, typer.Option("--web", help="Open in the browser instead of a window.")
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE", help="Write an .rrd file instead of showing it."),
    ] = None,
) -> None:
    """Look at a run, or at a running node, in the Rerun viewer.

    Shows images with landmarks, the trajectory and ground truth, status, counts
    and timing, on a time line to scrub. Keyframes and scores of landmarks are
    only in files that `lgc run --save-view` wrote. Several methods are shown in
    one world, aligned with the first.

    Examples:

    lgc view results/latest --web

    lgc view --node
    """
    if node == (results is not None):
        raise ConfigError("give the results of a run, or --node")
    place = None if save else WEB if web else WINDOW
    if node:
        from lgc_ros.ros.view import IMAGE, view_node

        with _open_place(name, place, save, IMAGE) as output:
            view_node(output.recording, name)
    elif results is not None and results.suffix == ".rrd":
        _view_file(results, web)
    elif results is not None:
        _view_folder(results, place, save)


@contextmanager
def viewing(
    title: str, methods: Sequence[str], place: str | None, save: Path | None
) -> Iterator[Mapping[str, Viewer]]:
    """A viewer for each method, or none if none is wanted.

    In the browser it stays open until Ctrl-C.
    """
    if place is None and save is None:
        yield {}
        return
    from lgc_ros.visualization.viewer import IMAGE, method_viewers

    with _open_place(title, place, save, IMAGE, len(methods)) as output:
        yield method_viewers(output.recording, methods)
        if output.url:
            _wait(output.url)


@contextmanager
def _open_place(
    title: str, place: str | None, save: Path | None, image: str, methods: int = 1
) -> Iterator[ViewerOutput]:
    """An open recording, closed at the end."""
    from lgc_ros.visualization.viewer_outputs import open_output

    output = open_output(title, place, save, image, methods)
    if output.url:
        stderr.print(f"viewer: {output.url}", highlight=False, soft_wrap=True)
    try:
        yield output
    finally:  # an interrupted run is saved as far as it came
        output.close()
        echo_written(save)


def _wait(url: str) -> None:
    stderr.print(f"done; {url} stays open until Ctrl-C", highlight=False, soft_wrap=True)
    try:
        while True:
            time.sleep(1)
    except KeyboardInterrupt:
        pass


def _view_folder(folder: Path, place: str | None, save: Path | None) -> None:
    from lgc_ros.evaluation.states_file import read_states
    from lgc_ros.evaluation.stored_run import frames_of_run, method_folders

    folders = method_folders(folder)
    states_of = {method: read_states(path) for method, path in folders.items()}
    first = next(iter(folders))
    with viewing(str(folder), list(folders), place, save) as viewers:
        if (folders[first] / CLOUD).is_file():
            viewers[first].add_cloud(folders[first] / CLOUD)
        for method, states in states_of.items():
            shown = method == first  # images are the same for all methods
            frames = frames_of_run(folders[method], states) if shown else repeat(None)
            with progress_bar(f"reading {method}") as update:
                update(total=len(states))
                for frame, state in zip(frames, states, strict=False):
                    viewers[method].add(frame, state)
                    update(advance=1)


def _view_file(path: Path, web: bool) -> None:
    if not path.is_file():
        raise SourceError(f"{path} does not exist; check the path")
    if not web:
        command = [sys.executable, "-m", "rerun", str(path)]
        raise typer.Exit(subprocess.run(command).returncode)
    from lgc_ros.visualization.viewer_outputs import serve_file

    server, url = serve_file(path)
    stderr.print(f"viewer: {url} stays open until Ctrl-C", highlight=False, soft_wrap=True)
    try:
        code = server.wait()
    except KeyboardInterrupt:  # its normal end
        return
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)  # also the program that it started
        server.wait()
    raise typer.Exit(code)

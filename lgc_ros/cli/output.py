"""Consoles, progress bars, and output paths, which are checked before the work starts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from lgc_ros.cli.errors import stderr
from lgc_ros.errors import ConfigError

stdout = Console()
T = TypeVar("T")


def check_folder(folder: Path | None) -> Path | None:
    """Validate `--out`: an existing folder, or one that can be created."""
    if folder is not None:
        _check_place(folder, f"--out {folder}")
    return folder


def check_json(path: Path | None) -> Path | None:
    """Validate `--json`: a file that can be written."""
    if path is None:
        return None
    if path.is_dir():
        raise ConfigError(f"--json {path} is a folder: give a file, such as {path / 'out.json'}")
    _check_place(path.parent, f"--json {path}")
    return path


def _check_place(folder: Path, option: str) -> None:
    place = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not place.is_dir():
        raise ConfigError(f"{option}: {place} is a file, not a folder; give another path")
    if not os.access(place, os.W_OK | os.X_OK):
        raise ConfigError(f"{option}: {place} is write-protected; give another path")


def echo_written(*paths: Path | None) -> None:
    """Tell the user which files and folders were written."""
    for path in filter(None, paths):
        typer.echo(f"wrote {path}")


def counted(frames: Iterable[T], update: Callable[..., None]) -> Iterator[T]:
    """The frames, which advance a progress bar one by one.

    The bar is not opened here: an iterator that an error leaves unfinished would close it in the
    garbage collection, at a moment when locks of the console may be held.
    """
    for frame in frames:
        yield frame
        update(advance=1)


class FrameRate(ProgressColumn):
    """Frames per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed or 0.0:.1f} fps")


@contextmanager
def progress_bar(
    title: str, *extra: ProgressColumn, **fields: Any
) -> Iterator[Callable[..., None]]:
    """Show a progress bar on stderr; yields `update(completed=…, total=…, advance=…, FIELD=…)`.

    `extra` columns may show the `fields` of the task.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *extra,
        TimeRemainingColumn(),
    )
    # In a file, all that a bar leaves behind is an empty line.
    hidden = not stderr.is_terminal
    with Progress(*columns, console=stderr, transient=True, disable=hidden) as bar:
        task = bar.add_task(title, total=None, **fields)
        yield lambda **changes: bar.update(task, **changes)

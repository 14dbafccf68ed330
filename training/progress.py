"""One console for progress bars and log lines, so that they do not overwrite each other."""

from __future__ import annotations

import logging

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

CONSOLE = Console(stderr=True)


def progress_bar(*more: ProgressColumn) -> Progress:
    """A bar with count and remaining time; hidden if the output is not a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(
        *columns,
        TimeRemainingColumn(),
        *more,
        console=CONSOLE,
        disable=not CONSOLE.is_terminal,
    )


def log_to_console() -> None:
    """Show log messages above the progress bars."""
    handler = RichHandler(console=CONSOLE, show_path=False, omit_repeated_times=False)
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[handler], force=True)

"""`python -m training`: the offline pipeline, one command per step."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lgc_ros.errors import LgcError

app = typer.Typer(no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)


@app.callback()
def _main() -> None:
    """Prepare data, train the correspondence filter, evaluate it and report."""


@app.command()
def prepare(
    config: Path = typer.Argument(help="YAML file: data sources, features, splits, seed."),
    out: Path = typer.Option(Path("dump"), help="Folder for the dumps and their manifests."),
    workers: int | None = typer.Option(None, min=1, help="Local processes (default: all cores)."),
    scheduler: str | None = typer.Option(
        None, help="Dask scheduler, e.g. tcp://host:8786, whose workers see the same files."
    ),
) -> None:
    """Extract, match and label image pairs; call again to resume after an interruption."""
    from training.prepare import prepare as run
    from training.prepare import read_config

    with _progress_bar() as bar:
        rows: dict[str, int] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in rows:
                rows[stage] = bar.add_task(stage, total=total)
            bar.update(rows[stage], completed=done)

        dumps = run(read_config(config), out, workers, scheduler, show)
    for dump in dumps:
        typer.echo(dump)


def _progress_bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


def main() -> None:
    """Run the command line; an error the user can solve is a sentence, not a traceback."""
    try:
        app()
    except LgcError as error:
        Console(stderr=True).print(f"Error: {error}", style="red", markup=False, highlight=False)
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()

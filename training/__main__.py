"""`python -m training`: the offline pipeline, one command per step."""

from __future__ import annotations

from pathlib import Path

import typer

from lgc_ros.cli.app import App
from lgc_ros.cli.errors import calm_interrupts, explained_errors
from lgc_ros.cli.options import ExtractorModelOption
from lgc_ros.cli.output import echo_written, stdout
from lgc_ros.runtime.allocator import retain_freed_memory
from lgc_ros.runtime.safe_yaml import YamlError, parse_yaml
from training.progress import log_to_console, progress_bar

app = App(__doc__)


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
    from training.tables import dump_table

    with progress_bar() as bar:
        rows: dict[str, int] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in rows:
                rows[stage] = bar.add_task(stage, total=total)
            bar.update(rows[stage], completed=done)

        dumps = run(read_config(config), out, workers, scheduler, show)
    stdout.print(dump_table(dumps))
    echo_written(*dumps)


@app.command()
def pairs(
    out: Path = typer.Argument(help="Folder for pairs.txt and images/."),
    paths: list[Path] = typer.Argument(help="Scenes: split folders, sequences, models, bags."),
    reader: str = typer.Option("raw", help="Data layout of the scenes."),
    option: list[str] = typer.Option(
        [], help="Option of the reader, e.g. visibility_above=14 or max_gap=5; may be repeated."
    ),
    limit: int | None = typer.Option(None, min=1, help="Keep this many pairs, at random."),
    seed: int = typer.Option(0, help="Seed of the random choice."),
    copy: bool = typer.Option(False, "--copy", help="Copy images instead of linking to them."),
) -> None:
    """Write pairs with ground truth in SuperGlue's format, for `lgc evaluate pairs OUT`."""
    from training.data.readers import read_scene
    from training.pairs import write_pairs

    options = dict(_key_value(text) for text in option)
    scenes = [read_scene(reader, path, options) for path in paths]
    count = write_pairs(scenes, out, limit, seed, copy)
    typer.echo(f"{count} pairs in {out / 'pairs.txt'}")


@app.command()
def train(
    config: Path = typer.Argument(help="YAML file: data, architecture, loss, schedule, seed."),
    out: Path = typer.Option(..., help="Folder of the run; a resume point in it is continued."),
    change: list[str] = typer.Option(
        [], "--set", help="Replace a key of the file, e.g. steps=1000; may be repeated."
    ),
) -> None:
    """Train the filter; call again to resume. With torchrun: on many GPUs and machines."""
    retain_freed_memory()  # before torch starts threads
    from training.config import read_train_config
    from training.trainer import train as run

    log_to_console()
    typer.echo(
        run(read_train_config(config, dict(_split_assignment(text) for text in change)), out)
    )


@app.command()
def evaluate(
    sets: list[str] = typer.Argument(None, help="Folders with pairs.txt, or dumps."),
    config: Path | None = typer.Option(None, help="YAML file with these settings."),
    group: list[str] = typer.Option(
        [], help="Group of sets, NAME=SET,SET; known… and unknown… become figures 6 and 7."
    ),
    method: list[str] = typer.Option([], help="As in `lgc evaluate pairs`; default: all."),
    features: str | None = typer.Option(None, help="Extractor; default: sift."),
    extractor_model: ExtractorModelOption = None,
    keypoints: list[int] = typer.Option([], help="Keypoints per image; may be repeated."),
    model: list[str] = typer.Option([], help="Filter model, NAME=FILE; may be repeated."),
    poses: list[str] = typer.Option(
        [], help="Poses of other programs, NAME=FILE with lines `name0 name1 R(9) t(3)`."
    ),
    limit: int | None = typer.Option(None, min=1, help="Pairs of each sequence, evenly spaced."),
    workers: int | None = typer.Option(None, min=1, help="Local processes (default: all cores)."),
    scheduler: str | None = typer.Option(None, help="Dask scheduler, e.g. tcp://host:8786."),
    out: Path = typer.Option(Path("results/evaluation"), help="Folder for results.json."),
) -> None:
    """The paper's protocol over many sequences; call again to resume after an interruption."""
    from training.evaluate import evaluate as run
    from training.evaluate import make_evaluate_config
    from training.tables import evaluation_table

    groups = {name: paths.split(",") for name, paths in map(_split_assignment, group)}
    if sets:
        groups["pairs"] = sets
    settings = make_evaluate_config(
        config,
        groups=groups,
        methods=method,
        features=features,
        extractor_model=extractor_model,
        keypoints=keypoints,
        models=dict(map(_split_assignment, model)),
        poses=dict(map(_split_assignment, poses)),
        limit=limit,
    )
    with progress_bar() as bar:
        row = bar.add_task("sequences", total=None)

        def show(stage: str, done: int, total: int) -> None:
            bar.update(row, completed=done, total=total)

        results = run(settings, out, workers, scheduler, show)
    stdout.print(evaluation_table(results))
    echo_written(results)


@app.command()
def report(
    results: list[Path] = typer.Argument(help="results.json files, or folders that contain one."),
    out: Path = typer.Option(Path("results/report"), help="Folder for report.md and figures."),
) -> None:
    """The paper's tables and figures from evaluation results."""
    from training.report import write_report
    from training.results import read_results

    typer.echo(write_report(read_results(results), out))


@app.command()
def reliability(
    model: str = typer.Argument(help="Name of a shipped model, or a model file."),
    dumps: list[Path] = typer.Argument(help="Dumps of scenes that were not trained on."),
    out: Path = typer.Option(Path("reliability.png"), help="File for the diagram."),
) -> None:
    """Reliability diagram and expected calibration error of a model's scores."""
    from lgc_ros.filter.checkpoint import load_checkpoint
    from training.data.batches import open_dump
    from training.reliability import (
        expected_calibration_error,
        plot_reliability,
        scores_and_labels,
    )

    network, info = load_checkpoint(model)
    opened = [open_dump(path, info.side) for path in dumps]
    scores, true = scores_and_labels(network, info, opened)
    plot_reliability(out, scores, true, f"{info.name}, {len(true)} matches")
    for name, values in scores.items():
        error = expected_calibration_error(values, true)
        typer.echo(f"expected calibration error {error:.4f} ({name})")
    typer.echo(f"{len(true)} matches; {out}")


@app.command()
def margin(
    model: str = typer.Argument(help="Name of a shipped model, or a model file."),
    dumps: list[Path] = typer.Argument(help="Dumps of scenes that were not trained on."),
    candidates: list[float] = typer.Option(
        [0, 2, 3, 3.5, 4, 4.5, 5, 5.5, 6], "--margin", help="Margin to try; may be repeated."
    ),
    out: Path | None = typer.Option(None, help="File for the model with the best margin."),
) -> None:
    """Choose the margin of a trained model by mAP of cn-8pt-plain."""
    from lgc_ros.filter.checkpoint import load_checkpoint, save_checkpoint
    from training.data.batches import open_dump
    from training.margin import closed_form_map, with_margin

    network, info = load_checkpoint(model)
    opened = [open_dump(path, info.side) for path in dumps]
    scores = closed_form_map(network, info, opened, candidates)
    for value, by_threshold in scores.items():
        numbers = "  ".join(f"mAP@{deg} {score:.3f}" for deg, score in by_threshold.items())
        typer.echo(f"margin {value:4.1f}  {numbers}")
    if out:
        best = max(scores, key=lambda value: sum(scores[value].values()))
        save_checkpoint(out, *with_margin(network, info, best))
        typer.echo(f"{out}: margin {best}")


def _split_assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"'{text}' is not of the form key=value")
    return key, value


def _key_value(text: str) -> tuple[str, object]:
    key, value = _split_assignment(text)
    try:
        return key, parse_yaml(value)
    except YamlError as error:
        raise typer.BadParameter(f"the value of '{text}' cannot be read: {error}") from error


def main() -> None:
    """Run the command line; an error the user can solve is a sentence, not a traceback."""
    with explained_errors(), calm_interrupts():
        app()


if __name__ == "__main__":
    main()

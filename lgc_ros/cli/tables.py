"""Tables that commands print, at most 80 columns wide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rich import box
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from lgc_ros.cli.installation import Finding
    from lgc_ros.evaluation.runner import Run
    from lgc_ros.evaluation.trajectory_metrics import TrajectoryErrors


def number_table(title: str, label: str, headings: Iterable[str]) -> Table:
    """A table with a column of labels and right-aligned columns of numbers."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.pad_edge = False
    # If the terminal is too narrow, labels wrap, and no number is cut.
    table.add_column(label, overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def number(value: float | None, digits: int, unit: str = "") -> str:
    """A number with its unit, or a dash if there is none."""
    return "–" if value is None else f"{value:.{digits}f} {unit}".strip()


def runs(name: str, runs: Mapping[str, Run]) -> Table:
    """Errors and speed of each method on one source."""
    headings = ("tracked", "%", "ATE m", "ATE %", "RPE m", "RPE °", "drift %", "fps")
    table = number_table(name, "method", headings)
    for method, run in runs.items():
        m = run.metrics()
        percent = None
        if m["ate_rmse_m"] is not None and m["path_m"]:
            percent = 100 * m["ate_rmse_m"] / m["path_m"]
        table.add_row(
            # Beside eight columns of numbers there is no room for the longest names.
            method.replace("+unique", "\n+unique"),
            f"{m['tracked']}/{m['frames']}",
            f"{100 * m['tracked_share']:.0f}",
            number(m["ate_rmse_m"], 4),
            number(percent, 2),
            number(m["rpe_trans_m"], 4),
            number(m["rpe_rot_deg"], 3),
            number(m["kitti_trans_percent"], 2),
            number(m["fps"], 1),
            style="red" if run.is_mostly_untracked else None,
        )
    return table


def trajectory_errors(errors: TrajectoryErrors) -> Table:
    """Errors of one trajectory, one per line."""
    table = Table(box=None, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for label, value in (
        ("ATE, RMSE", number(errors.ate_rmse_m, 4, "m")),
        ("path length", number(errors.truth.length_m, 2, "m")),
        (f"RPE over {errors.rpe_over}", number(errors.rpe_trans_m, 4, "m")),
        ("", number(errors.rpe_rot_deg, 3, "°")),
        ("KITTI drift", number(errors.kitti_trans_percent, 3, "%")),
        ("", number(errors.kitti_rot_deg_per_m, 5, "°/m")),
        ("scale", number(errors.scale, 4)),
    ):
        table.add_row(label, value)
    return table


def pairs(results: dict) -> tuple[Table, ...]:
    """Accuracy, its bootstrap intervals, and times of each method on image pairs."""
    return _pair_accuracy(results), _pair_intervals(results), _pair_times(results)


def _pair_accuracy(results: dict) -> Table:
    """mAP, AUC, precision and recall in %, the best mAP at 20 degrees in bold."""
    methods = results["methods"]
    pairs = next(iter(methods.values()))["pairs"]
    title = f"{results['dataset']}: {pairs} pairs, {results['features']}, scores in %"
    headings = ("mAP5", "@10", "@20", "AUC5", "@10", "@20", "prec.", "recall")
    table = number_table(title, "method", headings)
    best = max(row["map"]["20"] for row in methods.values())
    for name, row in methods.items():
        values = *row["map"].values(), *row["auc"].values(), row["precision"], row["recall"]
        style = "bold" if row["map"]["20"] == best else None
        table.add_row(name, *(number(100 * value, 1) for value in values), style=style)
    return table


def _pair_intervals(results: dict) -> Table:
    """Bootstrap intervals of mAP and AUC in %."""
    headings = ("mAP5", "@10", "@20", "AUC5", "@10", "@20")
    table = number_table("95 % bootstrap intervals over the pairs, in %", "method", headings)
    for name, row in results["methods"].items():
        intervals = *row["map_interval"].values(), *row["auc_interval"].values()
        table.add_row(name, *(f"{100 * low:.0f}–{100 * high:.0f}" for low, high in intervals))
    return table


def _pair_times(results: dict) -> Table:
    """Milliseconds per pair by stage."""
    headings = ("features", "match", "filter", "estimate", "total")
    table = number_table("milliseconds per pair", "method", headings)
    for name, row in results["methods"].items():
        table.add_row(name, *(number(value, 1) for value in row["ms"].values()))
    return table


def message_counts(done: str, counts: Mapping[str, int]) -> Table:
    """Number of messages by topic; `done` says what was done with them."""
    table = Table("topic", done, box=None)
    table.columns[1].justify = "right"
    for topic, count in sorted(counts.items()):
        table.add_row(topic, str(count))
    return table


def installation(findings: Iterable[Finding]) -> Table:
    """What `lgc doctor` found."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in findings:
        mark = "[green]✓[/]"
        if not finding.ok:
            mark = "[red]✗[/]" if finding.is_problem else "[dim]–[/]"
        # One below the other, so that commands to copy are not broken apart.
        lines = filter(None, (escape(finding.detail), escape(finding.remedy)))
        table.add_row(mark, finding.subject, "\n".join(lines))
    return table


def benchmark(results: dict, ratio_meanings: Mapping[str, str]) -> tuple[Table, ...]:
    """Times by stage, by engine and per frame, and ratios."""
    threads = results["machine"]["threads"]
    stages = number_table(
        f"milliseconds, median (5-95 %), {threads} threads",
        "method",
        ("features", "match", "filter", "estimate"),
    )
    for name, row in results["ms"].items():
        stages.add_row(name, *(_spread(times) for times in row.values()))
    frames = number_table("milliseconds per frame", "profile", ("ms",))
    for name, times in results["frame_ms"].items():
        frames.add_row(name, _spread(times))
    ratios = Table(title="ratios", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1))
    for heading in ("ratio", "median (5-95 %)", ""):
        ratios.add_column(heading)
    for name, spread in results["ratio_spread"].items():
        ratios.add_row(name, _spread(spread, two_decimals_below=10), ratio_meanings[name])
    return stages, _engines(results["filter_ms"]), frames, ratios


def _engines(filter_ms: Mapping[str, dict[str, float]]) -> Table:
    """Times of the filter by engine and number of matches; of other cases with 2000 matches."""
    engines: dict[str, dict[str, str]] = {}
    others = {}
    for name, times in filter_ms.items():
        engine, _, count = name.rpartition(" ")
        if count.isdigit():
            engines.setdefault(engine, {})[count] = _spread(times)
        else:
            others[name] = _spread(times)
    counts = tuple(next(iter(engines.values())))
    table = number_table("milliseconds of the filter by number of matches", "engine", counts)
    for name, cells in engines.items():
        table.add_row(name, *cells.values())
    for name, text in others.items():
        table.add_row(name, *(text if count == "2000" else "" for count in counts))
    return table


def _spread(spread: dict[str, float], two_decimals_below: float = 1) -> str:
    """Median and percentiles; numbers under 1 or 10 times the limit get two or one decimals."""

    def rounded(value: float) -> str:
        decimals = sum(value < factor * two_decimals_below for factor in (1, 10))
        return f"{value:.{decimals}f}"

    return f"{rounded(spread['median'])} ({rounded(spread['p5'])}-{rounded(spread['p95'])})"

"""Tables fit into 80 columns, and neither numbers nor names are cut."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from lgc_ros.cli import tables
from lgc_ros.cli.installation import examine
from lgc_ros.estimation.methods import METHODS
from lgc_ros.evaluation.benchmark import RATIOS

STAGES = ("features", "match", "filter", "estimate")


def printed(*renderables):
    """What a terminal of 80 columns shows."""
    console = Console(file=io.StringIO(), width=80)
    console.print(*renderables)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    return text


def test_scores_of_all_methods_fit():
    perfect = {str(degrees): 1.0 for degrees in (5, 10, 20)}
    row = {
        "pairs": 4000,
        "map": perfect,
        "auc": perfect,
        "map_interval": dict.fromkeys(perfect, (1.0, 1.0)),
        "auc_interval": dict.fromkeys(perfect, (1.0, 1.0)),
        "precision": 1.0,
        "recall": 1.0,
        "ms": dict.fromkeys((*STAGES, "total"), 1234.5),
    }
    results = {
        "dataset": "sacre_coeur",
        "features": "sift",
        "methods": dict.fromkeys(METHODS, row),
    }
    text = printed(*tables.pairs(results))
    for method in METHODS:
        assert text.count(f" {method} ") == 3
    assert text.count("100.0") == 8 * len(METHODS)
    assert text.count("100–100") == 6 * len(METHODS)


def test_errors_of_runs_fit(finished_run):
    errors = replace(finished_run.errors, ate_rmse_m=12.3456, rpe_trans_m=1.2345, rpe_rot_deg=12.3)
    errors = replace(errors, kitti_trans_percent=12.34)
    run = replace(finished_run, errors=errors, states=finished_run.states * 60)
    text = printed(tables.runs("walk", dict.fromkeys(METHODS, run)))
    for number in ("12.3456", "1.2345", "12.300", "12.34"):
        assert text.count(f" {number} ") == len(METHODS)
    for method in METHODS:
        assert f" {method.removesuffix('+unique')} " in text


def test_times_of_a_benchmark_fit():
    slow = {"median": 1234.5, "p5": 1123.4, "p95": 1345.6}
    results = {
        "machine": {"threads": 16},
        "ms": dict.fromkeys(("cn", "cn-8pt", "poselib+ratio"), dict.fromkeys(STAGES, slow)),
        "frame_ms": dict.fromkeys(("default", "accurate"), slow),
        "filter_ms": {
            f"{engine} {count}": slow
            for engine in ("default", "onnxruntime")
            for count in (500, 1000, 2000, 4000)
        },
        "ratio_spread": {name: {"median": 19.1, "p5": 15.2, "p95": 21.3} for name in RATIOS},
    }
    text = printed(*tables.benchmark(results, RATIOS))
    assert text.count("1234 (1123-1346)") + text.count("1235 (1123-1346)") >= 14
    for name in RATIOS:
        assert name in text


def test_commands_to_copy_are_not_broken_apart():
    text = printed(tables.installation(examine()))
    missing = [finding for finding in examine() if finding.remedy]
    for word in {word for finding in missing for word in finding.remedy.split()}:
        assert word in text.split()


@pytest.mark.parametrize(
    "command",
    [(), ("run",), ("match",), ("evaluate", "pairs"), ("evaluate", "bag"), ("play",), ("record",)],
)
def test_help_fits_and_shows_flags_as_flags(invoke, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    text = invoke(*command, "--help").output
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert "bool" not in text
    assert "--help" in text

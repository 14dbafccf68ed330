"""Help, and output paths that cannot be written."""

import pytest
from runs import RESULTS

from lgc_ros.errors import ConfigError


def test_help_lists_every_command(lgc):
    code, printed = lgc("--help")
    assert code == 0
    commands = ("match", "run", "evaluate", "play", "record", "demo", "export", "bench", "doctor")
    for command in commands:
        assert command in printed


COMMANDS = (
    *("match", "run", "calibrate", "convert", "view", "play", "record", "demo", "synth"),
    *("export", "doctor", "bench"),
)
EVALUATIONS = "pairs", "trajectory", "bag"


@pytest.mark.parametrize("command", [*COMMANDS, *(f"evaluate {name}" for name in EVALUATIONS)])
def test_help_fits_into_80_columns(invoke, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    printed = invoke(*command.split(), "--help").output
    assert max(map(len, printed.splitlines())) <= 80
    assert "…" not in printed


def test_a_pattern_that_the_shell_expanded_is_recognized(invoke, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = invoke("run", *(f"images/{k:06}.png" for k in range(500)))
    printed = " ".join(result.output.replace("│", " ").split())
    assert result.exit_code == 2
    assert "(images/000001.png and 498 more). Put a pattern of several files in quotes" in printed
    assert len(printed) < 500


def test_help_has_examples_and_names_the_files_written(invoke):
    printed = invoke("run", "--help").output
    assert all(name in printed for name in RESULTS)
    for command in (("run",), ("evaluate", "trajectory"), ("evaluate", "bag")):
        printed = " ".join(invoke(*command, "--help").output.replace("│", " ").split())
        assert f"Examples: lgc {' '.join(command)} " in printed
    assert "Default: cn and" in printed


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_an_unwritable_path_is_rejected_before_the_work(invoke, tum_folder, tmp_path, place):
    (tmp_path / "file").write_text("")
    for arguments in (
        ("run", tum_folder, "--out", tmp_path / place),
        ("evaluate", "bag", tum_folder, "--json", tmp_path / place / "results.json"),
        ("evaluate", "trajectory", "a.txt", "b.txt", "--json", tmp_path / place / "e.json"),
        ("bench", "--json", tmp_path / place / "bench.json"),
    ):
        result = invoke(*arguments)
        assert isinstance(result.exception, ConfigError)
        assert f"{tmp_path / 'file'} is a file, not a folder" in str(result.exception)
    result = invoke("bench", "--json", tmp_path)
    assert "is a folder: give a file" in str(result.exception)

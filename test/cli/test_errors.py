"""Exit codes and messages instead of tracebacks."""

import subprocess
import sys
from pathlib import Path

import pytest

from lgc_ros.cli.errors import explained_errors


def test_ctrl_c_during_imports_exits_without_a_traceback(capsys):
    with pytest.raises(SystemExit, match="130"), explained_errors():
        raise KeyboardInterrupt
    assert capsys.readouterr() == ("", "")


def test_ctrl_c_in_a_compiled_function_exits_without_a_traceback(capsys):
    """numba reports it as a SystemError; this is what `lgc match` would show."""
    with pytest.raises(SystemExit, match="130"), explained_errors():
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()
    assert capsys.readouterr() == ("", "")


IMPATIENT = """
import os, signal, time
from lgc_ros.cli.errors import calm_interrupts, explained_errors
signal.signal(signal.SIGINT, signal.default_int_handler)
with explained_errors(), calm_interrupts():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        for _ in range({more}):
            os.kill(os.getpid(), signal.SIGINT)
        print("results written")
        raise
"""


@pytest.mark.parametrize("more", [0, 1, 2])
def test_a_second_ctrl_c_lets_results_be_written_and_a_third_ends_at_once(more):
    command = [sys.executable, "-c", IMPATIENT.format(more=more)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 130, ended.stderr
    assert ended.stdout == ("" if more == 2 else "results written\n")
    assert ended.stderr.count("press Ctrl-C once more") == (more > 0)
    assert "Traceback" not in ended.stderr


def test_a_failure_of_the_file_system_is_one_sentence(capsys):
    with pytest.raises(SystemExit, match="1"), explained_errors():
        Path("/dev/full").write_text("text")
    assert "error: the disk is full; free some space" in capsys.readouterr().err

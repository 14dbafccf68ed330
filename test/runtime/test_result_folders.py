"""One run at a time writes to a folder, and files of two runs never mix."""

import os
import subprocess
import sys

import pytest

from lgc_ros.errors import LgcError, OutputError
from lgc_ros.runtime.result_folders import result_folder


def earlier(folder):
    return [path for path in folder.iterdir() if path.name == "old.txt"]


def test_earlier_results_are_kept_without_force(tmp_path):
    (tmp_path / "old.txt").write_text("old")
    message = r"already holds results \(old\.txt\): replace them with --force"
    with pytest.raises(OutputError, match=message), result_folder(tmp_path, earlier):
        raise AssertionError("not reached")
    assert (tmp_path / "old.txt").read_text() == "old"


def test_force_removes_earlier_results_and_nothing_else(tmp_path):
    (tmp_path / "old.txt").write_text("old")
    (tmp_path / "notes.txt").write_text("mine")
    with result_folder(tmp_path, earlier, force=True):
        assert os.listdir(tmp_path) == ["notes.txt"]


def test_folders_that_stay_empty_are_removed_after_an_error(tmp_path):
    with pytest.raises(LgcError), result_folder(tmp_path / "new" / "out", earlier):
        raise LgcError
    assert os.listdir(tmp_path) == []


def test_a_second_run_into_the_same_folder_is_refused(tmp_path):
    program = f"""
from pathlib import Path
from lgc_ros.runtime.result_folders import result_folder
with result_folder(Path({str(tmp_path)!r}), lambda folder: []):
    pass
"""
    with result_folder(tmp_path, earlier):
        second = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert f"another run is writing to {tmp_path}" in second.stderr
    third = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert third.returncode == 0, third.stderr

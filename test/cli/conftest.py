"""Fixtures that run the command line: real files, real messages, exit codes."""

import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from lgc_ros.cli.main import app, main
from lgc_ros.visualization.matches import write_image


@pytest.fixture
def lgc(monkeypatch, capsys):
    """Runs `lgc`; returns the exit code and everything printed, with white space folded."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["lgc", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capsys.readouterr()
        return stopped.value.code or 0, " ".join((printed.out + printed.err).split())

    return run


@pytest.fixture(scope="session")
def invoke():
    """Runs `lgc` and returns typer's result, whose `exception` is the error raised."""
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def views(walk, tmp_path_factory):
    """image0.png, image1.png, camera.yaml and T_10.txt of two rendered views."""
    folder = tmp_path_factory.mktemp("views")
    frames = walk[20], walk[32]
    for k, frame in enumerate(frames):
        write_image(folder / f"image{k}.png", frame.image)
    frames[0].camera.to_yaml(folder / "camera.yaml")
    np.savetxt(folder / "T_10.txt", np.linalg.inv(frames[1].T_wc) @ frames[0].T_wc)
    return folder

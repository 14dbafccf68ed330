"""`lgc run` on a live camera: runs until Ctrl-C, then writes its results."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from runs import RESULTS, SETTINGS
from streams import network_camera

ROOT = Path(__file__).parents[2]
DEADLINE_S = 120
PROGRAM = """
import signal
from lgc_ros.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""


def is_running(folder):
    """Whether the video of a run has its first frames."""
    return any(path.stat().st_size for path in folder.glob("*.mp4"))


@pytest.mark.slow
def test_a_live_camera_runs_until_ctrl_c_and_results_are_written(short_walk, tmp_path):
    images = [frame.image for frame in short_walk]
    out, log = tmp_path / "out", tmp_path / "log.txt"
    with network_camera(images, rate_hz=5, forever=True) as url, log.open("w") as file:
        login = url.replace("http://", "http://me:secret@")
        # Tests started in the background ignore Ctrl-C, and what they start would inherit that.
        command = [sys.executable, "-c", PROGRAM, "run", login, "--camera", "fov:60"]
        run = subprocess.Popen(
            [*command, *SETTINGS, "--video", "--out", str(out)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=file,
            stderr=file,
        )
        deadline = time.monotonic() + DEADLINE_S
        while not is_running(out) and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        run.send_signal(signal.SIGINT)
        code = run.wait(DEADLINE_S)
    text = log.read_text()
    assert code == 130, text
    assert {path.name for path in out.iterdir()} >= RESULTS
    config = yaml.safe_load((out / "config.yaml").read_text())
    assert config["source"] == url
    assert "secret" not in text + (out / "config.yaml").read_text()


@pytest.mark.slow
def test_a_stream_that_falls_silent_ends_the_run_with_its_results(short_walk, tmp_path):
    images = [frame.image for frame in short_walk]
    program = PROGRAM.replace("main()\n", "stream.SILENT_S = 2.0\nmain()\n")
    with network_camera(images, rate_hz=5, silent=True) as url:
        command = [
            sys.executable,
            "-c",
            f"from lgc_ros.sources import stream{program}",
            "run",
            url,
        ]
        ended = subprocess.run(
            [*command, "--camera", "fov:60", *SETTINGS, "--out", str(tmp_path / "out")],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
    assert ended.returncode == 0, ended.stderr
    assert "sent no image for 2 seconds" in ended.stderr
    assert {path.name for path in (tmp_path / "out").iterdir()} >= RESULTS

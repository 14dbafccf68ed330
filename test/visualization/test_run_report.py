"""The report of a run is one self-contained file, with or without ground truth."""

import html
import json
import re
import shlex
from dataclasses import replace

import numpy as np
import pytest

from lgc_ros.visualization.run_report import MAX_PICTURES, RunPictures, write_run_report


def data_of(page):
    text = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1]
    return json.loads(text)


@pytest.mark.parametrize("with_truth", [True, False])
def test_a_report_needs_nothing_but_a_browser(finished_run, short_walk, tmp_path, with_truth):
    run = finished_run
    if not with_truth:
        run = replace(run, truth=None, errors=None)
    pictures = RunPictures()
    for frame, state in zip(short_walk, run.states, strict=True):
        pictures.add(frame, state)
    write_run_report(tmp_path / "report.html", run, pictures)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert "$" not in re.sub(r"<(script|style).*?</\\1>", "", page, flags=re.DOTALL)
    assert run.coverage in page
    assert ("ground truth</span>" in page) == with_truth
    frames = data_of(page)["frames"]
    assert len(frames) == len(short_walk)
    assert all(frame["src"].startswith("data:image/jpeg;base64,") for frame in frames)
    assert any("error" in frame["caption"] for frame in frames) == with_truth


def test_a_mostly_untracked_run_does_not_begin_with_its_error(finished_run, tmp_path):
    lost = [replace(state, status="lost") for state in finished_run.states[4:]]
    run = replace(finished_run, states=[*finished_run.states[:4], *lost])
    write_run_report(tmp_path / "report.html", run, RunPictures())
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    headline = re.search("<h1>(.*?)</h1>", page)[1]
    assert headline == f"Only {len(run.located)} of {len(run.states)} frames tracked"


def test_the_command_of_a_report_can_be_pasted_into_a_shell(finished_run, tmp_path):
    recipe = {
        "source": "my walk/*.png",
        "camera": "fov:70",
        "every": 1,
        "kind": "folder",
        "fps": 5,
    }
    run = replace(finished_run, recipe=recipe)
    write_run_report(tmp_path / "report.html", run, RunPictures())
    page = html.unescape((tmp_path / "report.html").read_text(encoding="utf-8"))
    words = shlex.split(re.search(r"lgc run '.*", page)[0].partition("<")[0])
    expected = ["--camera", "fov:70", "--kind", "folder", "--fps", "5"]
    assert words[2] == "my walk/*.png"
    assert words[-6:] == expected


def test_pictures_of_long_runs_stay_few_and_evenly_spaced(finished_run, short_walk):
    pictures, state = RunPictures(), finished_run.states[3]
    for stamp_ns in range(1000):
        pictures.add(short_walk[3], replace(state, stamp_ns=stamp_ns))
    stamps = list(pictures.jpegs)
    assert MAX_PICTURES <= len(stamps) < 2 * MAX_PICTURES
    assert len(set(np.diff(stamps))) == 1

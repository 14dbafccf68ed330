"""`lgc run --save-view` and `lgc view`."""

import os
import re
import shutil
import signal
import subprocess
import sys
from time import monotonic, sleep
from urllib.request import urlopen

import numpy as np
import pytest
from runs import SETTINGS

from lgc_ros.cli.view import with_default_place

pytest.importorskip("rerun", reason="needs the extra `view`")

from recordings import points_of, read_recording


@pytest.fixture(scope="module")
def results(tum_folder, tmp_path_factory, invoke):
    """A folder of results, and the recording of the viewer."""
    out = tmp_path_factory.mktemp("run") / "out"
    saved = out.parent / "run.rrd"
    words = "run", tum_folder, *SETTINGS, "--out", out, "--save-view", saved
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    return out, saved


def test_a_run_is_saved_for_the_viewer_as_it_was_computed(results):
    logged = read_recording(results[1])
    assert len(logged["/world/camera"]) == 14
    assert logged.keys() >= {
        "/world/camera/image/inliers",
        "/world/landmarks",
        "/world/keyframes",
        "/world/ground_truth",
        "/timing/features",
    }


def test_results_are_shown_with_images_and_ground_truth_from_their_source(lgc, results, tmp_path):
    out, saved = results
    code, text = lgc("view", out, "--save", tmp_path / "again.rrd")
    assert code == 0, text
    first, again = read_recording(saved), read_recording(tmp_path / "again.rrd")
    for (time, before), (time_again, after) in zip(
        first["/world/camera"], again["/world/camera"], strict=True
    ):
        assert time == pytest.approx(time_again)
        live, later = (points_of(v, "Transform3D:translation") for v in (before, after))
        if live.any():  # frames before the first landmarks got their poses afterwards
            np.testing.assert_allclose(live, later, atol=1e-6)
    assert again.keys() >= {"/world/camera/image", "/world/ground_truth", "/counts/inliers"}
    assert "/world/landmarks" not in again
    for (_, live), (_, later) in zip(
        first["/timing/features"], again["/timing/features"], strict=True
    ):
        assert live["Scalars:scalars"] == pytest.approx(later["Scalars:scalars"], abs=1e-3)
    assert any(path.endswith("map.ply") for path in again)


def test_results_without_their_source_are_shown_without_images(lgc, results, tmp_path):
    moved = shutil.copytree(results[0], tmp_path / "moved")
    config = (moved / "config.yaml").read_text()
    (moved / "config.yaml").write_text(config.replace("source: /", "source: /nowhere/"))
    code, text = lgc("view", moved, "--save", tmp_path / "moved.rrd")
    assert code == 0, text
    assert "no images: " in text
    assert "call this where `lgc run` was called" in text
    assert len(read_recording(tmp_path / "moved.rrd")["/world/camera"]) == 14


@pytest.fixture(scope="module")
def compared(tum_folder, tmp_path_factory, invoke):
    """A folder of results of two methods, and the recording of the viewer."""
    out = tmp_path_factory.mktemp("compared") / "out"
    saved = out.parent / "run.rrd"
    methods = "--method", "poselib+ratio", "--method", "cn"
    result = invoke("run", tum_folder, *SETTINGS, *methods, "--out", out, "--save-view", saved)
    assert result.exit_code == 0, result.output
    return out, saved


def in_shared_world(logged, method):
    """Positions of a method's camera in the world that all methods are shown in."""
    root = f"/world/methods/{method}"
    moved = logged[root][-1][1] if root in logged else {}
    # Rerun stores matrices column by column.
    matrix = np.reshape(moved["Transform3D:mat3x3"], (3, 3)).T if moved else np.eye(3)
    offset = points_of(moved, "Transform3D:translation")[0] if moved else np.zeros(3)
    rows = [points_of(values, "Points3D:positions")[0] for _, values in logged[f"{root}/name"]]
    return np.array(rows) @ matrix.T + offset


@pytest.mark.parametrize("again", [False, True], ids=["while running", "from results"])
def test_several_methods_are_shown_in_one_world(lgc, compared, tmp_path, again):
    out, saved = compared
    if again:
        saved = tmp_path / "again.rrd"
        code, text = lgc("view", out, "--save", saved)
        assert code == 0, text
    logged = read_recording(saved)
    names = {"poselib\\+ratio": "poselib+ratio", "cn": "cn"}
    colors = set()
    for path, name in names.items():
        (_, values) = logged[f"/world/methods/{path}/name"][-1]
        assert values["Points3D:labels"] == [name]
        colors.add(values["Points3D:colors"][0])
        trajectory = f"/world/methods/{path}/trajectory/00000"
        assert len(logged[trajectory]) == 14
        assert set(logged[trajectory][-1][1]["LineStrips3D:colors"]) <= colors
        assert logged.keys() >= {f"/status/{path}", f"/counts/{path}/inliers"}
    assert len(colors) == 2
    assert len(logged["/world/camera/image"]) == 14
    first, second = (in_shared_world(logged, path) for path in names)
    extent = np.ptp(first, axis=0).max()
    assert np.linalg.norm(first - second, axis=1)[-6:].max() < 0.1 * extent


def test_a_saved_view_is_served_at_a_printed_address_until_ctrl_c(results):
    """The file's server logs nothing of its own, and Ctrl-C is its normal end."""
    program = """
import signal
from lgc_ros.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""
    command = [sys.executable, "-c", program, "view", str(results[1]), "--web"]
    # With CI set, Rerun does not ask first-time users about usage data.
    environment = {**os.environ, "BROWSER": "true", "CI": "true"}
    served = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        line = served.stderr.readline()
        found = re.fullmatch(r"viewer: (http://\S+/)\?url=\S+ stays open until Ctrl-C\n", line)
        assert found, line
        assert b"rerun" in _page(found[1])
        served.send_signal(signal.SIGINT)
        assert served.wait(timeout=60) == 0
        assert served.stderr.read() == ""
    finally:
        served.kill()
    with pytest.raises(OSError, match="refused"):
        urlopen(found[1])


def _page(address, patience_s=60):
    deadline_s = monotonic() + patience_s
    while True:
        try:
            return urlopen(address).read()
        except OSError:
            if monotonic() > deadline_s:
                raise
            sleep(0.2)


def test_a_window_that_cannot_open_is_an_error_that_names_the_remedy(lgc, results, monkeypatch):
    monkeypatch.setenv("DISPLAY", ":197")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    code, text = lgc("view", results[0])
    assert code == 1, text
    assert "the window of the viewer" in text
    assert "--view web" in text


def test_errors_name_the_remedy(lgc, tmp_path):
    code, text = lgc("view", tmp_path)
    assert code == 1
    assert "holds no results of `lgc run`" in text
    code, text = lgc("view")
    assert code == 1
    assert "give the results of a run, or --node" in text
    (tmp_path / "states.csv").write_text("stamp_ns,status\n1,ok\n")
    code, text = lgc("view", tmp_path)
    assert code == 1
    assert "states.csv is damaged" in text


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("run a --view", "run a --view window"),
        ("run --view a", "run --view window a"),
        ("run a --view web --limit 3", "run a --view web --limit 3"),
        ("view results --web", "view results --web"),
    ],
)
def test_view_without_a_place_is_a_window(given, expected):
    assert with_default_place(given.split()) == expected.split()

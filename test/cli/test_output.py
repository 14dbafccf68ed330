"""Output that cannot be written: one sentence, exit code 1, nothing half-written."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

from lgc_ros.cli.output import check_folder, check_json
from lgc_ros.errors import ConfigError


@pytest.fixture
def fast_pair(views):
    """Arguments of `lgc match` for two rendered views."""
    images = views / "image0.png", views / "image1.png"
    return ("match", *images, "--camera", views / "camera.yaml", "--method", "poselib+ratio")


def test_match_reports_a_full_disk(lgc, fast_pair):
    code, printed = lgc(*fast_pair, "--json", "/dev/full")
    assert (code, printed.count("Traceback")) == (1, 0)
    assert "cannot write /dev/full: the disk is full" in printed
    assert "t_10 =" in printed  # the work is not lost


def test_a_picture_that_does_not_fit_is_removed(lgc, fast_pair, tmp_path, little_room):
    code, printed = lgc(*fast_pair, "--out", tmp_path / "matches.png")
    assert code == 1
    assert f"cannot write {tmp_path / 'matches.png'}: the file is larger than" in printed
    assert "suffix" not in printed
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_suffix_is_refused_before_the_work(lgc, fast_pair, tmp_path):
    code, printed = lgc(*fast_pair, "--out", tmp_path / "matches.nef")
    assert code == 1
    assert "use a suffix such as .png" in printed
    assert "R_10" not in printed


@pytest.mark.parametrize("format_", ["tum", "bag"])
def test_a_sequence_that_does_not_fit_is_removed(lgc, tmp_path, little_room, format_):
    code, printed = lgc("synth", tmp_path / "out", "--frames", 2, "--format", format_)
    assert code == 1
    assert f"cannot write {tmp_path / 'out'}: the file is larger than" in printed
    assert list(tmp_path.iterdir()) == []


def test_an_exported_model_that_does_not_fit_is_removed(lgc, tmp_path, little_room):
    pytest.importorskip("onnx")
    code, printed = lgc("export", tmp_path / "model.onnx")
    assert code == 1
    assert f"cannot write {tmp_path / 'model.onnx'}: the file is larger than" in printed
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_does_not_fit_keeps_its_complete_files(lgc, tum_folder, tmp_path, little_room):
    options = ("--method", "poselib+ratio", "--limit", 4, "--profile", "fast")
    code, printed = lgc("run", tum_folder, *options, "--out", tmp_path / "out")
    assert code == 1
    assert f"cannot write {tmp_path / 'out'}/trajectory.png: the file is larger than" in printed
    assert "ATE m" in printed  # the table is shown all the same
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert "trajectory_tum.txt" in names
    assert "trajectory.png" not in names
    assert not [name for name in names if name.startswith(".")]


@pytest.fixture
def run_with_little_room(tum_folder):
    """Runs `lgc run` with these options while files may not exceed 160 kB; returns the process."""
    program = """
import resource
from lgc_ros.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (160_000, -1))
main()
"""

    def run(*options):
        fast = "--method", "poselib+ratio", "--profile", "fast"
        command = [sys.executable, "-c", program, "run", tum_folder, *fast, *options]
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)

    return run


def test_a_video_that_does_not_fit_is_removed_and_the_run_kept(run_with_little_room, tmp_path):
    ended = run_with_little_room("--video", "--out", tmp_path)
    assert ended.returncode == 1
    assert f"cannot write {tmp_path / 'video.mp4'}" in ended.stderr
    assert "Traceback" not in ended.stderr
    names = {path.name for path in tmp_path.iterdir()}
    assert "metrics.json" in names
    assert not [name for name in names if "video" in name]


def test_a_recording_of_the_viewer_that_does_not_fit_is_removed_and_the_run_kept(
    run_with_little_room, tmp_path
):
    pytest.importorskip("rerun", reason="needs the extra `view`")
    saved = tmp_path / "run.rrd"
    ended = run_with_little_room("--save-view", saved, "--out", tmp_path / "out")
    assert ended.returncode == 1
    assert ended.stderr.strip().splitlines() == [
        f"error: cannot write {saved}: the file is larger than this system allows; raise the "
        "limit (`ulimit -f`)"
    ]
    assert (tmp_path / "out" / "metrics.json").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.fixture
def run_on_full_disk(tum_folder, tmp_path):
    """Runs `lgc run --out DISK/out` with these options on a disk with little room.

    Returns the process and the names of the files on that disk.
    """
    disk = tmp_path / "disk"
    disk.mkdir()
    script = """
mount -t tmpfs -o size=$1 tmpfs $2 || exit 77
cd $2
shift 2
"$@"
code=$?
ls out
exit $code
"""

    def run(size, *options):
        fast = "--method", "poselib+ratio", "--profile", "fast", "--out", "out"
        command = [sys.executable, "-m", "lgc_ros.cli", "run", tum_folder, *fast, *options]
        own_mounts = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
        ended = subprocess.run(
            list(map(str, [*own_mounts, size, disk, *command])),
            capture_output=True,
            text=True,
            timeout=120,
        )
        if ended.returncode == 77 or "unshare" in ended.stderr:
            pytest.skip("needs the right to mount")
        return ended, ended.stdout.split("\n")

    return run


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
@pytest.mark.parametrize(
    ("size", "options", "name"),
    [("164k", ["--video"], "out/video.mp4"), ("164k", ["--save-view", "run.rrd"], "run.rrd")],
)
def test_a_run_is_kept_when_its_video_or_view_fills_the_disk(
    run_on_full_disk, size, options, name
):
    if name.endswith(".rrd"):
        pytest.importorskip("rerun", reason="needs the extra `view`")
    ended, names = run_on_full_disk(size, *options)
    assert ended.returncode == 1
    assert ended.stderr.strip().splitlines() == [
        f"error: cannot write {name}: the disk is full; free some space or choose another disk"
    ]
    assert {"trajectory_tum.txt", "metrics.json", "map.ply"} <= set(names)
    assert "video.mp4" not in names


def test_a_full_standard_output_is_reported(views, tmp_path):
    arguments = [views / "image0.png", views / "image1.png", "--camera", views / "camera.yaml"]
    command = [sys.executable, "-m", "lgc_ros.cli", "match", *arguments, "--method", "poselib"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            list(map(str, command)), stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert ended.returncode == 1
    assert "the disk is full" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr


def test_a_file_in_place_of_a_folder_is_refused_before_the_work(tmp_path):
    np.savetxt(tmp_path / "taken", [0])
    with pytest.raises(ConfigError, match="taken is a file, not a folder"):
        check_folder(tmp_path / "taken" / "out")
    with pytest.raises(ConfigError, match="is a folder: give a file"):
        check_json(tmp_path)

"""The command line as a user meets it: real files, real messages, exit codes."""

import json
import re
import sys

import numpy as np
import pytest

from lgc_ros.cli.errors import explained_errors
from lgc_ros.cli.main import main
from lgc_ros.visualization.matches import write_image


@pytest.fixture
def lgc(monkeypatch, capsys):
    """Runs `lgc` with arguments; returns exit code and all it printed, white space folded."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["lgc", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capsys.readouterr()
        return stopped.value.code or 0, " ".join((printed.out + printed.err).split())

    return run


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


def match_arguments(folder, image1="image1.png"):
    return "match", folder / "image0.png", folder / image1, "--camera", folder / "camera.yaml"


def test_match_prints_the_pose_and_writes_picture_and_json(lgc, views, tmp_path):
    picture, results = tmp_path / "matches.png", tmp_path / "new" / "pose.json"
    code, said = lgc(
        *match_arguments(views), "--gt", views / "T_10.txt", "--out", picture, "--json", results
    )
    assert code == 0
    assert "R_10" in said
    content = json.loads(results.read_text())
    assert content["method"] == "cn"
    assert content["error_deg"] < 3
    assert content["inliers"] > 20
    assert picture.stat().st_size > 10_000


def test_match_warns_when_the_camera_did_not_move(lgc, views):
    code, said = lgc(*match_arguments(views, "image0.png"), "--method", "poselib+ratio")
    assert code == 0
    assert "t_10 is then arbitrary" in said
    _, said = lgc(*match_arguments(views), "--method", "poselib+ratio")
    assert "arbitrary" not in said


def failing_match(folder, tmp_path, broken):
    """Arguments of a match in which one thing is wrong, and what the message must say."""
    base = match_arguments(folder)
    if broken == "missing image":
        return match_arguments(folder, "none.png"), "none.png"
    if broken == "unreadable image":
        (tmp_path / "text.png").write_text("not an image")
        return (*base[:2], tmp_path / "text.png", *base[3:]), r"text\.png"
    if broken == "other size":
        write_image(tmp_path / "small.png", np.zeros((100, 120, 3), np.uint8))
        return (*base[:2], tmp_path / "small.png", *base[3:]), r"small\.png is 120x100.*640x480"
    if broken == "blank image":
        write_image(tmp_path / "blank.png", np.full((480, 640, 3), 90, np.uint8))
        return (*base[:2], tmp_path / "blank.png", *base[3:]), "only 0 matches.*texture"
    if broken == "few keypoints":
        few = np.full((480, 640, 3), 90, np.uint8)
        few[200:210, 300:310] = 255
        write_image(tmp_path / "few.png", few)
        return ("match", tmp_path / "few.png", *base[2:]), "matches, at least 8 are needed"
    if broken == "nan calibration":
        text = (folder / "camera.yaml").read_text()
        (tmp_path / "nan.yaml").write_text(
            re.sub(r"data: \[[^,]*,", "data: [.nan,", text, count=1)
        )
        return (*base[:4], tmp_path / "nan.yaml"), r"nan\.yaml"
    if broken == "missing camera":
        return (*base[:4], tmp_path / "no.yaml"), r"no\.yaml"
    if broken == "unknown method":
        return (*base, "--method", "ransack"), "unknown method 'ransack'.*magsac"
    if broken == "unknown features":
        return (*base, "--features", "surf"), "surf.*sift"
    return (*base, "--model", "nonsense"), "nonsense.*sift"


@pytest.mark.parametrize(
    "broken",
    [
        "missing image",
        "unreadable image",
        "other size",
        "blank image",
        "few keypoints",
        "nan calibration",
        "missing camera",
        "unknown method",
        "unknown features",
        "unknown model",
    ],
)
def test_bad_input_gets_a_clear_message_and_a_failing_exit(lgc, views, tmp_path, broken):
    arguments, message = failing_match(views, tmp_path, broken)
    code, said = lgc(*arguments)
    assert code == 1
    assert re.search(message, said), said


def test_evaluate_pairs_prints_a_table_and_names_a_bad_line(lgc, views, tmp_path):
    K = "500 0 319.5 0 500 239.5 0 0 1"
    pose = " ".join(str(v) for v in np.loadtxt(views / "T_10.txt").ravel())
    line = f"image0.png image1.png 0 0 {K} {K} {pose}"
    (tmp_path / "pairs.txt").write_text(f"{line}\nimage0.png image1.png 0 0 1 2 3\n")
    base = "evaluate", "pairs", tmp_path, "--images", views, "--method", "poselib+ratio"
    code, said = lgc(*base)
    assert code == 1
    assert "line 2" in said
    assert "--skip-bad" in said
    code, said = lgc(*base, "--skip-bad", "--json", tmp_path / "r.json")
    assert code == 0
    assert "poselib+ratio" in said
    results = json.loads((tmp_path / "r.json").read_text())["methods"]["poselib+ratio"]
    assert set(results["map"]) == set(results["auc"]) == {"5", "10", "20"}
    assert {"features", "match", "filter", "estimate", "total"} == set(results["ms"])


def test_synth_writes_a_sequence_and_refuses_to_overwrite_one(lgc, tmp_path):
    folder = tmp_path / "sequence"
    code, _ = lgc("synth", folder, "--frames", 2)
    assert code == 0
    assert len(list((folder / "rgb").iterdir())) == 2
    assert (folder / "camera.yaml").is_file()
    code, said = lgc("synth", folder, "--frames", 2)
    assert code == 1
    assert "already exists" in said


def test_synth_writes_a_bag(lgc, tmp_path):
    code, _ = lgc("synth", tmp_path / "bag", "--frames", 1, "--format", "bag")
    assert code == 0
    assert (tmp_path / "bag" / "metadata.yaml").is_file()
    code, said = lgc("synth", tmp_path / "other", "--format", "zip")
    assert code == 1
    assert "tum or bag" in said


def test_export_writes_onnx(lgc, tmp_path):
    code, _ = lgc("export", tmp_path / "model.onnx")
    assert code == 0
    assert (tmp_path / "model.onnx").stat().st_size > 1_000_000


def test_doctor_finds_this_installation_sound(lgc):
    code, said = lgc("doctor")
    assert code == 0
    assert "All that is required works" in said


def test_bench_times_every_stage_and_tells_the_ratios(lgc, tmp_path):
    code, said = lgc(
        "bench", "--rounds", 1, "--json", tmp_path / "bench.json", "--plot", tmp_path / "bench.png"
    )
    assert code == 0
    results = json.loads((tmp_path / "bench.json").read_text())
    for stages in results["ms"].values():
        assert set(stages) == {"features", "match", "filter", "estimate"}
        assert all(v["p5"] <= v["median"] <= v["p95"] for v in stages.values())
    expected = "filter_over_gemm eager_over_filter ransac_over_cn bf_over_match"
    expected += " frame_over_extract default_over_fast"
    assert set(results["ratios"]) == set(expected.split())
    assert all(value > 0 for value in results["ratios"].values())
    assert all(name in said for name in results["ratios"])
    assert (tmp_path / "bench.png").stat().st_size > 0


def test_help_names_every_command(lgc):
    code, said = lgc("--help")
    assert code == 0
    commands = ("match", "run", "evaluate", "play", "record", "demo", "export", "bench", "doctor")
    for command in commands:
        assert command in said


def test_an_interrupt_during_the_imports_ends_without_a_traceback(capsys):
    with pytest.raises(SystemExit, match="130"), explained_errors():
        raise KeyboardInterrupt
    assert capsys.readouterr() == ("", "")

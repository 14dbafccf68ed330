"""`lgc match`: pose, picture, JSON, and what it says about bad input."""

import json
import re
import warnings

import numpy as np
import pytest

from lgc_ros.geometry.camera import Camera
from lgc_ros.visualization.matches import write_image


def match_arguments(folder, image1="image1.png"):
    return "match", folder / "image0.png", folder / image1, "--camera", folder / "camera.yaml"


def test_match_prints_the_pose_and_writes_a_picture_and_json(lgc, views, tmp_path):
    picture, results = tmp_path / "matches.png", tmp_path / "new" / "pose.json"
    code, printed = lgc(
        *match_arguments(views), "--gt", views / "T_10.txt", "--out", picture, "--json", results
    )
    assert code == 0
    assert "R_10" in printed
    content = json.loads(results.read_text())
    assert content["method"] == "cn"
    assert content["error_deg"] < 3
    assert content["inliers"] > 20
    assert picture.stat().st_size > 10_000


def test_match_warns_if_the_camera_did_not_move(lgc, views):
    code, printed = lgc(*match_arguments(views, "image0.png"), "--method", "poselib+ratio")
    assert code == 0
    assert "t_10 is arbitrary" in printed
    _, printed = lgc(*match_arguments(views), "--method", "poselib+ratio")
    assert "arbitrary" not in printed


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
    if broken == "learned features without a model":
        return (*base, "--features", "xfeat"), r"xfeat needs .*--extractor-model.*verlab"
    if broken == "missing extractor model":
        arguments = ("--features", "xfeat", "--extractor-model", tmp_path / "x.onnx")
        return (*base, *arguments), r"x\.onnx does not exist.*verlab"
    if broken == "extractor model that is none":
        (tmp_path / "x.onnx").write_text("not a model")
        arguments = ("--features", "xfeat", "--extractor-model", tmp_path / "x.onnx")
        return (*base, *arguments), r"x\.onnx cannot be loaded"
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
        "learned features without a model",
        "missing extractor model",
        "extractor model that is none",
        "unknown model",
    ],
)
def test_match_fails_with_a_clear_message_on_bad_input(lgc, views, tmp_path, broken):
    arguments, message = failing_match(views, tmp_path, broken)
    code, printed = lgc(*arguments)
    assert code == 1
    assert re.search(message, printed), printed


def test_an_identity_ground_truth_is_a_rotation(lgc, views, tmp_path):
    np.savetxt(tmp_path / "T_10.txt", np.eye(4))
    image = views / "image0.png"
    arguments = ("--camera", views / "camera.yaml", "--gt", tmp_path / "T_10.txt")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code, printed = lgc(
            "match", image, views / "image1.png", *arguments, "--out", tmp_path / "out.png"
        )
    assert code == 0, printed
    assert "rotation error (no true translation)" in printed


def test_max_size_shrinks_images_and_keeps_the_pose(lgc, views, tmp_path):
    images = views / "image0.png", views / "image1.png"
    arguments = ("--camera", views / "camera.yaml", "--gt", views / "T_10.txt")
    code, printed = lgc(
        "match", *images, *arguments, "--max-size", 320, "--json", tmp_path / "m.json"
    )
    assert code == 0, printed
    assert json.loads((tmp_path / "m.json").read_text())["error_deg"] < 5


def test_an_unusual_calibration_is_reported(lgc, views, tmp_path):
    camera = Camera.from_yaml(views / "camera.yaml")
    K = camera.K.copy()
    K[0, 2] = 639.0
    Camera.from_K(K, *camera.size).to_yaml(tmp_path / "camera.yaml")
    images = views / "image0.png", views / "image1.png"
    _, printed = lgc("match", *images, "--camera", tmp_path / "camera.yaml", "--method", "poselib")
    assert printed.count("the principal point (cx 639.0") == 1


def test_a_guessed_camera_is_announced_once(lgc, views):
    images = views / "image0.png", views / "image1.png"
    code, printed = lgc("match", *images, "--camera", "fov:63", "--method", "poselib+ratio")
    assert code == 0
    assert printed.count("the camera is a GUESS") == 1
    code, printed = lgc(
        "match", *images, "--camera", "fov:63", "--camera1", "fov:60", "--method", "poselib+ratio"
    )
    assert printed.count("the camera is a GUESS") == 2

"""Pairs with ground truth in SuperGlue's text format."""

import sys
from functools import partial

import cv2
import numpy as np
import pytest

from lgc_ros.errors import DatasetError
from lgc_ros.evaluation.pairs import read_pairs
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import read_image
from training.__main__ import main
from training.data.scene import PosedImage, PosedScene, pairs_by_gap
from training.pairs import undistort, write_pairs


@pytest.fixture
def scene(tmp_path, world):
    rng = np.random.default_rng(0)
    images = []
    for i in range(len(world)):
        path = tmp_path / "in" / f"view {i}.png"
        path.parent.mkdir(exist_ok=True)
        cv2.imwrite(str(path), rng.integers(0, 256, world.size[::-1], dtype=np.uint8))
        camera = Camera.from_K(world.K, *world.size)
        load = partial(read_image, path)
        images.append(PosedImage(path.name, camera, world.R_cw[i], world.t_cw[i], load, path))
    return PosedScene("hall", tuple(images), pairs_by_gap(np.arange(5), 1, 2))


def read_lines(folder):
    return [line.split() for line in (folder / "pairs.txt").read_text().splitlines()]


def test_the_list_is_read_back_by_the_evaluation(scene, tmp_path, world):
    write_pairs([scene], tmp_path)
    pairs = read_pairs(tmp_path / "pairs.txt")
    assert [(pair.name0, pair.name1) for pair in pairs][:2] == [
        ("hall/view_0.png", "hall/view_1.png"),
        ("hall/view_0.png", "hall/view_2.png"),
    ]
    np.testing.assert_array_equal(pairs[0].R_10, world.R_cw[1] @ world.R_cw[0].T)


def test_each_pair_is_a_line_with_both_cameras_and_the_motion(scene, world, tmp_path):
    assert write_pairs([scene], tmp_path) == 7
    lines = read_lines(tmp_path)
    assert len(lines) == 7
    for fields in lines:
        assert len(fields) == 4 + 9 + 9 + 16
        i, j = (int(name.split("_")[1].removesuffix(".png")) for name in fields[:2])
        assert 1 <= j - i <= 2
        assert fields[2:4] == ["0", "0"]
        numbers = np.array(fields[4:], float)
        np.testing.assert_array_equal(numbers[:9].reshape(3, 3), world.K)
        T_10 = numbers[18:].reshape(4, 4)
        points0 = world.points @ world.R_cw[i].T + world.t_cw[i]
        points1 = world.points @ world.R_cw[j].T + world.t_cw[j]
        np.testing.assert_allclose(points0 @ T_10[:3, :3].T + T_10[:3, 3], points1, atol=1e-12)


@pytest.mark.parametrize("copy", [False, True])
def test_images_are_linked_or_copied_under_the_names_of_the_list(scene, tmp_path, copy):
    write_pairs([scene], tmp_path, copy=copy)
    for name in {name for fields in read_lines(tmp_path) for name in fields[:2]}:
        path = tmp_path / "images" / name
        assert path.is_symlink() is not copy
        index = int(path.stem.split("_")[1])
        np.testing.assert_array_equal(read_image(path), scene.images[index].load())


def test_a_limit_chooses_by_seed(scene, tmp_path):
    def chosen(seed):
        assert write_pairs([scene], tmp_path, limit=3, seed=seed) == 3
        return [tuple(fields[:2]) for fields in read_lines(tmp_path)]

    assert chosen(1) == chosen(1)
    assert len({tuple(chosen(seed)) for seed in range(5)}) > 1


def test_distorted_images_are_written_undistorted(scene, tmp_path, world):
    D = (0.2, -0.1, 0.01, -0.02, 0.05)
    distorted = Camera.from_K(world.K, *world.size, D)
    images = tuple(
        PosedImage(i.name, distorted, i.R_cw, i.t_cw, i.load, i.path) for i in scene.images
    )
    write_pairs([PosedScene("hall", images, scene.pairs)], tmp_path)
    written = read_image(tmp_path / "images" / read_lines(tmp_path)[0][0])
    np.testing.assert_array_equal(written, undistort(images[0].load(), distorted))
    assert not np.array_equal(written, images[0].load())


def smooth_image(size):
    rng = np.random.default_rng(1)
    return cv2.GaussianBlur(rng.integers(0, 256, size[::-1], dtype=np.uint8), (0, 0), 3)


def test_undistortion_agrees_with_opencv():
    K = np.array([[150.0, 0, 99.5], [0, 150, 79.5], [0, 0, 1]])
    image = smooth_image((200, 160))
    D = np.array([0.2, -0.1, 0.01, -0.02, 0.05])
    expected = cv2.undistort(image, K, D)
    found = undistort(image, Camera.from_K(K, 200, 160, D))
    assert np.abs(found.astype(int) - expected).max() <= 2
    fisheye = np.array([0.05, -0.01, 0.002, 0.001])
    expected = cv2.fisheye.undistortImage(image, K, fisheye, Knew=K)
    found = undistort(image, Camera.from_K(K, 200, 160, fisheye, "equidistant"))
    assert np.abs(found.astype(int) - expected).max() <= 2


def test_no_pairs_at_all_is_an_error(scene, tmp_path):
    empty = PosedScene("hall", scene.images, np.empty((0, 2), int))
    with pytest.raises(DatasetError, match="hall: no pair is left"):
        write_pairs([empty], tmp_path)


def test_scenes_that_would_overwrite_each_other_are_refused(scene, tmp_path):
    with pytest.raises(DatasetError, match=r"same name \(hall, hall\)"):
        write_pairs([scene, scene], tmp_path)


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["training", "pairs", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def test_the_command_makes_sets_from_real_data(data_dir, tmp_path, monkeypatch, capsys):
    posed = data_dir / "posed" / "castle" / "val"
    assert run(monkeypatch, tmp_path, posed, "--option", "visibility_above=14") == 0
    assert "15 pairs" in capsys.readouterr().out
    gaps = ["--option", "min_gap=10", "--option", "max_gap=30", "--limit", 3]
    assert run(monkeypatch, tmp_path / "tum", data_dir / "fr1_xyz", "--reader", "tum", *gaps) == 0
    assert len(read_lines(tmp_path / "tum")) == 3


def test_the_command_names_what_is_wrong(tmp_path, monkeypatch, capsys):
    assert run(monkeypatch, tmp_path, tmp_path, "--reader", "none") == 1
    assert "unknown reader 'none'" in capsys.readouterr().err
    assert run(monkeypatch, tmp_path, tmp_path, "--option", "threshold") == 2
    assert "key=value" in capsys.readouterr().err

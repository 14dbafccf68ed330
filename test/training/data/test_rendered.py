"""Rendered worlds: real features on images whose geometry is exact."""

from pathlib import Path

import numpy as np
import pytest

from lgc_ros.errors import ConfigError
from lgc_ros.synthetic import World, build_scene
from training.data import rendered
from training.data.rendered import photograph, random_camera, read_rendered, world_paths
from training.data.scene import relative_pose
from training.prepare import DataSource, PrepareConfig, read_scenes

PATH = Path("room/3")


@pytest.fixture(scope="module")
def scene():
    return read_rendered(PATH, views=9)


def test_a_seed_is_a_scene(scene):
    again = read_rendered(PATH, views=9)
    assert scene.name == again.name == "room-3"
    assert len(scene.images) == 9
    np.testing.assert_array_equal(scene.pairs, again.pairs)
    for one, other in zip(scene.images, again.images, strict=True):
        np.testing.assert_array_equal(one.R_cw, other.R_cw)
        np.testing.assert_array_equal(one.camera.K, other.camera.K)


def test_cameras_stand_in_the_open_and_are_rotations(scene):
    layout = build_scene(3, "room", 0.05)
    for image in scene.images:
        center = -image.R_cw.T @ image.t_cw
        assert layout.clearance(center[None])[0] > 0.3
        np.testing.assert_allclose(image.R_cw @ image.R_cw.T, np.eye(3), atol=1e-9)
        assert np.linalg.det(image.R_cw) == pytest.approx(1)


def test_pairs_have_wide_baselines_and_similar_viewing_directions(scene):
    assert len(scene.pairs) >= 4
    for i, j in scene.pairs:
        R_10, t_10 = relative_pose(scene.images[i], scene.images[j])
        assert np.linalg.norm(t_10) > 0.05
        assert R_10[2, 2] > np.cos(np.radians(61))


def test_stricter_overlap_keeps_fewer_pairs(scene):
    strict = read_rendered(PATH, views=9, overlap_above=0.35)
    kept = {tuple(pair) for pair in strict.pairs}
    assert kept < {tuple(pair) for pair in scene.pairs}


def test_the_true_pose_explains_the_matches(scene, agreement, monkeypatch):
    coarse = World(3, "room", detail=0.25)  # textures this coarse are quick to paint
    monkeypatch.setattr(rendered, "_world", lambda kind, seed: coarse)
    shares = [agreement(scene.images[i], scene.images[j]) for i, j in scene.pairs[:3]]
    assert max(shares) > 0.6  # of distinctive matches; wrong ones are what the filter is for


def test_cameras_differ_in_focal_length_and_shape():
    cameras = [random_camera(np.random.default_rng(seed)) for seed in range(40)]
    focal = np.array([camera.focal for camera in cameras])
    assert focal.max() / focal.min() > 2
    assert {camera.width > camera.height for camera in cameras} == {True, False}
    assert all(640 <= max(camera.size) <= 1024 for camera in cameras)


def test_a_photograph_differs_in_light_but_not_in_place():
    image = np.zeros((120, 160, 3), np.uint8)
    image[40:80, 50:110] = 120
    for seed in range(10):
        photo = photograph(np.random.default_rng(seed), image)
        assert photo.shape == image.shape
        assert photo.dtype == np.uint8
        bright = photo.sum(axis=2) > photo[55:65, 70:90].sum(axis=2).mean() / 2
        rows, columns = np.nonzero(bright)
        assert rows.mean() == pytest.approx(59.5, abs=0.5)
        assert columns.mean() == pytest.approx(79.5, abs=0.5)
        again = photograph(np.random.default_rng(seed), image)
        np.testing.assert_array_equal(photo, again)


def test_worlds_are_named_by_kind_and_seeds():
    assert world_paths("room/7") == ["room/7"]
    assert world_paths("street/9-11") == ["street/9", "street/10", "street/11"]


@pytest.mark.parametrize("pattern", ["room", "room/", "room/a-b", "room/*"])
def test_the_error_for_an_invalid_name_gives_the_expected_form(pattern):
    with pytest.raises(ConfigError, match=r"room/0-39"):
        world_paths(pattern)
    with pytest.raises(ConfigError, match=r"unknown kind of world 'cave'"):
        read_rendered(Path("cave/1"))


def test_prepare_reads_worlds_like_any_other_data():
    source = DataSource("rendered", "room/3", {"views": 4}, split_ratio=(100, 0, 0))
    config = PrepareConfig("rendered", (source,))
    [train], [val] = read_scenes(config, "train"), read_scenes(config, "val")
    assert len(train.images) == 4
    assert len(val.images) == 0

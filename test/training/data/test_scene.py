"""Splitting images and choosing pairs."""

import numpy as np
import pytest

from lgc_ros.errors import ConfigError, DatasetError
from lgc_ros.geometry.camera import Camera
from training.data.scene import (
    PosedImage,
    PosedScene,
    pairs_above,
    pairs_by_gap,
    relative_pose,
    some_images,
    split_scene,
    usable_pairs,
)


def make_scene(count, pairs=None, step=1.0):
    camera = Camera.from_K(np.diag([50.0, 50.0, 1.0]), 64, 48)
    images = tuple(
        PosedImage(f"{i}.png", camera, np.eye(3), np.array([step * i, 0, 0]), load=lambda: None)
        for i in range(count)
    )
    pairs = pairs_above(np.ones((count, count)), 0) if pairs is None else np.array(pairs)
    return PosedScene("line", images, pairs)


def names(scene):
    return [image.name for image in scene.images]


def test_splits_are_disjoint_complete_and_60_20_20():
    scene = make_scene(50)
    parts = [split_scene(scene, split, seed=4) for split in ("train", "val", "test")]
    assert [len(part.images) for part in parts] == [30, 10, 10]
    assert sorted(name for part in parts for name in names(part)) == sorted(names(scene))


def test_a_split_is_reproducible_by_seed():
    scene = make_scene(50)
    assert names(split_scene(scene, "val", seed=4)) == names(split_scene(scene, "val", seed=4))
    assert names(split_scene(scene, "val", seed=4)) != names(split_scene(scene, "val", seed=5))


def test_a_test_only_set_keeps_all_images():
    scene = make_scene(7)
    assert names(split_scene(scene, "test", 0, (0, 0, 100))) == names(scene)
    assert len(split_scene(scene, "train", 0, (0, 0, 100)).images) == 0


def test_pairs_of_a_split_name_the_same_images_as_before():
    scene = make_scene(20, pairs_by_gap(np.arange(20), 3, 3))
    part = split_scene(scene, "train", seed=1)
    assert len(part.pairs) > 0
    for i, j in part.pairs:
        gap = part.images[j].t_cw - part.images[i].t_cw
        assert abs(gap[0]) == 3


def test_unknown_split_is_refused():
    with pytest.raises(ConfigError, match=r"unknown split 'dev'.*train, val, test"):
        split_scene(make_scene(5), "dev", seed=0)


def test_visibility_must_be_above_the_threshold_in_the_direction_of_the_pair():
    visibility = np.array([[9, 5, 6], [7, 9, 0], [5.5, 8, 9]])
    assert pairs_above(visibility, 5).tolist() == [[0, 2], [1, 0], [2, 0], [2, 1]]


def test_gaps_count_frame_numbers_in_both_directions():
    assert pairs_by_gap(np.array([0, 1, 4]), 3, 4).tolist() == [[0, 2], [1, 2], [2, 0], [2, 1]]
    with pytest.raises(ConfigError, match="frame gaps"):
        pairs_by_gap(np.arange(3), 2, 1)


def test_pairs_without_a_baseline_are_dropped():
    assert (
        len(usable_pairs(make_scene(4, step=0.9e-5))) == 6
    )  # only those two or three steps apart
    assert len(usable_pairs(make_scene(4, step=0.0))) == 0
    assert usable_pairs(make_scene(0)).shape == (0, 2)


def test_a_cap_draws_different_pairs_with_different_seeds_and_keeps_the_order():
    scene = make_scene(12)
    chosen = usable_pairs(scene, 20, seed=1)
    assert len(np.unique(chosen, axis=0)) == 20
    assert chosen.tolist() == sorted(chosen.tolist())
    assert chosen.tolist() == usable_pairs(scene, 20, seed=1).tolist()
    assert chosen.tolist() != usable_pairs(scene, 20, seed=2).tolist()


def test_at_most_so_many_images_are_taken():
    assert len(some_images(make_scene(9), 4, seed=0).images) == 4
    assert len(some_images(make_scene(3), 4, seed=0).images) == 3


def test_a_pair_of_images_that_do_not_exist_is_refused():
    with pytest.raises(DatasetError, match="image 9 of 3"):
        usable_pairs(make_scene(3, [[0, 9]]))


def test_relative_pose_maps_points_of_the_first_camera_into_the_second(world):
    images = [
        PosedImage("", None, world.R_cw[i], world.t_cw[i], load=lambda: None) for i in (0, 3)
    ]
    R_10, t_10 = relative_pose(*images)
    points0 = world.points @ world.R_cw[0].T + world.t_cw[0]
    points1 = world.points @ world.R_cw[3].T + world.t_cw[3]
    np.testing.assert_allclose(points0 @ R_10.T + t_10, points1)

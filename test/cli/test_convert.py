"""`lgc convert`: camera, depth and poses of a source are in the bag."""

import numpy as np

from lgc_ros.sources import open_source


def test_a_dataset_becomes_a_bag_with_images_camera_depth_and_ground_truth(
    lgc, tum_folder, tmp_path
):
    bag = tmp_path / "walk.mcap"
    code, text = lgc("convert", tum_folder, bag, "--limit", "5")
    assert code == 0, text
    original, converted = open_source(tum_folder, limit=5), open_source(bag, depth_topic="auto")
    np.testing.assert_array_equal(converted.camera.K, original.camera.K)
    assert converted.camera.size == original.camera.size
    for before, after in zip(original, converted, strict=True):
        assert after.stamp_ns == before.stamp_ns
        np.testing.assert_array_equal(after.image, before.image)
        np.testing.assert_array_equal(after.depth, before.depth)
        np.testing.assert_allclose(after.T_wc, before.T_wc, atol=1e-9)


def test_a_bag_becomes_a_bag_again(lgc, tum_folder, tmp_path):
    first, second = tmp_path / "a.mcap", tmp_path / "b"
    assert lgc("convert", tum_folder, first, "--limit", "3")[0] == 0
    code, text = lgc("convert", first, second, "--depth-topic", "auto", "--compression", "png")
    assert code == 0, text
    sources = open_source(first, depth_topic="auto"), open_source(second, depth_topic="auto")
    for before, after in zip(*sources, strict=True):
        np.testing.assert_array_equal(after.image, before.image)
        np.testing.assert_array_equal(after.depth, before.depth)


def test_a_folder_takes_camera_and_frame_rate_from_the_command_line(lgc, tum_folder, tmp_path):
    bag = tmp_path / "walk.mcap"
    options = "--camera", "300,300,150,110", "--fps", "4", "--limit", "3"
    code, text = lgc("convert", tum_folder / "rgb", bag, *options)
    assert code == 0, text
    source = open_source(bag)
    assert [frame.stamp_ns for frame in source] == [0, 250_000_000, 500_000_000]
    assert source.camera.K[0, 2] == 150
    assert source.ground_truth is None


def test_an_option_that_a_source_does_not_have_is_named_as_on_the_command_line(
    lgc, tum_folder, tmp_path
):
    code, text = lgc("convert", tum_folder, tmp_path / "walk.mcap", "--fps", "4")
    assert code == 1
    assert "a source of kind tum has no option --fps" in text

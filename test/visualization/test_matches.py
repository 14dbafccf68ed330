"""Pictures of matches show what they claim to show."""

import numpy as np
import pytest
from scenes import as_correspondences, random_scene

from lgc_ros.errors import ImageError
from lgc_ros.estimation.two_view import RelativePoseSolver
from lgc_ros.visualization.matches import (
    GAP_PX,
    GREEN,
    MAX_GOOD,
    MAX_WIDTH_PX,
    RED,
    draw_matches,
    draw_motion,
    draw_two_view,
    plot_accuracy,
    write_image,
)


def dominant(pixels):
    """Whether a patch is greener or redder than gray."""
    blue, green, red = pixels.reshape(-1, 3).mean(0)
    return GREEN if green > max(red, blue) + 10 else RED if red > max(green, blue) + 10 else None


def test_good_matches_are_green_and_others_red():
    gray = np.full((100, 200), 120, np.uint8)
    points = np.array([[10.0, 20.0], [10.0, 80.0]])
    picture = draw_matches(gray, gray, points, points, np.array([True, False]))
    assert picture.shape == (100, 400 + GAP_PX, 3)
    assert dominant(picture[20:21, 60:150]) == GREEN
    assert dominant(picture[80:81, 60:150]) == RED
    assert dominant(picture[50:51, 60:150]) is None


def test_images_of_different_size_and_type_are_drawn_side_by_side():
    gray, color = np.zeros((100, 200), np.uint8), np.zeros((50, 80, 3), np.uint8)
    one = np.array([[5.0, 50.0]])
    picture = draw_matches(gray, color, one, one / 2, np.array([True]), ["a caption"])
    assert picture.shape == (100, 200 + GAP_PX + 160, 3)


def test_large_images_make_a_picture_of_sensible_size():
    large = np.full((3000, 4000), 120, np.uint8)
    corner = np.array([[3900.0, 2900.0]])
    picture = draw_matches(large, large, corner, corner, np.array([True]))
    height, width = picture.shape[:2]
    assert abs(width - MAX_WIDTH_PX) <= 2
    scale = height / 3000
    x, y = round(3900 * scale), round(2900 * scale)
    assert dominant(picture[y - 1 : y + 2, x - 1 : x + 2]) == GREEN


def test_few_lines_are_drawn_however_many_matches_there_are():
    gray = np.full((1000, 400), 120, np.uint8)
    points = np.column_stack([np.full(900, 10.0), np.arange(50, 950)])
    picture = draw_matches(gray, gray, points, points, np.ones(900, bool))
    rows = np.ptp(picture[:, 200], axis=1) > 20
    assert 0 < np.count_nonzero(rows) <= 3 * MAX_GOOD
    motion = draw_motion(gray, points, points + np.array([300, 0]), np.ones(900, bool))
    rows = np.ptp(motion[:, 200], axis=1) > 20
    assert 0 < np.count_nonzero(rows) <= 3 * MAX_GOOD


def test_motion_is_drawn_on_the_image_with_dots_where_good_keypoints_are_now():
    gray = np.full((100, 200), 120, np.uint8)
    before, now = np.array([[20.0, 20.0], [20.0, 80.0]]), np.array([[150.0, 20.0], [150.0, 80.0]])
    picture = draw_motion(gray, before, now, np.array([True, False]))
    assert picture.shape == (100, 200, 3)
    assert dominant(picture[20:21, 60:140]) == GREEN
    assert dominant(picture[80:81, 60:140]) == RED
    assert dominant(picture[18:23, 149:152]) == GREEN
    assert dominant(picture[18:19, 15:25]) is None
    assert gray.min() == gray.max() == 120


def test_with_ground_truth_only_inliers_are_drawn_and_false_ones_are_red():
    scene = random_scene(0, 40)
    image = np.full((480, 640), 100, np.uint8)
    result = RelativePoseSolver("poselib")(as_correspondences(scene.x0, scene.x1))
    right = draw_two_view(image, image, result, (scene.R_10, scene.t_10))
    wrong = draw_two_view(image, image, result, (np.eye(3), np.array([0.0, 0.0, 1.0])))
    assert (np.ptp(right[:, 500:640], axis=2) > 20).any()
    colored = [picture[np.ptp(picture, axis=2) > 20] for picture in (right, wrong)]
    assert [dominant(pixels) for pixels in colored] == [GREEN, RED]


def test_an_unwritable_picture_is_reported(tmp_path):
    with pytest.raises(ImageError, match="suffix"):
        write_image(tmp_path / "picture.unknown", np.zeros((4, 4, 3), np.uint8))


def test_accuracy_plot_is_written_for_any_errors(tmp_path):
    plot_accuracy(tmp_path / "plot.png", {"cn": [1.0, 180.0], "ransac": [], "ransac+ratio": [3.0]})
    assert (tmp_path / "plot.png").stat().st_size > 1000

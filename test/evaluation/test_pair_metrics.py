"""Scores as defined in the literature."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import as_correspondences, random_scene

from lgc_ros.estimation.two_view import RelativePoseSolver
from lgc_ros.evaluation.pair_metrics import (
    NO_POSE_ERROR_DEG,
    area_under_curve,
    bootstrap_intervals,
    mean_average_precision,
    score_result,
    summarize,
)

angles = st.lists(st.floats(0, 180), min_size=1, max_size=40)


def test_map_is_the_mean_precision_over_multiples_of_five_degrees():
    # 2 of 4 within 5, 2 within 10, 3 within 15, 3 within 20 degrees.
    scores = mean_average_precision([1, 4, 12, 90])
    assert scores == pytest.approx({5: 0.5, 10: 0.5, 20: (0.5 + 0.5 + 0.75 + 0.75) / 4})


@given(angles)
def test_auc_is_the_area_under_the_interpolated_recall_curve(errors):
    for threshold, area in area_under_curve(errors).items():
        known = sorted(error for error in errors if error < threshold)
        x = np.linspace(0, threshold, 20001)
        corners_x = [0.0, *known]
        corners_y = [k / len(errors) for k in range(len(known) + 1)]
        y = np.interp(x, corners_x, corners_y)
        assert area == pytest.approx(np.mean((y[1:] + y[:-1]) / 2), abs=2e-3)


@given(angles)
def test_scores_are_in_0_to_1_and_grow_with_the_threshold(errors):
    for score in (mean_average_precision(errors), area_under_curve(errors)):
        assert 0 <= score[5] <= score[10] + 1e-12 <= score[20] + 2e-12 <= 1 + 3e-12


def test_no_pairs_give_a_score_of_zero():
    assert mean_average_precision([]) == {5: 0, 10: 0, 20: 0}
    assert area_under_curve([]) == {5: 0, 10: 0, 20: 0}


@given(angles)
def test_bootstrap_intervals_contain_the_scores(errors):
    intervals = bootstrap_intervals(errors)
    for name, score in (("map", mean_average_precision), ("auc", area_under_curve)):
        for threshold, value in score(errors).items():
            low, high = intervals[name][threshold]
            assert 0 <= low <= high <= 1 + 1e-12
            # The half step of the last pair makes AUC of a resample differ by up to 1 / 2n.
            assert low - 0.5 / len(errors) - 1e-12 <= value <= high + 0.5 / len(errors) + 1e-12


def test_bootstrap_intervals_shrink_with_the_number_of_pairs_and_cover_the_binomial_spread():
    def width(pairs):
        errors = np.where(np.arange(pairs) % 2, 1.0, 90.0)
        low, high = bootstrap_intervals(errors)["map"][5]
        return high - low

    assert width(100) == pytest.approx(2 * 1.96 * 0.5 / 10, rel=0.15)
    assert width(10_000) == pytest.approx(width(100) / 10, rel=0.15)


def test_precision_and_recall_are_those_of_the_kept_matches():
    scene = random_scene(0, 60)
    wrong = np.random.default_rng(0).uniform(-0.5, 0.5, (2, 20, 2))
    matches = as_correspondences(np.vstack([scene.x0, wrong[0]]), np.vstack([scene.x1, wrong[1]]))
    score = score_result(RelativePoseSolver("poselib")(matches), scene.R_10, scene.t_10)
    assert score.error_deg < 0.01
    assert score.inlier_recall > 0.95
    assert score.precision == score.inlier_precision > 0.9


def test_a_pair_without_a_pose_has_the_maximum_error():
    scene = random_scene(0)
    result = RelativePoseSolver("ransac")(as_correspondences(scene.x0[:3], scene.x1[:3]))
    score = score_result(result, scene.R_10, scene.t_10)
    assert score.error_deg == NO_POSE_ERROR_DEG
    assert summarize([score])["map"] == {"5": 0, "10": 0, "20": 0}

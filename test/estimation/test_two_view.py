"""From two images to a pose, or to a clear reason why there is none."""

from dataclasses import replace

import numpy as np
import pytest
from scenes import as_correspondences, random_scene
from transforms3d.axangles import axangle2mat

from lgc_ros.errors import CheckpointError, ConfigError
from lgc_ros.estimation.methods import METHODS
from lgc_ros.estimation.two_view import (
    PROBABLY_TRUE,
    STAGES,
    RelativePoseSolver,
    TwoViewPipeline,
    true_matches,
)
from lgc_ros.evaluation.pair_metrics import score_result
from lgc_ros.features.base import make_extractor
from lgc_ros.matching.correspondences import correspond, match


@pytest.fixture(scope="module")
def pair(walk):
    frames = walk[20], walk[32]
    T_10 = np.linalg.inv(frames[1].T_wc) @ frames[0].T_wc
    return frames, (T_10[:3, :3], T_10[:3, 3])


@pytest.fixture(scope="module")
def matches(pair):
    frames, _ = pair
    extract = make_extractor("sift", 2000)
    features = [extract(frame.image) for frame in frames]
    return correspond(*features, match(*features), *(frame.camera for frame in frames))


@pytest.mark.parametrize("method", ["cn", "cn-8pt", "cn+mlesac", "poselib+ratio", "usac+ratio"])
def test_pose_of_two_rendered_views_is_accurate(pair, method):
    frames, true_pose = pair
    pipeline = TwoViewPipeline(method, device="cpu")
    result = pipeline(*(f.image for f in frames), *(f.camera for f in frames))
    assert result.failure == ""
    assert score_result(result, *true_pose).error_deg < 3
    assert set(result.ms) == set(STAGES)
    assert not (result.inliers & ~result.kept).any()
    assert true_matches(result.correspondences, *true_pose)[result.inliers].mean() > 0.9


def test_the_pose_tells_more_true_matches_from_outliers(pair, matches):
    _, true_pose = pair
    solver = RelativePoseSolver("cn", device="cpu")
    by_filter, result = solver.reject_outliers(matches), solver(matches)
    before, after = score_result(by_filter, *true_pose), score_result(result, *true_pose)
    assert after.precision > before.precision
    assert after.recall > before.recall
    assert not np.array_equal(result.scores, by_filter.scores)
    np.testing.assert_array_equal(result.kept, result.scores >= PROBABLY_TRUE)


def test_a_wrong_pose_leaves_the_scores_nearly_as_they_were(pair, matches):
    _, (R_gt, t_gt) = pair
    solver = RelativePoseSolver("cn", device="cpu")
    by_filter = replace(solver.reject_outliers(matches), ms={"estimate": 0.0})
    turned = axangle2mat([1, 0, 0], np.radians(20)) @ R_gt
    wrong = solver.rescore(solver.classify_inliers(by_filter, turned, t_gt))
    changed = np.abs(wrong.scores - by_filter.scores) > 0.25
    assert changed.mean() < 0.05


@pytest.mark.parametrize("method", METHODS)
def test_every_method_accepts_any_number_of_matches(method):
    solve = RelativePoseSolver(method, device="cpu")
    scene = random_scene(0, 60)
    for count in (0, 1, 4, 7, 8, 20):
        result = solve(as_correspondences(scene.x0[:count], scene.x1[:count]))
        assert (result.pose is None) == bool(result.failure)
        assert result.inliers.shape == result.kept.shape == (count,)


def test_failure_states_the_number_of_matches_when_there_are_too_few():
    scene = random_scene(0)
    result = RelativePoseSolver("ransac")(as_correspondences(scene.x0[:5], scene.x1[:5]))
    assert "only 5 matches, at least 8" in result.failure


def test_identical_matches_give_no_pose_but_a_reason():
    same = np.full((100, 2), 0.1)
    for method in ("ransac", "cn", "cn-8pt", "poselib"):
        result = RelativePoseSolver(method, device="cpu")(as_correspondences(same, same))
        assert result.pose is None
        assert "kept 0 of 100" in result.failure or "no relative pose" in result.failure


def test_failure_names_a_ratio_test_that_rejects_everything():
    scene = random_scene(0)
    matches = as_correspondences(scene.x0, scene.x1)
    matches.ratio[:] = 1.0
    result = RelativePoseSolver("ransac+ratio")(matches)
    assert f"the ratio test kept 0 of {len(scene.x0)}" in result.failure


def test_summary_contains_pose_counts_and_times(pair):
    frames, _ = pair
    result = TwoViewPipeline("poselib+ratio")(
        *(f.image for f in frames), *(f.camera for f in frames)
    )
    summary = result.as_dict()
    assert summary["success"] is True
    assert np.array(summary["R_10"]).shape == (3, 3)
    assert np.linalg.norm(summary["t_10"]) == pytest.approx(1)
    assert summary["matches"] >= summary["kept"] >= summary["inliers"] > 8
    assert summary["ms"]["total"] == pytest.approx(sum(result.ms.values()))


def test_error_for_features_without_a_model_names_the_remedy():
    with pytest.raises(CheckpointError, match="method without cn"):
        TwoViewPipeline("cn", features="akaze")


def test_error_for_an_unknown_method_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"ransca.*ransac.*poselib"):
        RelativePoseSolver("ransca")

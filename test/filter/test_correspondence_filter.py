"""The filter scores matches with a trained model."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scenes import as_correspondences, random_scene

from lgc_ros.errors import CheckpointError, ConfigError
from lgc_ros.estimation.two_view import RelativePoseSolver
from lgc_ros.filter.checkpoint import ModelInfo, load_checkpoint, save_checkpoint
from lgc_ros.filter.correspondence_filter import CorrespondenceFilter, top_scoring
from lgc_ros.filter.network import CorrespondenceNetwork, NetworkConfig
from lgc_ros.filter.side_information import network_inputs


@pytest.fixture(scope="module")
def sift_filter():
    return CorrespondenceFilter("sift", device="cpu")


def contaminated(seed=0, inliers=300, outliers=300):
    scene = random_scene(seed, inliers, noise_px=0.5)
    rng = np.random.default_rng(seed)
    outlier = rng.uniform(-0.6, 0.6, (2, outliers, 2))
    is_inlier = np.arange(len(scene.x0) + outliers) < len(scene.x0)
    matches = as_correspondences(
        np.vstack([scene.x0, outlier[0]]), np.vstack([scene.x1, outlier[1]])
    )
    return matches, is_inlier


def test_true_matches_score_higher_than_outliers(sift_filter):
    matches, is_inlier = contaminated()
    result = sift_filter(matches)
    assert np.median(result.logits[is_inlier]) > np.median(result.logits[~is_inlier])


def test_scores_equal_those_of_the_network(sift_filter):
    matches, _ = contaminated()
    network, info = load_checkpoint("sift")
    inputs = network_inputs(matches.x0, matches.x1, matches, info.side)
    with torch.inference_mode():
        expected = network.double()(torch.from_numpy(inputs)[None].double())[0].numpy()
    result = sift_filter(matches)
    assert result.logits == pytest.approx(expected, abs=1e-4)
    assert result.weights == pytest.approx(np.tanh(np.maximum(expected, 0)), abs=1e-4)
    assert np.array_equal(result.kept, result.logits > info.keep_above)


def test_a_margin_decides_on_weights_but_changes_neither_scores_nor_decisions(
    sift_filter, tmp_path
):
    """A model whose margin is smaller by 3, and all logits and thresholds higher by 3."""
    network, info = load_checkpoint("sift")
    with torch.no_grad():
        network.output.bias += 3
    shifted = replace(
        info,
        keep_above=info.keep_above + 3,
        trust_above=info.trust_above + 3,
        margin=info.margin - 3,
    )
    path = tmp_path / "shifted.safetensors"
    save_checkpoint(path, network, shifted)
    matches, _ = contaminated()
    before, after = sift_filter(matches), CorrespondenceFilter(path, device="cpu")(matches)
    assert np.array_equal(after.kept, before.kept)
    np.testing.assert_allclose(after.scores, before.scores, atol=1e-5)
    assert after.trust_score == pytest.approx(before.trust_score, abs=1e-5)
    light = (before.logits > -2.9) & (before.logits < 0)
    assert light.any()
    assert not before.weights[light].any()
    assert (after.weights[light] > 0).all()
    poses = [RelativePoseSolver("cn", model=model)(matches).pose for model in ("sift", path)]
    np.testing.assert_allclose(poses[0].E_10, poses[1].E_10, atol=1e-6)


def test_no_matches_give_no_scores(sift_filter):
    result = sift_filter(as_correspondences(np.empty((0, 2)), np.empty((0, 2))))
    assert [len(v) for v in (result.logits, result.weights, result.scores, result.kept)] == [0] * 4


def test_features_of_another_kind_are_rejected(sift_filter):
    sift_filter.check_features("sift")
    with pytest.raises(CheckpointError, match="trained on sift features, not orb"):
        sift_filter.check_features("orb")


def test_a_model_that_regresses_poses_is_rejected(tmp_path):
    config = NetworkConfig(blocks=1, width=8, head="direct")
    path = tmp_path / "direct.safetensors"
    save_checkpoint(path, CorrespondenceNetwork(config), ModelInfo("direct", "sift", config))
    with pytest.raises(CheckpointError, match="cannot score matches"):
        CorrespondenceFilter(path)


def test_the_engine_can_be_chosen():
    chosen = CorrespondenceFilter("sift", device="cpu", engine="torch")
    assert (chosen.engine, chosen.device) == ("torch", "cpu")
    with pytest.raises(ConfigError, match="unknown engine"):
        CorrespondenceFilter("sift", engine="abacus")


def test_top_scoring_matches_are_above_a_value_within_limits_on_their_number():
    scores = np.random.default_rng(0).permutation(np.linspace(0, 1, 401))
    assert np.array_equal(top_scoring(scores, 0.5), scores >= 0.5)
    few = top_scoring(scores, 0.9)
    assert few.sum() == 100
    assert scores[few].min() > scores[~few].max()
    assert top_scoring(scores[:10], 0.9).all()
    many = np.linspace(0, 1, 2000)
    assert np.array_equal(np.flatnonzero(top_scoring(many, 0.5)), np.arange(1500, 2000))
    assert len(top_scoring(np.empty(0), 0.5)) == 0

"""Scores are probabilities, whatever the share of true matches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lgc_ros.filter.checkpoint import ModelInfo
from lgc_ros.filter.correspondence_filter import interpret
from lgc_ros.filter.network import NetworkConfig
from lgc_ros.filter.probability import MIN_SHARE, given_agreement, prior_log_odds, sigmoid


def simulated(share, seed=0, count=200_000, margin=0.0):
    """Logits of a network that separates true matches from outliers by one Gaussian each.

    With variance 4 and means 2 and -2, the balanced log odds of a value are the value itself.
    """
    rng = np.random.default_rng(seed)
    true = rng.random(count) < share
    return rng.normal(np.where(true, 2.0, -2.0), 2.0) - margin, true


@pytest.mark.parametrize("share", [0.03, 0.1, 0.3, 0.5, 0.9])
def test_the_share_of_true_matches_is_recovered(share):
    log_odds, true = simulated(share)
    assert sigmoid(prior_log_odds(log_odds)) == pytest.approx(true.mean(), rel=0.05)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.8])
@pytest.mark.parametrize("margin", [0.0, 4.0])
def test_scores_are_calibrated(share, margin):
    logits, true = simulated(share, margin=margin)
    info = ModelInfo("test", "sift", NetworkConfig(), margin=margin)
    scores = interpret(logits, info).scores
    for low in np.arange(0, 1, 0.2):
        inside = (scores >= low) & (scores < low + 0.2)
        if inside.sum() > 200:
            assert scores[inside].mean() == pytest.approx(true[inside].mean(), abs=0.06)


def test_a_pair_without_true_matches_has_low_scores():
    logits, _ = simulated(0.0, count=2000)
    assert sigmoid(prior_log_odds(logits)) <= 2 * MIN_SHARE
    assert np.median(sigmoid(logits + prior_log_odds(logits))) < 0.01


@given(arrays(np.float64, st.integers(1, 50), elements=st.floats(-1e6, 1e6)))
def test_scores_are_probabilities_in_the_order_of_the_logits(logits):
    result = interpret(logits, ModelInfo("test", "sift", NetworkConfig()))
    assert ((result.scores >= 0) & (result.scores <= 1)).all()
    assert (np.diff(result.scores[np.argsort(logits)]) >= 0).all()


@pytest.mark.parametrize("share", [0.05, 0.3, 0.8])
def test_scores_stay_calibrated_given_a_pose(share):
    log_odds, true = simulated(share)
    agrees = np.random.default_rng(1).random(len(true)) < np.where(true, 0.95, 0.03)
    before = sigmoid(log_odds + prior_log_odds(log_odds))
    scores = given_agreement(before, agrees, 0.03)
    for low in np.arange(0, 1, 0.2):
        inside = (scores >= low) & (scores < low + 0.2)
        if inside.sum() > 500:
            assert scores[inside].mean() == pytest.approx(true[inside].mean(), abs=0.06)
    assert np.abs(scores - true).mean() < 0.6 * np.abs(before - true).mean()


def test_a_pose_with_which_matches_agree_by_chance_only_changes_nothing():
    log_odds, true = simulated(0.3)
    agrees = np.random.default_rng(1).random(len(true)) < 0.03
    before = sigmoid(log_odds + prior_log_odds(log_odds))
    np.testing.assert_allclose(given_agreement(before, agrees, 0.03), before, atol=0.02)


@given(
    arrays(np.float64, 20, elements=st.floats(0, 1)),
    arrays(np.bool_, 20),
    st.floats(0, 1),
)
def test_agreement_with_a_pose_never_lowers_a_score(scores, agrees, chance):
    rescored = given_agreement(scores, agrees, chance)
    assert ((rescored >= 0) & (rescored <= 1)).all()
    assert (rescored[agrees] >= scores[agrees] - 1e-12).all()
    assert (rescored[~agrees] <= scores[~agrees] + 1e-12).all()

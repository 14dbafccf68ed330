"""Scores are probabilities, whatever the share of true matches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lgc_ros.filter.checkpoint import ModelInfo
from lgc_ros.filter.correspondence_filter import interpret
from lgc_ros.filter.network import NetworkConfig
from lgc_ros.filter.probability import MIN_SHARE, prior_log_odds, sigmoid


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

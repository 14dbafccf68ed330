"""From the network's logits to the probability that a match is true.

Classification is trained class-balanced (equation 7): true matches and outliers of a pair have the
same weight, however few the true ones are. A logit plus the margin of the model is therefore the
log odds of a match if half of all matches were true. Bayes' rule adds the log odds of the actual
share of true matches. This share is unknown, but it must equal the mean probability; expectation
maximization finds it (Saerens et al., Neural Computation 2002).
"""

from __future__ import annotations

import numpy as np

MIN_SHARE = 0.01  # of true matches, and of outliers
ITERATIONS = 20


def prior_log_odds(balanced_log_odds: np.ndarray) -> float:
    """Log odds of the share of true matches among the matches of one pair."""
    prior = 0.0
    for _ in range(ITERATIONS):
        share = sigmoid(balanced_log_odds + prior).mean()
        share = np.clip(share, MIN_SHARE, 1 - MIN_SHARE)
        prior = float(np.log(share / (1 - share)))
    return prior


def sigmoid(log_odds: np.ndarray | float) -> np.ndarray:
    """Probability of given log odds, without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * np.asarray(log_odds)))

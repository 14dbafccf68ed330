"""From the network's logits to the probability that a match is true.

Classification is trained class-balanced (equation 7): true matches and outliers of a pair have the
same weight, however few the true ones are. A logit plus the margin of the model is therefore the
log odds of a match if half of all matches were true. Bayes' rule adds the log odds of the actual
share of true matches. This share is unknown, but it must equal the mean probability; expectation
maximization finds it (Saerens et al., Neural Computation 2002).

A pose is further evidence: true matches agree with it, outliers only by chance.
"""

from __future__ import annotations

import numpy as np

MIN_SHARE = 0.01  # of true matches, and of outliers
ITERATIONS = 20
MIN_WEIGHT = 1e-6  # scores may all round to 0


def prior_log_odds(balanced_log_odds: np.ndarray) -> float:
    """Log odds of the share of true matches among the matches of one pair."""
    prior = 0.0
    for _ in range(ITERATIONS):
        share = sigmoid(balanced_log_odds + prior).mean()
        share = np.clip(share, MIN_SHARE, 1 - MIN_SHARE)
        prior = float(np.log(share / (1 - share)))
    return prior


def given_agreement(scores: np.ndarray, agrees: np.ndarray, chance: float) -> np.ndarray:
    """Probabilities (N,) that matches are true, given which of them agree with a pose.

    The share of the true matches that agree is estimated from the pair itself, so that a wrong
    pose, with which few of them agree, changes little.

    Args:
        scores: (N,) probabilities without the pose.
        agrees: (N,) bool.
        chance: share of outliers that agree.
    """
    chance = float(np.clip(chance, MIN_SHARE, 1 - MIN_SHARE))
    # Of the agreement weighted by the scores, a part is that of outliers with a score.
    weights = np.maximum(scores, MIN_WEIGHT)
    purity = np.average(weights, weights=weights)
    share = (np.average(agrees, weights=weights) - (1 - purity) * chance) / purity
    share = np.clip(share, chance, 1 - MIN_SHARE)
    true = scores * np.where(agrees, share, 1 - share)
    outliers = (1 - scores) * np.where(agrees, chance, 1 - chance)
    return true / (true + outliers)


def sigmoid(log_odds: np.ndarray | float) -> np.ndarray:
    """Probability of given log odds, without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * np.asarray(log_odds)))

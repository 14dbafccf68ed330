"""Differences between methods, and whether they are more than chance."""

import numpy as np
import pytest

from training.significance import paired_difference

RNG = np.random.default_rng(0)


def errors(share, pairs=40):
    """Pose errors with the given share of pairs below 5 degrees."""
    return np.where(np.arange(pairs) < share * pairs, 1.0, 90.0)


def test_equal_methods_do_not_differ():
    same = [errors(0.5), errors(0.8)]
    found = paired_difference(same, same, 10)
    assert (found.mean, found.low, found.high) == (0, 0, 0)


def test_the_difference_is_the_mean_over_sequences_not_over_pairs():
    first = [errors(1.0, 10), errors(0.5, 100)]
    second = [errors(0.5, 10), errors(0.5, 100)]
    found = paired_difference(first, second, 5)
    assert found.mean == pytest.approx(0.25)
    assert 0 < found.low < 0.25 < found.high


def test_pairs_that_are_hard_for_both_do_not_widen_the_interval():
    easy = np.where(RNG.random(200) < 0.5, 1.0, 90.0)
    one_better = easy.copy()
    one_better[np.flatnonzero(easy > 5)[0]] = 1.0
    paired = paired_difference([one_better], [easy], 5)
    shuffled = paired_difference([one_better], [RNG.permutation(easy)], 5)
    assert paired.high - paired.low < (shuffled.high - shuffled.low) / 3

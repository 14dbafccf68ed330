"""Network inputs: coordinates, then side information in the order of the model."""

from types import SimpleNamespace

import numpy as np
import pytest

from lgc_ros.filter.side_information import consensus, network_inputs, side_information_error


def known(roll, zoom, ratio=0.5, mutual=True):
    count = len(roll)
    return SimpleNamespace(
        roll=np.asarray(roll, float),
        zoom=np.asarray(zoom, float),
        ratio=np.broadcast_to(ratio, count),
        mutual=np.broadcast_to(mutual, count),
    )


def pair(seed=0, roll=0.3, zoom=0.5, inliers=200, outliers=800):
    """Matches of which the first `inliers` agree on roll and zoom, up to 5 degrees and 0.1."""
    rng = np.random.default_rng(seed)
    count = inliers + outliers
    good = np.arange(count) < inliers
    return known(
        np.where(good, roll + 0.09 * rng.standard_normal(count), rng.uniform(-9, 9, count)),
        np.where(good, zoom + 0.1 * rng.standard_normal(count), 1.3 * rng.standard_normal(count)),
        np.where(good, rng.beta(4, 1.5, count), rng.beta(15, 1, count)),
        rng.random(count) < np.where(good, 0.8, 0.22),
    )


def test_inputs_are_coordinates_followed_by_the_named_side_information():
    x0, x1 = np.array([[1.0, 2], [3, 4]]), np.array([[5.0, 6], [7, 8]])
    given = known([0, 1], [0, 1], ratio=[0.5, 0.6], mutual=[True, False])
    inputs = network_inputs(x0, x1, given, ("mutual", "consensus", "ratio"))
    assert inputs.dtype == np.float32
    expected = [[1, 2, 5, 6, 1, 1, 0.5], [3, 4, 7, 8, 0, 0, 0.6]]
    np.testing.assert_allclose(inputs, expected, atol=1e-6)


@pytest.mark.parametrize(("roll", "zoom"), [(0.3, 0.5), (3.1, 0.0), (-2.0, -1.7)])
def test_true_matches_agree_and_outliers_do_not(roll, zoom):
    votes = consensus(pair(roll=roll, zoom=zoom))
    assert votes.min() >= 0
    assert votes.max() <= 1
    assert np.median(votes[:200]) > 0.5
    assert np.median(votes[200:]) < 0.1


def test_consensus_is_nearly_invariant_to_camera_roll():
    reference = consensus(pair())
    turned = pair()
    turned.roll = turned.roll + 1.0
    assert np.corrcoef(reference, consensus(turned))[0, 1] > 0.95
    turned.roll = turned.roll - 1.0 - 2 * np.pi
    np.testing.assert_allclose(consensus(turned), reference, atol=1e-9)


def test_indistinct_matches_do_not_vote():
    assert consensus(known([0.1, 2.0], [0, 0], ratio=1.0)).tolist() == [0, 0]
    assert consensus(known([0.1, 2.0], [0, 0], mutual=False)).tolist() == [0, 0]
    assert consensus(known([], [])).tolist() == []


def test_extreme_zooms_do_not_share_the_votes_of_ordinary_ones():
    votes = consensus(known([0, 0, 0, 0], [0, 0, 9, -9]))
    assert votes[0] == votes[1] == 1
    assert (votes[2:] < 0.6).all()


def test_error_names_the_unknown_and_the_known_side_information():
    assert side_information_error(("ratio", "mutual")) == ""
    assert "color" in side_information_error(("ratio", "color"))
    assert "consensus" in side_information_error(("color",))

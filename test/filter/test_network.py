"""The network is the paper's, and treats matches as a set."""

import pytest
import torch
from torch import nn

from lgc_ros.filter.network import (
    ContextNorm,
    CorrespondenceNetwork,
    NetworkConfig,
    match_weights,
)

VARIANTS = [
    NetworkConfig(),
    NetworkConfig(side=2),
    NetworkConfig(context="none"),
    NetworkConfig(context="pointnet"),
]


@pytest.fixture(autouse=True)
def _repeatable_without_gradients():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def network(config):
    return CorrespondenceNetwork(config).eval()


def close(a, b, tolerance=1e-4):
    return torch.allclose(a, b, rtol=0, atol=tolerance)


def test_number_of_parameters_is_that_of_the_paper():
    # Input 4·128 + 128, 24 perceptrons of 128·128 + 128 and 2·128 for their norm, output 128 + 1.
    count = sum(parameter.numel() for parameter in network(NetworkConfig()).parameters())
    assert count == 640 + 24 * (16512 + 256) + 129 == 403_201


def test_context_norm_equals_instance_norm_followed_by_batch_norm():
    x = torch.randn(5, 16, 200) * 3 + 1
    reference = nn.Sequential(nn.InstanceNorm1d(16), nn.BatchNorm1d(16)).train()
    nn.init.normal_(reference[1].weight)
    nn.init.normal_(reference[1].bias)
    ours = ContextNorm(16)
    ours.load_state_dict({"weight": reference[1].weight, "bias": reference[1].bias})
    rows = ours(x.permute(2, 0, 1))
    assert close(rows.permute(1, 2, 0), reference(x))


@pytest.mark.parametrize("config", VARIANTS, ids=str)
def test_permuting_the_matches_permutes_the_scores(config):
    net, x = network(config), torch.randn(2, 150, 4 + config.side)
    order = torch.randperm(150)
    assert close(net(x[:, order]), net(x)[:, order])


@pytest.mark.parametrize("config", VARIANTS, ids=str)
def test_scores_of_a_pair_do_not_depend_on_its_batch(config):
    net, x = network(config), torch.randn(3, 100, 4 + config.side)
    alone = torch.cat([net(pair[None]) for pair in x])
    assert close(net(x), alone)


@pytest.mark.parametrize("matches", [1, 2, 7, 2000])
def test_any_number_of_matches_has_finite_scores(matches):
    scores = network(NetworkConfig())(torch.randn(1, matches, 4))
    assert scores.shape == (1, matches)
    assert torch.isfinite(scores).all()


def test_identical_matches_get_identical_finite_scores():
    scores = network(NetworkConfig())(torch.ones(1, 50, 4))
    assert torch.isfinite(scores).all()
    assert scores.max() - scores.min() < 1e-6


def test_one_match_affects_the_others_only_through_context():
    x = torch.randn(1, 100, 4)
    changed = x.clone()
    changed[0, 0] += 5
    for context, reacts in (("cn", True), ("pointnet", True), ("none", False)):
        net = network(NetworkConfig(blocks=2, context=context))
        difference = (net(x) - net(changed))[0, 1:].abs().max()
        assert bool(difference > 0) is reacts


def test_direct_head_outputs_one_matrix_per_pair():
    assert network(NetworkConfig(head="direct"))(torch.randn(3, 40, 4)).shape == (3, 3, 3)


def test_weights_of_outliers_are_zero_and_all_below_one():
    weights = match_weights(torch.tensor([-3.0, 0.0, 0.5, 4.0]))
    assert weights.tolist() == pytest.approx([0, 0, 0.4621, 0.9993], abs=1e-4)


@pytest.mark.parametrize("wrong", [{"context": "x"}, {"head": "x"}, {"blocks": 0}, {"side": -1}])
def test_invalid_architectures_are_rejected(wrong):
    with pytest.raises(ValueError, match="must"):
        NetworkConfig(**wrong)

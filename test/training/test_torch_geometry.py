"""The differentiable geometry agrees with the numpy one, its gradients with differences."""

import numpy as np
import pytest
import torch
from scenes import random_scene

from lgc_ros.geometry import epipolar as geometry
from training import torch_geometry


def batch(*scenes):
    count = min(len(scene.x0) for scene in scenes)
    return (
        torch.tensor(np.stack([scene.x0[:count] for scene in scenes])),
        torch.tensor(np.stack([scene.x1[:count] for scene in scenes])),
    )


@pytest.mark.parametrize("conditioned", [False, True])
def test_eight_point_agrees_with_numpy_on_every_pair_of_a_batch(conditioned):
    scenes = [random_scene(seed, noise_px=0.5) for seed in range(4)]
    x0, x1 = batch(*scenes)
    weights = torch.rand(x0.shape[:2], dtype=torch.float64)
    E = torch_geometry.weighted_eight_point(x0, x1, weights, conditioned)
    for k in range(len(scenes)):
        given = (v[k].numpy() for v in (x0, x1, weights))
        expected = geometry.weighted_eight_point(*given, conditioned=conditioned)
        assert abs(float((E[k].numpy() * expected).sum())) == pytest.approx(1, abs=1e-9)


def test_distance_agrees_with_numpy():
    scene = random_scene(1, noise_px=2.0)
    x0, x1 = batch(scene)
    distance = torch_geometry.symmetric_epipolar_distance(torch.tensor(scene.E_10)[None], x0, x1)
    expected = geometry.symmetric_epipolar_distance(scene.E_10, x0[0].numpy(), x1[0].numpy())
    assert distance[0].numpy() == pytest.approx(expected)


@pytest.mark.parametrize("conditioned", [False, True])
def test_gradients_agree_with_finite_differences(conditioned):
    x0, x1 = batch(random_scene(0, points=14, noise_px=20.0), random_scene(1, 14, 20.0))
    weights = torch.rand(x0.shape[:2], dtype=torch.float64, requires_grad=True)
    probe = torch.randn(3, 3, dtype=torch.float64)

    def invariant_to_sign(x0, x1, weights):
        E = torch_geometry.weighted_eight_point(x0, x1, weights, conditioned)
        return (E * probe).sum((1, 2)).square()

    x0.requires_grad_(), x1.requires_grad_()
    assert torch.autograd.gradcheck(invariant_to_sign, (x0, x1, weights))
    E = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        torch_geometry.symmetric_epipolar_distance, (E, x0, x1), atol=1e-4
    )


@pytest.mark.parametrize("conditioned", [False, True])
def test_gradients_are_finite_when_eigenvalues_repeat(conditioned):
    x0 = torch.zeros(1, 10, 2, requires_grad=True)
    x1 = torch.zeros(1, 10, 2, requires_grad=True)
    weights = torch.ones(1, 10, requires_grad=True)
    torch_geometry.weighted_eight_point(x0, x1, weights, conditioned).sum().backward()
    for value in (x0, x1, weights):
        assert torch.isfinite(value.grad).all()


@pytest.mark.parametrize("conditioned", [False, True])
def test_gradients_are_finite_without_any_weight(conditioned):
    x0, x1 = batch(random_scene(0))
    weights = torch.zeros(x0.shape[:2], requires_grad=True)
    torch_geometry.weighted_eight_point(x0, x1, weights, conditioned).sum().backward()
    assert torch.isfinite(weights.grad).all()


@pytest.mark.parametrize("conditioned", [False, True])
def test_a_match_of_weight_zero_does_not_change_the_result(conditioned):
    x0, x1 = batch(random_scene(0, noise_px=1.0))
    weights = torch.ones(x0.shape[:2])
    weights[0, 5] = 0
    E = torch_geometry.weighted_eight_point(x0, x1, weights, conditioned)
    x1[0, 5] = 100.0
    assert torch.equal(E, torch_geometry.weighted_eight_point(x0, x1, weights, conditioned))

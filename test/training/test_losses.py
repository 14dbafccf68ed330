"""The losses of section 3.4 reward correct weights, and only those."""

import numpy as np
import pytest
import torch
from scenes import random_scene
from transforms3d.euler import euler2mat

from training.losses import (
    REGRESSIONS,
    classification_loss,
    distillation_loss,
    epipolar_loss,
    essential_loss,
    regression_loss,
)


def pair_tensors(seed=0, outliers=0):
    """xs (1, N, 4), labels (1, N) and E_gt (1, 3, 3) of exact matches followed by outliers."""
    scene = random_scene(seed)
    wrong = np.random.default_rng(seed).uniform(-0.5, 0.5, (outliers, 4))
    xs = np.vstack([np.hstack([scene.x0, scene.x1]), wrong])
    labels = np.repeat([1.0, 0.0], [len(scene.x0), outliers])
    return tuple(torch.tensor(v, dtype=torch.float32)[None] for v in (xs, labels, scene.E_10))


def test_true_matches_and_outliers_have_equal_weight_in_each_pair():
    few = torch.tensor([[1.0, 0, 0, 0, 0, 0, 0, 0]])
    many = torch.tensor([[1.0, 1, 1, 1, 0, 0, 0, 0]])
    for labels in (few, many):
        all_right, all_wrong = torch.full_like(labels, 3.0), torch.full_like(labels, -3.0)
        balanced = classification_loss(all_right, labels), classification_loss(all_wrong, labels)
        assert balanced[0].item() == pytest.approx(balanced[1].item())


def test_a_batch_is_the_mean_of_its_pairs():
    logits, labels = torch.randn(3, 20), (torch.rand(3, 20) < 0.3).float()
    single = [classification_loss(logits[i : i + 1], labels[i : i + 1]) for i in range(3)]
    assert classification_loss(logits, labels).item() == pytest.approx(np.mean(single), rel=1e-5)


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_a_pair_of_one_class_has_a_finite_loss(label):
    logits = torch.randn(1, 10, requires_grad=True)
    loss = classification_loss(logits, torch.full((1, 10), label))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()


def test_a_pupil_learns_how_sure_its_teacher_is():
    taught = torch.tensor([[-30.0, -2.0, 4.0, 6.0]])
    assert distillation_loss(torch.tensor([[-10.0, -2.0, 4.0, 6.0]]), taught).item() == 0
    less_sure = torch.tensor([[-10.0, -2.0, 4.0, 4.0]])
    assert distillation_loss(less_sure, taught).item() > 0.1


def test_the_sign_and_scale_of_an_essential_matrix_do_not_matter():
    E, E_gt = torch.randn(4, 3, 3), torch.randn(4, 3, 3)
    expected = essential_loss(E, E_gt).item()
    assert essential_loss(-E, E_gt).item() == pytest.approx(expected)
    assert essential_loss(E, -5 * E_gt).item() == pytest.approx(expected)
    assert essential_loss(-3 * E_gt, E_gt).item() == pytest.approx(0, abs=1e-6)
    assert 0 < expected <= 2


@pytest.mark.parametrize("kind", REGRESSIONS)
@pytest.mark.parametrize("conditioned", [False, True])
def test_weights_without_outliers_have_no_regression_loss(kind, conditioned):
    xs, labels, E_gt = pair_tensors(outliers=200)
    perfect = torch.where(labels > 0, 3.0, -3.0)
    assert regression_loss(perfect, xs, E_gt, kind, conditioned).item() < 1e-5
    assert regression_loss(torch.ones_like(labels), xs, E_gt, kind, conditioned).item() > 0.1


def test_the_epipolar_loss_grows_with_the_error_of_the_pose_up_to_a_limit():
    xs, _, E_gt = pair_tensors(outliers=100)
    turns = [euler2mat(0, 0, np.radians(angle)) for angle in (0.0, 0.5, 2.0, 8.0, 90.0)]
    losses = [epipolar_loss(E_gt.double() @ torch.tensor(turn), xs, E_gt).item() for turn in turns]
    assert losses[0] == pytest.approx(0, abs=1e-5)
    assert losses == sorted(losses)
    assert losses[-1] <= 1


def test_the_epipolar_loss_is_a_half_at_three_degrees():
    """Cameras side by side: epipolar lines are rows, which another E shifts by a constant."""
    E_gt = torch.tensor([[[0.0, 0, 0], [0, 0, -1], [0, 1, 0]]])
    moved = E_gt.clone()
    moved[0, 2, 2] = np.radians(3)
    xs = torch.rand(1, 50, 4) - 0.5
    assert epipolar_loss(moved, xs, E_gt).item() == pytest.approx(0.5, abs=0.02)


def test_matches_off_their_epipolar_lines_leave_the_epipolar_loss_of_the_truth_at_zero():
    xs, _, E_gt = pair_tensors()
    wrong = xs.clone()
    wrong[..., 2:] += 0.05 * torch.randn_like(wrong[..., 2:])
    assert epipolar_loss(E_gt, wrong, E_gt).item() == pytest.approx(0, abs=1e-5)


def test_no_pair_pulls_harder_than_the_clip_and_the_others_pull_as_before():
    pairs = [pair_tensors(seed, outliers=20) for seed in range(6)]
    xs, labels, E_gt = (torch.cat([pair[k] for pair in pairs]) for k in range(3))

    def pull(clip):
        logits = (0.3 + labels).requires_grad_()
        loss = regression_loss(logits, xs, E_gt, "essential", True, clip)
        loss.backward()
        return loss.item(), logits.grad * len(pairs)

    loss, free = pull(0.0)
    limit = free.norm(dim=1).median().item()
    same_loss, clipped = pull(limit)
    assert same_loss == loss
    hard = free.norm(dim=1) > limit
    torch.testing.assert_close(clipped[~hard], free[~hard])
    torch.testing.assert_close(clipped[hard].norm(dim=1), torch.full((int(hard.sum()),), limit))
    shortened = torch.cosine_similarity(clipped[hard], free[hard], dim=1)
    torch.testing.assert_close(shortened, torch.ones_like(shortened))


@pytest.mark.parametrize("logit", [-2.0, 0.0, 2.0, 60.0])
@pytest.mark.parametrize("kind", REGRESSIONS)
@pytest.mark.parametrize("conditioned", [False, True])
def test_the_gradient_is_finite_for_any_logits(logit, kind, conditioned):
    xs, labels, E_gt = pair_tensors(outliers=20)
    logits = torch.full_like(labels, logit, requires_grad=True)
    regression_loss(logits, xs, E_gt, kind, conditioned).backward()
    assert torch.isfinite(logits.grad).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "conditioned"), [("essential", False), ("essential", True), ("epipolar", True)]
)
def test_the_regression_loss_lowers_the_weight_of_outliers(kind, conditioned):
    xs, labels, E_gt = pair_tensors(outliers=100)
    logits = torch.full_like(labels, 0.5, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.05)
    losses = []
    for _ in range(100):
        optimizer.zero_grad()
        loss = regression_loss(logits, xs, E_gt, kind, conditioned)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
    assert logits[labels == 1].mean() > logits[labels == 0].mean()


@pytest.mark.parametrize("kind", REGRESSIONS)
def test_a_pair_that_is_not_finite_makes_the_loss_nan_and_no_error(kind):
    xs, labels, E_gt = pair_tensors(outliers=5)
    broken = xs.clone()
    broken[0, 3, 1] = torch.nan
    both = torch.cat([xs, broken]), torch.cat([E_gt, E_gt])
    assert regression_loss(labels.repeat(2, 1), *both, kind, conditioned=True).isnan()

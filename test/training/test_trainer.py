"""Training learns, skips bad batches, validates, and never mixes runs."""

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_runs import (
    MATCHES,
    scalars,
    skipped,
    tiny,
    weights,
)

import training.run_log
import training.trainer
from lgc_ros.errors import CheckpointError, ConfigError, DatasetError
from lgc_ros.filter.checkpoint import load_checkpoint
from lgc_ros.filter.network import CorrespondenceNetwork
from training.data.batches import Batches, SourceConfig
from training.objective import batch_losses, monitored_losses
from training.trainer import train
from training.validation import ValidationScore


def test_training_lowers_the_loss_on_pairs_it_has_not_seen(tmp_path):
    config = tiny(steps=60, batch=8, beta_from=40, learning_rate=1e-2)
    unseen = Batches(config.sources, steps=1, batch=32, matches=MATCHES, seed=99)[0]

    def loss(network):
        with torch.no_grad():
            return batch_losses(config, 0, network.eval()(unseen.xs), unseen)["loss"].item()

    torch.manual_seed(config.seed)
    before = loss(CorrespondenceNetwork(config.network))
    after = loss(load_checkpoint(train(config, tmp_path))[0])
    assert after < 0.9 * before


@pytest.mark.parametrize("kind", ["hybrid", "classification", "essential", "direct"])
@pytest.mark.parametrize("context", ["cn", "pointnet", "none"])
def test_every_variant_of_the_ablations_trains(tmp_path, kind, context):
    config = tiny(loss=kind, context=context, side=("ratio",), steps=2, beta_from=1)
    _, info = load_checkpoint(train(config, tmp_path))
    assert info.network.context == context
    assert info.network.head == ("direct" if kind == "direct" else "weights")
    assert info.side == ("ratio",)
    assert info.training["config"]["loss"] == kind


def test_the_regression_loss_starts_at_its_step():
    config = tiny(beta=0.1, beta_from=20)
    batch = Batches(config.sources, steps=1, batch=2, matches=MATCHES)[0]
    logits = torch.randn(2, MATCHES)
    early, late = (batch_losses(config, step, logits, batch) for step in (19, 20))
    assert set(early) == {"loss", "classification"}
    expected = late["classification"] + 0.1 * late["regression"]
    assert late["loss"].item() == pytest.approx(expected.item())


def test_the_kind_of_regression_is_chosen(tmp_path):
    config = tiny(beta_from=0)
    batch = Batches(config.sources, steps=1, batch=2, matches=MATCHES)[0]
    logits = torch.randn(2, MATCHES)

    def regression(**options):
        return batch_losses(replace(config, **options), 0, logits, batch)["regression"].item()

    plain, conditioned = regression(), regression(conditioned=True)
    epipolar = regression(regression="epipolar", conditioned=True)
    assert len({plain, conditioned, epipolar}) == 3
    train(tiny(regression="epipolar", conditioned=True, pair_clip=0.05, beta_from=0), tmp_path)


def test_products_in_bfloat16_learn_nearly_the_same(tmp_path):
    config = tiny(steps=40, batch=8, learning_rate=5e-3)
    unseen = Batches(config.sources, steps=1, batch=64, matches=MATCHES, seed=99)[0]
    losses = {}
    for precision in ("float32", "bfloat16"):
        last = train(replace(config, precision=precision), tmp_path / precision)
        network = load_checkpoint(last)[0]
        assert {value.dtype for value in network.state_dict().values()} == {torch.float32}
        losses[precision] = monitored_losses(config, network, unseen)["classification"]
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.05)
    assert losses["bfloat16"] != losses["float32"]


@pytest.mark.parametrize("context", ["cn", "none"])
def test_a_batch_with_nan_is_skipped_counted_and_reported(dumps, tmp_path, caplog, context):
    mixed = SourceConfig("dump", path=str(dumps / "mixed.hdf5"))
    config = tiny(sources=(mixed,), steps=12, batch=2, beta_from=0, context=context)
    result = train(config, tmp_path)
    assert 0 < skipped(tmp_path) < 12
    assert f"{skipped(tmp_path)} so far" in caplog.text
    assert all(torch.isfinite(value).all() for value in weights(result).values())


def test_nothing_is_learned_from_batches_with_nan(dumps, tmp_path):
    config = tiny(sources=(SourceConfig("dump", path=str(dumps / "broken.hdf5")),), steps=3)
    torch.manual_seed(config.seed)
    initial = CorrespondenceNetwork(config.network).state_dict()
    trained = weights(train(config, tmp_path))
    assert skipped(tmp_path) == 3
    assert all(torch.equal(trained[name], initial[name]) for name in initial)


def test_another_configuration_in_the_same_folder_is_refused(tmp_path):
    train(tiny(steps=4), tmp_path)
    with pytest.raises(ConfigError, match=r"resume\.pt belongs to .*different: learning_rate"):
        train(tiny(steps=4, learning_rate=0.5), tmp_path)
    longer = train(tiny(steps=6), tmp_path)
    assert load_checkpoint(longer)[1].training["step"] == 6


def test_a_damaged_resume_point_is_refused(tmp_path):
    (tmp_path / "resume.pt").write_bytes(b"half a file")
    with pytest.raises(CheckpointError, match=r"resume\.pt cannot be read .*remove it"):
        train(tiny(), tmp_path)


def test_validation_accuracy_selects_the_best_weights(monkeypatch, dumps, tmp_path):
    """Those of the robust pose, and beside them those of the closed form."""
    found = iter([(2, 1), (6, 2), (4, 3)])

    def scored(*args):
        robust, closed = (np.repeat([0.0, 180.0], [right, 10 - right]) for right in next(found))
        return ValidationScore(robust, closed, 0.0, 0.0)

    monkeypatch.setattr(training.trainer, "validate", scored)
    config = tiny(steps=6, validate_every=2, validation=(str(dumps / "good.hdf5"),))
    best = train(config, tmp_path)
    assert best.name == "best.safetensors"
    _, info = load_checkpoint(best)
    assert info.training["step"] == 4
    assert info.training["validation_map"] == 0.6
    assert info.training["validation_map_8pt"] == 0.2
    assert load_checkpoint(tmp_path / "best_8pt.safetensors")[1].training["step"] == 6
    assert load_checkpoint(tmp_path / "last.safetensors")[1].training["step"] == 6


def test_curves_are_means_and_both_methods_are_watched(monkeypatch, dumps, tmp_path):
    monkeypatch.setattr(training.run_log, "LOG_EVERY", 4)
    seen = []
    update = training.trainer._Run._update

    def noted(self, batch):
        losses = update(self, batch)
        seen.append(losses["classification"])
        return losses

    monkeypatch.setattr(training.trainer._Run, "_update", noted)
    good = str(dumps / "good.hdf5")
    train(tiny(steps=8, validate_every=4, validation=(good,), watch_pairs=6), tmp_path)
    shown = scalars(tmp_path)
    means = {4: np.mean(seen[:4]), 8: np.mean(seen[4:])}
    assert shown["train/classification"] == pytest.approx(means, rel=1e-5)
    for name in ("map5", "auc20", "map5_8pt", "auc20_8pt", "precision"):
        assert set(shown[f"good/{name}"]) == {4, 8}
    for name in ("training", "validation"):
        assert set(shown[f"loss_classification/{name}"]) == {4, 8}
        assert set(shown[f"loss_regression/{name}"]) == {4, 8}


def test_classification_learns_log_odds_less_the_margin():
    config = tiny(beta_from=10)
    batch = Batches(config.sources, steps=1, batch=2, matches=MATCHES)[0]
    logits = torch.randn(2, MATCHES)
    plain = batch_losses(config, 0, logits, batch)
    assert batch_losses(replace(config, margin=2.0), 0, logits - 2, batch) == plain


def test_a_dump_without_the_side_information_is_refused_at_once(dumps, tmp_path):
    import h5py

    path = tmp_path / "foreign.hdf5"
    path.write_bytes((dumps / "good.hdf5").read_bytes())
    with h5py.File(path, "a") as file:
        del file["mutuals"]
    with pytest.raises(DatasetError, match=r"foreign\.hdf5 holds no mutual"):
        train(tiny(side=("mutual",), validation=(str(path),)), tmp_path / "out")


def test_progress_is_logged_where_there_is_no_terminal(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    train(tiny(steps=4, save_every=2), tmp_path)
    assert "step 2 of 4: loss" in caplog.text

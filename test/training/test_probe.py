"""A probe lets a trained network drop wrong matches, few right ones, and changes nothing else."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from lgc_ros.checkpoint import ModelInfo, load_checkpoint, save_checkpoint
from lgc_ros.errors import CheckpointError, ConfigError
from lgc_ros.network import CorrespondenceNetwork, NetworkConfig
from training.__main__ import app
from training.config import TrainConfig
from training.data.batches import SourceConfig
from training.data.dump import Dump, write_dump
from training.data.simulation import simulate_pair
from training.probe import ProbeConfig, make_probe
from training.trainer import train

PAIRS, MATCHES, LOST = 16, 300, 0.02


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    path = tmp_path_factory.mktemp("dump") / "simulated.hdf5"
    write_dump(path, (simulate_pair(np.random.default_rng(i), MATCHES) for i in range(PAIRS)))
    return path


@pytest.fixture(scope="module")
def config(dump):
    return TrainConfig(
        "tiny",
        (SourceConfig("dump", path=str(dump)),),
        blocks=4,
        width=16,
        matches=128,
        batch=8,
        steps=80,
        learning_rate=1e-2,
        beta_from=1000,
        clip=5.0,
        workers=0,
    )


@pytest.fixture(scope="module")
def trained(config, tmp_path_factory):
    return train(config, tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def probed(trained, dump, tmp_path_factory):
    path = tmp_path_factory.mktemp("probed") / "tiny.safetensors"
    return path, make_probe(trained, dump, path, ProbeConfig(2, LOST, 40))


def test_some_matches_are_dropped_and_of_the_right_ones_as_few_as_asked(probed):
    _, summary = probed
    assert 0.05 < summary["survive"] < 0.95
    assert summary["lost"] == pytest.approx(LOST, abs=0.005)


def test_the_scores_are_nearly_those_of_before(trained, probed, dump):
    before, after = load_checkpoint(trained)[0], load_checkpoint(probed[0])[0]
    assert after.config.drop_after == 2
    for name, value in before.state_dict().items():
        assert torch.equal(after.state_dict()[name], value)
    agree = []
    for index in range(PAIRS):
        rows = torch.from_numpy(Dump(dump)[index].xs)[None]
        with torch.inference_mode():
            agree.append(((before(rows) > 0) == (after(rows) > 0)).float().mean())
    assert np.mean(agree) > 0.95


def test_a_probe_can_be_made_again(probed, dump, tmp_path):
    again = tmp_path / "again.safetensors"
    make_probe(probed[0], dump, again, ProbeConfig(1, LOST, 20))
    assert load_checkpoint(again)[1].network.drop_after == 1


def test_training_goes_on_from_a_model_with_a_probe_and_leaves_the_probe_out(
    config, probed, tmp_path
):
    result = train(replace(config, init=str(probed[0]), steps=1), tmp_path)
    assert load_checkpoint(result)[1].network.drop_after == 0


def test_the_command_tells_what_survives(trained, dump, tmp_path):
    out = tmp_path / "model.safetensors"
    arguments = ["probe", str(trained), str(dump), "--out", str(out), "--after", "1"]
    result = CliRunner().invoke(app, [*arguments, "--pairs", "20"])
    assert result.exit_code == 0, result.output
    assert "survive" in result.output
    assert load_checkpoint(out)[1].training["probe"]["dump"] == dump.name


@pytest.mark.parametrize("wrong", [{"after": 0}, {"after": 4}, {"lost": 0.0}, {"pairs": 1}])
def test_what_cannot_be_is_refused(wrong, trained, dump, tmp_path):
    with pytest.raises(ConfigError, match="|".join(wrong)):
        make_probe(trained, dump, tmp_path / "no.safetensors", ProbeConfig(**wrong))


@pytest.mark.parametrize(
    ("network", "keep_above"),
    [(NetworkConfig(4, 16, context="none"), 0.0), (NetworkConfig(4, 16), -1.0)],
)
def test_a_model_that_cannot_drop_matches_is_refused(network, keep_above, dump, tmp_path):
    path = tmp_path / "odd.safetensors"
    info = ModelInfo("odd", "sift", network, keep_above=keep_above)
    save_checkpoint(path, CorrespondenceNetwork(network), info)
    with pytest.raises(CheckpointError, match="cannot drop matches"):
        make_probe(path, dump, tmp_path / "no.safetensors", ProbeConfig())

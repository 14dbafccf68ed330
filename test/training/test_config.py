"""Training configurations: what is refused, replaced, and shipped."""

import pytest
from tiny_runs import (
    CONFIGS,
)

from lgc_ros.errors import ConfigError
from training.config import read_train_config


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("learning_rte: 1", "'learning_rte', did you mean 'learning_rate'"),
        ("loss: l2", "loss is 'l2', it must be one of hybrid"),
        ("regression: pose", "regression is 'pose', it must be one of essential, epipolar"),
        ("precision: float16", "precision is 'float16', it must be one of float32, bfloat16"),
        ("context: attention", "context is 'attention'"),
        ("side: [scale]", "unknown side information scale; known are ratio, mutual"),
        ("steps: many", "steps is 'many', it must be a number"),
        ("batch: 2.5", "batch is 2.5, it must be a whole number"),
        ("matches: 0", "matches is 0, it must be at least 1"),
        ("sources: []", "sources is empty"),
        ("sources: [{kid: dump}]", "unknown key 'kid', did you mean 'kind'"),
        ("init: $NO_SUCH_FOLDER/a", "environment variable NO_SUCH_FOLDER is not set"),
        ("[", "cannot be read as YAML"),
        ("", "'key: value' lines"),
    ],
)
def test_an_invalid_configuration_is_refused_with_the_reason(tmp_path, content, complaint):
    path = tmp_path / "train.yaml"
    needed = "" if content in ("", "[") else "name: a\n"
    needed += "sources: [{kind: simulation}]\n" if needed and "sources" not in content else ""
    path.write_text(needed + content)
    with pytest.raises(ConfigError, match=rf"train\.yaml.*{complaint}"):
        read_train_config(path)


def test_keys_can_be_replaced_and_numbers_written_freely(tmp_path):
    path = tmp_path / "train.yaml"
    path.write_text("name: a\nsources: [{kind: simulation}]\nlearning_rate: 1e-4\nsteps: 5")
    config = read_train_config(path, {"steps": "1e3", "side": "[ratio]", "loss": "direct"})
    assert (config.learning_rate, config.steps) == (1e-4, 1000)
    assert (config.side, config.loss) == (("ratio",), "direct")


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("train_*.yaml")), ids=lambda path: path.stem)
def test_the_shipped_configurations_are_valid(path, monkeypatch, tmp_path):
    monkeypatch.setenv("LGC_DUMP_DIR", str(tmp_path))
    config = read_train_config(path)
    assert all(str(tmp_path) in s.path for s in config.sources if s.kind == "dump")


def test_the_configuration_of_the_paper_has_its_values(monkeypatch, tmp_path):
    monkeypatch.setenv("LGC_DUMP_DIR", str(tmp_path))
    config = read_train_config(CONFIGS / "train_paper.yaml")
    assert (config.blocks, config.width, config.context, config.side) == (12, 128, "cn", ())
    assert (config.loss, config.alpha, config.beta, config.beta_from) == ("hybrid", 1, 0.1, 20_000)
    assert (config.learning_rate, config.batch, config.decay) == (1e-4, 32, "constant")
    assert (config.warmup, config.average) == (0, 0)
    assert config.label_threshold == 1e-2**2

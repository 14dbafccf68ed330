"""Training runs of seconds, shared by the tests of training."""

from pathlib import Path

import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import training.run_log
import training.trainer
from lgc_ros.filter.checkpoint import load_checkpoint
from training.config import TrainConfig
from training.data.batches import SourceConfig

ROOT = Path(training.trainer.__file__).parent.parent
CONFIGS = ROOT / "training" / "configs"
MATCHES = 48


def tiny(**options):
    defaults = {
        "name": "tiny",
        "sources": (SourceConfig("simulation"),),
        "blocks": 2,
        "width": 16,
        "matches": MATCHES,
        "batch": 4,
        "steps": 8,
        "learning_rate": 3e-3,
        "beta_from": 4,
        "clip": 5.0,
        "save_every": 4,
        "workers": 0,
    }
    return TrainConfig(**{**defaults, **options})


def weights(path):
    return load_checkpoint(path)[0].state_dict()


def assert_same_weights(first, second, atol=0.0):
    first, second = weights(first), weights(second)
    assert first.keys() == second.keys()
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=0, atol=atol)


def skipped(out):
    return torch.load(out / "resume.pt", weights_only=True)["skipped"]


def scalars(out):
    """What TensorBoard shows: by name, the values by step."""
    events = EventAccumulator(str(out)).Reload()
    return {
        name: {event.step: event.value for event in events.Scalars(name)}
        for name in events.Tags()["scalars"]
    }

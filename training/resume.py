"""The resume point of a run: everything needed to continue as if it had not been interrupted."""

from __future__ import annotations

import io
from pathlib import Path

import torch
import yaml

from lgc_ros.errors import CheckpointError, ConfigError
from lgc_ros.runtime.output_files import write_file
from lgc_ros.runtime.safe_yaml import parse_yaml
from training.config import TrainConfig

RESUME_FILE = "resume.pt"
CHANGEABLE = {
    "steps",
    "validation",
    "validate_every",
    "validation_pairs",
    "watch_pairs",
    "save_every",
    "workers",
}
"""Settings that may change between two parts of a run: its length, and how it is monitored."""


def config_yaml(config: TrainConfig) -> str:
    """The configuration as YAML, in the order of its fields."""
    return yaml.safe_dump(_plain(config.as_dict()), sort_keys=False)


def write_resume_point(out: Path, config: TrainConfig, state: dict) -> None:
    """Write the state of a run; the file appears under its name only when complete."""
    content = io.BytesIO()
    torch.save({"config": config_yaml(config), **state}, content)
    write_file(out / RESUME_FILE, content.getvalue())


def read_resume_point(out: Path, config: TrainConfig) -> dict | None:
    """The state of the run in a folder, if there is one; it must be of the same configuration."""
    path = out / RESUME_FILE
    if not path.is_file():
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        before = dict(parse_yaml(state["config"]))
    except Exception as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}): remove it to start this run from the beginning"
        ) from error
    now = _plain(config.as_dict())
    changed = sorted(k for k in now if k not in CHANGEABLE and now[k] != before.get(k))
    if changed:
        raise ConfigError(
            f"{path} belongs to another configuration (different: {', '.join(changed)}): "
            "choose another --out, or remove the folder to start again"
        )
    return state


def invalid_state(out: Path, error: Exception) -> CheckpointError:
    """The error for a state that does not fit the run it should continue."""
    return CheckpointError(
        f"{out / RESUME_FILE} does not fit this run ({error!r:.200}): remove it to start from the "
        "beginning"
    )


def _plain(value):
    """Tuples as lists, which YAML can express without tags."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value

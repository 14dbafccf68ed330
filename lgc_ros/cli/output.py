"""Where commands write: places are checked before the work, so that none of it is lost."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from lgc_ros.errors import ConfigError


def check_folder(folder: Path | None) -> Path | None:
    """A folder that is there, or can be made; for `--out`."""
    if folder is not None:
        _check_place(folder, f"--out {folder}")
    return folder


def check_json(path: Path | None) -> Path | None:
    """A file that can be written; for `--json`."""
    if path is None:
        return None
    if path.is_dir():
        raise ConfigError(f"--json {path} is a folder: name a file, such as {path / 'out.json'}")
    _check_place(path.parent, f"--json {path}")
    return path


def _check_place(folder: Path, option: str) -> None:
    place = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not place.is_dir():
        raise ConfigError(f"{option}: {place} is a file, not a folder; name another place")
    if not os.access(place, os.W_OK | os.X_OK):
        raise ConfigError(f"{option}: {place} is write-protected; name another place")


def write_json(path: Path, content: dict) -> None:
    """Write results for programs to read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


JsonOption = Annotated[
    Path | None,
    typer.Option("--json", callback=check_json, help="Write the results to this JSON file."),
]

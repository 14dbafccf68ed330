"""The folders of a run that `lgc run` wrote, and the images of the source it came from."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from lgc_ros.errors import LgcError, SourceError
from lgc_ros.estimation.methods import METHODS
from lgc_ros.evaluation.states_file import STATES_FILE
from lgc_ros.images.frame import Frame
from lgc_ros.odometry.state import OdometryState
from lgc_ros.runtime.safe_yaml import YamlError, read_yaml
from lgc_ros.sources import Source, open_source

log = logging.getLogger(__name__)


def method_folders(folder: Path) -> dict[str, Path]:
    """The folders of a run by method; if it has one method only, the folder itself by its name."""
    folders = {name: folder / name for name in METHODS}
    compared = {name: path for name, path in folders.items() if (path / STATES_FILE).is_file()}
    return {folder.name: folder} if (folder / STATES_FILE).is_file() or not compared else compared


def reopen_source(folder: Path) -> Source:
    """The source of a run, opened as config.yaml records it."""
    path = folder / "config.yaml"
    try:
        recipe = read_yaml(path)
        chosen = {name: recipe[name] for name in ("every", "limit", "gt")}
        further = {name: recipe.get(name) for name in ("kind", "image_topic")}
        rate_hz = recipe.get("fps")
        return open_source(
            recipe["source"], recipe["camera"], rate_hz=rate_hz, **chosen, **further
        )
    except (OSError, YamlError, KeyError, TypeError) as error:
        raise SourceError(
            f"{path} does not name the source of the run ({error!r:.200})"
        ) from error


def frames_of_run(folder: Path, states: list[OdometryState]) -> Iterator[Frame | None]:
    """The frame of each state, by its stamp; None where there is none, or without the source."""
    try:
        frames = iter(reopen_source(folder))
        frame = next(frames, None)
    except LgcError as error:
        log.warning(
            "no images: %s (of the source in config.yaml; call this where `lgc run` was called)",
            error,
        )
        frames, frame = iter(()), None
    for state in states:
        while frame is not None and frame.stamp_ns < state.stamp_ns:
            frame = next(frames, None)
        yield frame if frame is not None and frame.stamp_ns == state.stamp_ns else None

"""Sets of image pairs to evaluate on: folders with pairs.txt, and the sequences of dumps."""

from __future__ import annotations

import glob
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lgc_ros.errors import ConfigError, DatasetError
from training.data.batches import open_dump


@dataclass(frozen=True)
class PairSet:
    """The pairs of one sequence: a folder with pairs.txt, or some pairs of a dump."""

    name: str
    group: str
    path: Path
    in_dump: tuple[int, ...] = ()
    keypoints: int | None = None  # of a dump, whose matches are fixed


def find_pair_sets(
    groups: Mapping[str, str | Sequence[str]], features: str, keypoints: int
) -> list[PairSet]:
    """All sequences of all groups; the manifest of a dump names those it contains.

    Args:
        groups: paths of folders and dumps by group; wildcards and environment variables are
            expanded.
        features: keypoint type that a dump must have been made with.
        keypoints: number of keypoints of a dump without a manifest.
    """
    found: list[PairSet] = []
    for group, patterns in groups.items():
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            expanded = os.path.expandvars(pattern)
            paths = sorted(Path(path).resolve() for path in glob.glob(expanded))
            if not paths:
                raise DatasetError(
                    f"nothing matches {expanded} (group '{group}'): correct the path, or write "
                    "such a set with `python -m training pairs`"
                )
            for path in paths:
                if path.is_file():
                    found += _in_dump(path, group, features, keypoints)
                else:
                    found.append(_in_folder(path, group))
    names = Counter((pairs.group, pairs.name, pairs.keypoints) for pairs in found)
    (group, name, _), count = names.most_common(1)[0]
    if count > 1:
        raise ConfigError(
            f"{count} sets of group '{group}' are called '{name}': give folders with different "
            "names, or put them into different groups"
        )
    return found


def _in_folder(path: Path, group: str) -> PairSet:
    if not (path / "pairs.txt").is_file():
        raise DatasetError(
            f"{path} holds no pairs.txt: give a folder made with `python -m training pairs`, or "
            "an hdf5 dump"
        )
    return PairSet(path.name, group, path)


def _in_dump(path: Path, group: str, features: str, keypoints: int) -> list[PairSet]:
    dump = open_dump(path, ("ratio", "mutual"))
    manifest = read_manifest(path)
    made_with = manifest.get("config", {}).get("features", {})
    if made_with.get("name", features) != features:
        raise ConfigError(
            f"{path} was made with {made_with['name']} features, not {features}: evaluate it on "
            "its own, with --features"
        )
    keypoints = made_with.get("max_keypoints", keypoints)
    names = manifest.get("pair_sequence", [path.stem] * len(dump))
    if len(names) != len(dump):
        raise DatasetError(
            f"{path.with_suffix('.json')} does not belong to {path.name}: prepare the dump again"
        )
    return [
        PairSet(
            name,
            group,
            path,
            tuple(i for i, other in enumerate(names) if other == name),
            keypoints,
        )
        for name in dict.fromkeys(names)
    ]


def read_manifest(path: Path) -> dict:
    """How a dump was made; empty for a dump of unknown origin."""
    manifest = path.with_suffix(".json")
    if not manifest.is_file():
        return {}
    try:
        return json.loads(manifest.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DatasetError(
            f"{manifest} is not the manifest of a dump ({error}): prepare the dump again"
        ) from error


def evenly_spaced(items: Sequence, limit: int | None) -> list:
    """At most ``limit`` of the items, the same that `evaluate_pairs` takes."""
    if limit is None or limit >= len(items):
        return list(items)
    return [items[i] for i in np.linspace(0, len(items) - 1, limit).round().astype(int)]

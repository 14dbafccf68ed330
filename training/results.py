"""Evaluation records: read from files, selected and averaged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lgc_ros.errors import ConfigError, DatasetError
from training.evaluate import RESULTS_FILE

NOT_BUDGET = ("name", "loss", "context", "validation", "validation_pairs", "workers", "save_every")
"""Keys of a training configuration in which models of one ablation may differ."""


@dataclass(frozen=True)
class Results:
    """Evaluation records, and descriptions of the models in them."""

    records: list[dict]
    models: dict[str, dict]

    def where(self, **wanted: object) -> list[dict]:
        return [r for r in self.records if all(r[k] == v for k, v in wanted.items())]

    def values(self, key: str) -> list:
        """The different values of a key, in the order in which they appear."""
        return list(dict.fromkeys(r[key] for r in self.records if r[key] is not None))


def read_results(paths: Iterable[Path]) -> Results:
    """Merged results of `python -m training evaluate` or `lgc evaluate pairs --json`.

    If two files contain the same evaluation, the later file counts.
    """
    records: dict[tuple, dict] = {}
    models: dict[str, dict] = {}
    for path in paths:
        path = path / RESULTS_FILE if path.is_dir() else path
        content = _read_json(path)
        try:
            found = content["records"] if "records" in content else _single_set(content)
            for record in found:
                key = tuple(record[k] for k in ("group", "sequence", "features", "keypoints"))
                record["scores"]["map"]["20"]
                records[(*key, record["method"], record["model"])] = record
        except (KeyError, TypeError) as error:
            raise DatasetError(
                f"{path} holds no evaluation results (no {error}): make them with "
                "`python -m training evaluate`"
            ) from error
        for name, description in content.get("models", {}).items():
            if models.setdefault(name, description) != description:
                raise ConfigError(
                    f"model '{name}' of {path} differs from that of the previous files: evaluate "
                    "it with --model ANOTHER_NAME=FILE"
                )
    if not records:
        raise DatasetError("there are no results to report: give the files of an evaluation")
    return Results(list(records.values()), models)


def _read_json(path: Path) -> dict:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DatasetError(
            f"{path} cannot be read as JSON ({error}): give a results.json of "
            "`python -m training evaluate`"
        ) from error


def _single_set(content: dict) -> list[dict]:
    """The records of one set, as `lgc evaluate pairs` writes it."""
    common = {k: content[k] for k in ("features", "keypoints")}
    common |= {"sequence": content["dataset"], "group": "pairs", "model": None}
    return [{**common, "method": m, "scores": s} for m, s in content["methods"].items()]


def equal_budget(models: dict[str, dict], varied: str, fixed: dict) -> dict[str, str]:
    """Model names by value of ``varied``, of the largest group trained equally otherwise."""
    groups: dict[str, dict[str, str]] = {}
    for name, description in models.items():
        config = description.get("training", {}).get("config", {})
        if varied not in config or any(config.get(k) != v for k, v in fixed.items()):
            continue
        budget = {k: v for k, v in config.items() if k not in NOT_BUDGET}
        groups.setdefault(json.dumps(budget, sort_keys=True), {})[config[varied]] = name
    return max(groups.values(), key=len, default={})


def ablation_models(results: Results) -> set[str]:
    """Models that belong to the ablations only."""
    found: set[str] = set()
    for varied, fixed in (("loss", {"context": "cn"}), ("context", {"loss": "hybrid"})):
        models = equal_budget(results.models, varied, fixed)
        found |= set(models.values()) if len(models) > 1 else set()
    return found


def by_method(results: Results) -> dict[str, list[dict]]:
    """Records by method, with the model's name where there are several, and the features."""
    models = {r["model"] for r in results.records if r["model"]}
    several_features = len(results.values("features")) > 1
    named: dict[str, list[dict]] = {}
    for record in results.records:
        name = record["method"]
        if record["model"] and len(models) > 1:
            name += f" [{record['model']}]"
        if several_features and record["features"]:
            name += f" ({record['features']})"
        named.setdefault(name, []).append(record)
    return named


def with_most_keypoints(results: Results) -> dict[str, list[dict]]:
    """Records by name, each sequence with the largest number of keypoints it was evaluated at."""
    most: dict[tuple, int] = {}
    for r in results.records:
        key = (r["group"], r["sequence"], r["features"])
        most[key] = max(most.get(key, 0), r["keypoints"] or 0)
    return {
        name: [
            r
            for r in records
            if (r["keypoints"] or 0) == most[(r["group"], r["sequence"], r["features"])]
        ]
        for name, records in by_method(results).items()
    }


def mean_map(records: Sequence[dict], threshold: int) -> float | None:
    return mean(r["scores"]["map"][str(threshold)] for r in records)


def mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return float(np.mean(values)) if values else None

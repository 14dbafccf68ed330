"""Tables that end `prepare` and `evaluate`: what was made, and how well it did."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from rich.table import Table

from lgc_ros.cli.tables import number, number_table


def dump_table(dumps: Iterable[Path]) -> Table:
    """Scenes, images and pairs of each dump, from its manifest."""
    headings = ("scenes", "images", "selected", "written")
    table = number_table("pairs selected, and written with enough matches", "dump", headings)
    for dump in dumps:
        scenes = json.loads(dump.with_suffix(".json").read_text(encoding="utf-8"))["scenes"]
        sums = (
            sum(scene[key] for scene in scenes)
            for key in ("images", "pairs_selected", "pairs_written")
        )
        table.add_row(dump.name, str(len(scenes)), *(f"{total}" for total in sums))
    return table


def evaluation_table(results: Path) -> Table:
    """Mean scores in % over the sequences of a group, by method, model and keypoints."""
    records = json.loads(results.read_text(encoding="utf-8"))["records"]
    rows: dict[tuple[str, str, str], list[dict]] = {}
    for record in records:
        method = record["method"] + (f"@{record['model']}" if record["model"] else "")
        key = record["group"], method, str(record["keypoints"] or "–")
        rows.setdefault(key, []).append(record["scores"])
    headings = ("keypoints", "pairs", "mAP5", "@10", "@20", "prec.", "recall")
    table = number_table("means over sequences, scores in %", "group, method", headings)
    for (group, method, keypoints), scores in rows.items():
        values = (
            *(np.mean([score["map"][limit] for score in scores]) for limit in ("5", "10", "20")),
            *(np.mean([score[key] for score in scores]) for key in ("precision", "recall")),
        )
        table.add_row(
            f"{group}, {method}",
            keypoints,
            str(sum(score["pairs"] for score in scores)),
            *(number(100 * float(value), 1) for value in values),
        )
    return table

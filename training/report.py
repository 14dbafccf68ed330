"""The paper's tables and figures from evaluation results, as Markdown and plots.

Whatever results are present are shown; what a figure needs and does not find is said in its place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lgc_ros.errors import ConfigError, DatasetError
from lgc_ros.estimation.two_view import STAGES
from lgc_ros.evaluation.pair_metrics import THRESHOLDS_DEG
from lgc_ros.runtime.output_files import make_folder, write_file
from training.charts import Panel, bar_chart
from training.evaluate import DIRECT, RESULTS_FILE

REPORT_FILE = "report.md"
EIGHT_POINT, RANSAC, FILTERED_RANSAC, OURS = "cn-8pt-plain", "ransac", "cn+ransac", "cn"
REFINED = "cn-8pt"
LOSSES = {
    "hybrid": "Ours",
    "classification": "Classification",
    "essential": "Essential",
    "direct": "Direct",
}
CONTEXTS = {"cn": "Ours", "pointnet": "PointNet", "none": "Ours without CN"}
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
    """Results of `python -m training evaluate` or `lgc evaluate pairs --json`, put together.

    Where the same thing was evaluated twice, the later file counts.
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
                    f"model '{name}' of {path} is another one than in the files before: evaluate "
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


def write_report(results: Results, out: Path) -> Path:
    """Write report.md and its figures into a folder."""
    make_folder(out)
    ablated = _ablation_models(results)
    main = [r for r in results.records if r["model"] not in ablated] or results.records
    compared = Results(main, {k: v for k, v in results.models.items() if k not in ablated})
    sections: list[tuple[str, Callable[[], list[str]]]] = [
        ("Loss ablation (figure 4)", lambda: loss_ablation(results, out)),
        ("Architecture ablation (figure 5)", lambda: architecture_ablation(results, out)),
        ("Baselines on known scenes (figure 6)", lambda: baselines(compared, "known", out)),
        ("Baselines on unknown scenes (figure 7)", lambda: baselines(compared, "unknown", out)),
        ("Other scenes", lambda: baselines(compared, "", out)),
        ("Number of keypoints", lambda: keypoint_numbers(compared)),
        ("Results for every sequence", lambda: per_sequence(compared, out)),
        ("RANSAC as post-processing (last table)", lambda: post_processing(compared)),
        ("Time", lambda: timing(compared)),
        ("Models", lambda: model_table(results)),
    ]
    lines = ["# Evaluation report", "", *_summary(results), ""]
    for title, write in sections:
        body = write()
        if body:
            lines += [f"## {title}", "", *body, ""]
    path = out / REPORT_FILE
    write_file(path, "\n".join(lines).rstrip() + "\n")
    return path


def _summary(results: Results) -> list[str]:
    sequences = {(r["group"], r["sequence"]): r["scores"]["pairs"] for r in results.records}
    return [
        f"{sum(sequences.values())} pairs of {len(sequences)} sequences in "
        f"{len({group for group, _ in sequences})} groups. mAP is the paper's: the mean over 5°, "
        "10°, … of the share of pairs whose rotation and translation are both within that angle. "
        "Averages are over sequences."
    ]


def loss_ablation(results: Results, out: Path) -> list[str]:
    """Figure 4: the four losses at equal budget, one forward pass each, without RANSAC."""
    models = equal_budget(results.models, "loss", {"context": "cn"})
    if len(models) < 2:
        return _missing(
            "two or more models that differ in `loss` alone",
            "train train_ablation.yaml with `--set loss=…` and evaluate with `--model NAME=FILE`",
        )
    rows = {
        LOSSES[loss]: results.where(model=models[loss], method=method)
        for loss in LOSSES
        if loss in models
        for method in [DIRECT if loss == "direct" else EIGHT_POINT]
    }
    return _by_keypoints(rows, out / "figure4_loss.png") + _not_there(LOSSES, models)


def architecture_ablation(results: Results, out: Path) -> list[str]:
    """Figure 5: Context Normalization against PointNet and nothing, with and without RANSAC."""
    models = equal_budget(results.models, "context", {"loss": "hybrid"})
    if len(models) < 2:
        return _missing(
            "two or more models that differ in `context` alone",
            "train train_ablation.yaml with `--set context=…` and evaluate with "
            "`--model NAME=FILE`",
        )
    rows = {
        CONTEXTS[context] + suffix: results.where(model=models[context], method=method)
        for context in CONTEXTS
        if context in models
        for suffix, method in (("", EIGHT_POINT), (" + RANSAC", FILTERED_RANSAC))
    }
    rows = {name: records for name, records in rows.items() if records}
    return _by_keypoints(rows, out / "figure5_architecture.png") + _not_there(CONTEXTS, models)


def equal_budget(models: dict[str, dict], varied: str, fixed: dict) -> dict[str, str]:
    """Value of the varied key to model name, over the most models trained alike but for it."""
    alike: dict[str, dict[str, str]] = {}
    for name, description in models.items():
        config = description.get("training", {}).get("config", {})
        if varied not in config or any(config.get(k) != v for k, v in fixed.items()):
            continue
        budget = {k: v for k, v in config.items() if k not in NOT_BUDGET}
        alike.setdefault(json.dumps(budget, sort_keys=True), {})[config[varied]] = name
    return max(alike.values(), key=len, default={})


def _ablation_models(results: Results) -> set[str]:
    """Models that are there for the ablations only."""
    found: set[str] = set()
    for varied, fixed in (("loss", {"context": "cn"}), ("context", {"loss": "hybrid"})):
        models = equal_budget(results.models, varied, fixed)
        found |= set(models.values()) if len(models) > 1 else set()
    return found


def _by_keypoints(rows: dict[str, list[dict]], figure: Path) -> list[str]:
    """A figure with a panel for each threshold, and the table behind it."""
    numbers = sorted({r["keypoints"] for records in rows.values() for r in records})
    if not numbers:
        return _missing(
            f"results of {', '.join(rows)}", f"evaluate {EIGHT_POINT} and {FILTERED_RANSAC}"
        )

    def value(records: list[dict], number: int, threshold: int) -> float | None:
        return _mean_map([r for r in records if r["keypoints"] == number], threshold)

    panels = [
        Panel(
            f"error threshold {threshold}°",
            [f"{number} keypoints" for number in numbers],
            {name: [value(rs, n, threshold) for n in numbers] for name, rs in rows.items()},
        )
        for threshold in THRESHOLDS_DEG
    ]
    bar_chart(figure, panels)
    head = ["variant", *(f"{n} kp, {t}°" for n in numbers for t in THRESHOLDS_DEG)]
    body = [
        [name, *(value(records, n, t) for n in numbers for t in THRESHOLDS_DEG)]
        for name, records in rows.items()
    ]
    return [f"![{figure.stem}]({figure.name})", "", *_table(head, body)]


def baselines(results: Results, kind: str, out: Path) -> list[str]:
    """Figures 6 and 7: all methods, averaged over the sequences of each group of a kind."""
    groups = [group for group in results.values("group") if _kind(group) == kind]
    if not groups:
        if not kind:
            return []
        return _missing(
            f"a group whose name begins with `{kind}`",
            f"evaluate with `--group {kind}=FOLDER,FOLDER`",
        )
    chosen = _at_most_keypoints(results)
    panels, lines = [], []
    for group in groups:
        rows = {n: [r for r in rs if r["group"] == group] for n, rs in chosen.items()}
        rows = {name: records for name, records in rows.items() if records}
        count = len({r["sequence"] for records in rows.values() for r in records})
        panels.append(
            Panel(
                f"{group} ({count} sequences)",
                [f"{threshold}°" for threshold in THRESHOLDS_DEG],
                {n: [_mean_map(rs, t) for t in THRESHOLDS_DEG] for n, rs in rows.items()},
            )
        )
        head = ["method", *(f"mAP {t}°" for t in THRESHOLDS_DEG)]
        head += [*(f"AUC {t}°" for t in THRESHOLDS_DEG), "precision", "recall"]
        body = [
            [
                name,
                *(_mean_map(records, t) for t in THRESHOLDS_DEG),
                *(_mean(r["scores"]["auc"][str(t)] for r in records) for t in THRESHOLDS_DEG),
                *(_mean(r["scores"][k] for r in records) or None for k in ("precision", "recall")),
            ]
            for name, records in rows.items()
        ]
        lines += ["", f"**{group}**", "", *_table(head, body)]
    figure = out / {"known": "figure6_known.png", "unknown": "figure7_unknown.png"}.get(
        kind, "other_scenes.png"
    )
    bar_chart(figure, panels)
    return [f"![{figure.stem}]({figure.name})", *lines]


def _kind(group: str) -> str:
    return next((kind for kind in ("known", "unknown") if group.startswith(kind)), "")


def keypoint_numbers(results: Results) -> list[str]:
    """mAP at 20° of every method, by the number of keypoints."""
    numbers = sorted(results.values("keypoints"))
    if len(numbers) < 2:
        return _missing(
            "results for several numbers of keypoints",
            "evaluate with `--keypoints 500 --keypoints 1000 --keypoints 2000`",
        )
    rows = []
    for name, records in _named(results).items():
        by_number = [[r for r in records if r["keypoints"] == number] for number in numbers]
        rows.append([name, *(_mean_map(part, 20) for part in by_number)])
    return _table(["mAP 20°", *(str(number) for number in numbers)], rows)


def per_sequence(results: Results, out: Path) -> list[str]:
    """The appendix: every sequence on its own."""
    chosen = _at_most_keypoints(results)
    sequences = list(
        dict.fromkeys((r["group"], r["sequence"]) for rs in chosen.values() for r in rs)
    )

    def value(records: list[dict], sequence: tuple[str, str], threshold: int) -> float | None:
        return _mean_map(
            [r for r in records if (r["group"], r["sequence"]) == sequence], threshold
        )

    plain = {name: records for name, records in chosen.items() if "+ratio" not in name}
    panel = Panel(
        "mAP at 20°",
        [sequence for _, sequence in sequences],
        {name: [value(records, s, 20) for s in sequences] for name, records in plain.items()},
    )
    bar_chart(out / "per_sequence.png", [panel])
    lines = ["![per_sequence](per_sequence.png)"]
    for threshold in THRESHOLDS_DEG:
        rows = [
            [f"{group} / {name}", *(value(rs, (group, name), threshold) for rs in chosen.values())]
            for group, name in sequences
        ]
        lines += ["", *_table([f"mAP {threshold}°", *chosen], rows, best_in_row=True)]
    return lines


def post_processing(results: Results) -> list[str]:
    """mAP at 20° with the 8-point and with RANSAC behind the filter, relative to RANSAC alone."""
    records = [r for rs in _at_most_keypoints(results).values() for r in rs]
    columns = list(dict.fromkeys((r["group"], r["features"]) for r in records if r["features"]))

    def values(method: str, model: str | None) -> list[float | None]:
        return [
            _mean_map(
                [
                    r
                    for r in records
                    if (r["group"], r["features"]) == column
                    and (r["method"], r["model"]) == (method, model)
                ],
                20,
            )
            for column in columns
        ]

    alone = values(RANSAC, None)
    if not any(alone):
        return _missing(f"results of `{RANSAC}`", f"evaluate with `--method {RANSAC}`")
    rows: list[list] = [["RANSAC", *alone, None]]
    models = list(dict.fromkeys(r["model"] for r in records if r["method"] == EIGHT_POINT))
    for model in models:
        suffix = f" [{model}]" if len(models) > 1 else ""
        for method, name in (
            (EIGHT_POINT, "Ours + 8-point"),
            (REFINED, "Ours + 8-point, refined"),
            (FILTERED_RANSAC, "Ours + RANSAC"),
            (OURS, "Ours + PoseLib (cn)"),
        ):
            found = values(method, model)
            if any(v is not None for v in found):
                gains = [
                    (v / a - 1) if v is not None and a else None
                    for v, a in zip(found, alone, strict=True)
                ]
                rows.append([name + suffix, *found, None])
                average = _mean(g for g in gains if g is not None)
                rows.append(["w.r.t. RANSAC", *map(_percent, [*gains, average])])
    if not models:
        return _missing(f"results of `{EIGHT_POINT}`", f"evaluate with `--method {EIGHT_POINT}`")
    head = ["mAP 20°", *(f"{group}, {features}" for group, features in columns), "average"]
    return _table(head, rows)


def timing(results: Results) -> list[str]:
    """Milliseconds per pair and stage, and how much faster the filter makes RANSAC."""
    rows, deciding = [], {}
    for name, records in _at_most_keypoints(results).items():
        ms = {stage: _mean(r["scores"]["ms"].get(stage, 0) for r in records) for stage in STAGES}
        if not any(ms.values()):
            continue  # poses from elsewhere
        deciding[name] = ms["filter"] + ms["estimate"]
        rows.append([name, *(f"{v:.1f}" for v in (*ms.values(), sum(ms.values())))])
    if not rows:
        return []
    lines = ["Measured during the evaluation, whose processes share the machine.", ""]
    lines += _table(["ms per pair", *STAGES, "total"], rows)
    ours = next((name for name in deciding if name.startswith(FILTERED_RANSAC)), None)
    if ours and deciding.get(RANSAC):
        factor = deciding[RANSAC] / max(deciding[ours], 1e-9)
        lines += [
            "",
            f"After matching, `{ours}` takes {deciding[ours]:.1f} ms and RANSAC on all matches "
            f"{deciding[RANSAC]:.1f} ms: {factor:.1f} times as long (17 times in the paper, on "
            "its machine).",
        ]
    return lines


def model_table(results: Results) -> list[str]:
    """How each model was trained."""
    rows = []
    for name, model in results.models.items():
        training = model.get("training", {})
        config = training.get("config", {})
        keys = ("loss", "context", "steps", "batch", "matches", "seed")
        side = ", ".join(model.get("side", [])) or "none"
        rows.append([name, side, *(str(config.get(k, "–")) for k in keys)])
        rows[-1].append(str(training.get("step", "–")))
    head = ["model", "side", "loss", "context", "steps", "batch", "matches", "seed", "best at"]
    return _table(head, rows) if rows else []


def _named(results: Results) -> dict[str, list[dict]]:
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


def _at_most_keypoints(results: Results) -> dict[str, list[dict]]:
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
        for name, records in _named(results).items()
    }


def _mean_map(records: Sequence[dict], threshold: int) -> float | None:
    return _mean(r["scores"]["map"][str(threshold)] for r in records)


def _mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return float(np.mean(values)) if values else None


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:+.1f} %"


def _missing(what: str, remedy: str) -> list[str]:
    return [f"*Missing: {what}. To add it, {remedy}.*"]


def _not_there(names: dict[str, str], present: dict[str, str]) -> list[str]:
    absent = [f"`{name}`" for name in names if name not in present]
    return ["", f"*Missing at this budget: {', '.join(absent)}.*"] if absent else []


def _table(head: Sequence[str], rows: Iterable[Sequence], best_in_row: bool = False) -> list[str]:
    """A Markdown table; the best number of each column, or of each row, is bold."""
    rows = [list(row) for row in rows]
    lines = rows if best_in_row else list(zip(*rows, strict=True))
    best = [max((v for v in line if isinstance(v, float)), default=None) for line in lines]

    def cell(value: object, top: float | None) -> str:
        if value is None:
            return "–"
        if not isinstance(value, float):
            return str(value)
        return f"**{value:.3f}**" if value == top else f"{value:.3f}"

    def tops(number: int) -> list:
        return [best[number]] * len(head) if best_in_row else best

    return [
        "| " + " | ".join(head) + " |",
        "|---|" + "---:|" * (len(head) - 1),
        *(
            "| " + " | ".join(map(cell, row, tops(number))) + " |"
            for number, row in enumerate(rows)
        ),
    ]

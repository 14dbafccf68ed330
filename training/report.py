"""The paper's tables and figures from evaluation results, as Markdown and plots.

A section whose results are missing says how to produce them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lgc_ros.estimation.two_view import STAGES
from lgc_ros.evaluation.pair_metrics import THRESHOLDS_DEG
from lgc_ros.runtime.output_files import make_folder, write_file
from training.charts import Panel, bar_chart
from training.evaluate import DIRECT
from training.markdown import missing, missing_variants, percent, table
from training.results import (
    Results,
    ablation_models,
    by_method,
    equal_budget,
    mean,
    mean_map,
    with_most_keypoints,
)
from training.significance import paired_difference

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


def write_report(results: Results, out: Path) -> Path:
    """Write report.md and its figures into a folder."""
    make_folder(out)
    ablated = ablation_models(results)
    main = [r for r in results.records if r["model"] not in ablated] or results.records
    compared = Results(main, {k: v for k, v in results.models.items() if k not in ablated})
    sections: list[tuple[str, Callable[[], list[str]]]] = [
        ("Loss ablation (figure 4)", lambda: loss_ablation(results, out)),
        ("Architecture ablation (figure 5)", lambda: architecture_ablation(results, out)),
        ("Baselines on known scenes (figure 6)", lambda: baselines(compared, "known", out)),
        ("Baselines on unknown scenes (figure 7)", lambda: baselines(compared, "unknown", out)),
        ("Other scenes", lambda: baselines(compared, "", out)),
        ("Differences between methods", lambda: differences(compared)),
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
        return missing(
            "two or more models that differ in `loss` alone",
            "train train_ablation.yaml with `--set loss=…` and evaluate with `--model NAME=FILE`",
        )
    rows = {
        LOSSES[loss]: results.where(model=models[loss], method=method)
        for loss in LOSSES
        if loss in models
        for method in [DIRECT if loss == "direct" else EIGHT_POINT]
    }
    return _by_keypoints(rows, out / "figure4_loss.png") + missing_variants(LOSSES, models)


def architecture_ablation(results: Results, out: Path) -> list[str]:
    """Figure 5: Context Normalization against PointNet and nothing, with and without RANSAC."""
    models = equal_budget(results.models, "context", {"loss": "hybrid"})
    if len(models) < 2:
        return missing(
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
    return _by_keypoints(rows, out / "figure5_architecture.png") + missing_variants(
        CONTEXTS, models
    )


def _by_keypoints(rows: dict[str, list[dict]], figure: Path) -> list[str]:
    """A figure with a panel for each threshold, and the table behind it."""
    numbers = sorted({r["keypoints"] for records in rows.values() for r in records})
    if not numbers:
        return missing(
            f"results of {', '.join(rows)}", f"evaluate {EIGHT_POINT} and {FILTERED_RANSAC}"
        )

    def value(records: list[dict], number: int, threshold: int) -> float | None:
        return mean_map([r for r in records if r["keypoints"] == number], threshold)

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
    return [f"![{figure.stem}]({figure.name})", "", *table(head, body)]


def baselines(results: Results, kind: str, out: Path) -> list[str]:
    """Figures 6 and 7: all methods, averaged over the sequences of each group of a kind."""
    groups = [group for group in results.values("group") if _kind(group) == kind]
    if not groups:
        if not kind:
            return []
        return missing(
            f"a group whose name begins with `{kind}`",
            f"evaluate with `--group {kind}=FOLDER,FOLDER`",
        )
    chosen = with_most_keypoints(results)
    panels, lines = [], []
    for group in groups:
        rows = {n: [r for r in rs if r["group"] == group] for n, rs in chosen.items()}
        rows = {name: records for name, records in rows.items() if records}
        count = len({r["sequence"] for records in rows.values() for r in records})
        panels.append(
            Panel(
                f"{group} ({count} sequences)",
                [f"{threshold}°" for threshold in THRESHOLDS_DEG],
                {n: [mean_map(rs, t) for t in THRESHOLDS_DEG] for n, rs in rows.items()},
            )
        )
        head = ["method", *(f"mAP {t}°" for t in THRESHOLDS_DEG)]
        head += [*(f"AUC {t}°" for t in THRESHOLDS_DEG), "precision", "recall"]
        body = [
            [
                name,
                *(mean_map(records, t) for t in THRESHOLDS_DEG),
                *(mean(r["scores"]["auc"][str(t)] for r in records) for t in THRESHOLDS_DEG),
                *(mean(r["scores"][k] for r in records) or None for k in ("precision", "recall")),
            ]
            for name, records in rows.items()
        ]
        lines += ["", f"**{group}**", "", *table(head, body)]
    figure = out / {"known": "figure6_known.png", "unknown": "figure7_unknown.png"}.get(
        kind, "other_scenes.png"
    )
    bar_chart(figure, panels)
    return [f"![{figure.stem}]({figure.name})", *lines]


def differences(results: Results) -> list[str]:
    """mAP of `cn` minus that of every other method, with 95 % bootstrap intervals.

    Without `cn`, each method that uses the filter takes its place.
    """
    chosen = {
        name: {(r["group"], r["sequence"]): r["errors_deg"] for r in rs if "errors_deg" in r}
        for name, rs in with_most_keypoints(results).items()
    }
    filtered = [name for name in chosen if name.startswith(OURS) and chosen[name]]
    ours = [name for name in filtered if name.split(" ")[0] == OURS] or filtered
    if not ours:
        return missing(f"pose errors of `{OURS}`", f"evaluate with `--method {OURS}`")
    lines = ["Pairs are resampled within each sequence, the same ones for both methods.", ""]
    for name in ours:
        rows = []
        for other, errors in chosen.items():
            common = [key for key in chosen[name] if key in errors]
            if other == name or not common:
                continue
            first, second = ([e[key] for key in common] for e in (chosen[name], errors))
            found = [paired_difference(first, second, t) for t in THRESHOLDS_DEG]
            rows.append(
                [other, *(f"{d.mean:+.3f} ({d.low:+.3f} to {d.high:+.3f})" for d in found)]
            )
        lines += [*table([f"{name} minus", *(f"mAP {t}°" for t in THRESHOLDS_DEG)], rows), ""]
    return lines


def _kind(group: str) -> str:
    return next((kind for kind in ("known", "unknown") if group.startswith(kind)), "")


def keypoint_numbers(results: Results) -> list[str]:
    """mAP at 20° of every method, by the number of keypoints."""
    numbers = sorted(results.values("keypoints"))
    if len(numbers) < 2:
        return missing(
            "results for several numbers of keypoints",
            "evaluate with `--keypoints 500 --keypoints 1000 --keypoints 2000`",
        )
    rows = []
    for name, records in by_method(results).items():
        by_number = [[r for r in records if r["keypoints"] == number] for number in numbers]
        rows.append([name, *(mean_map(part, 20) for part in by_number)])
    return table(["mAP 20°", *(str(number) for number in numbers)], rows)


def per_sequence(results: Results, out: Path) -> list[str]:
    """The appendix: every sequence on its own."""
    chosen = with_most_keypoints(results)
    sequences = list(
        dict.fromkeys((r["group"], r["sequence"]) for rs in chosen.values() for r in rs)
    )

    def value(records: list[dict], sequence: tuple[str, str], threshold: int) -> float | None:
        return mean_map([r for r in records if (r["group"], r["sequence"]) == sequence], threshold)

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
        lines += ["", *table([f"mAP {threshold}°", *chosen], rows, best_in_row=True)]
    return lines


def post_processing(results: Results) -> list[str]:
    """mAP at 20° with the 8-point and with RANSAC behind the filter, relative to RANSAC alone."""
    records = [r for rs in with_most_keypoints(results).values() for r in rs]
    columns = list(dict.fromkeys((r["group"], r["features"]) for r in records if r["features"]))

    def values(method: str, model: str | None) -> list[float | None]:
        return [
            mean_map(
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
        return missing(f"results of `{RANSAC}`", f"evaluate with `--method {RANSAC}`")
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
                average = mean(g for g in gains if g is not None)
                rows.append(["w.r.t. RANSAC", *map(percent, [*gains, average])])
    if not models:
        return missing(f"results of `{EIGHT_POINT}`", f"evaluate with `--method {EIGHT_POINT}`")
    head = ["mAP 20°", *(f"{group}, {features}" for group, features in columns), "average"]
    return table(head, rows)


def timing(results: Results) -> list[str]:
    """Milliseconds per pair and stage, and how much faster the filter makes RANSAC."""
    rows, after_matching = [], {}
    for name, records in with_most_keypoints(results).items():
        ms = {stage: mean(r["scores"]["ms"].get(stage, 0) for r in records) for stage in STAGES}
        if not any(ms.values()):
            continue  # poses from elsewhere
        after_matching[name] = ms["filter"] + ms["estimate"]
        rows.append([name, *(f"{v:.1f}" for v in (*ms.values(), sum(ms.values())))])
    if not rows:
        return []
    lines = ["Measured during the evaluation, whose processes share the machine.", ""]
    lines += table(["ms per pair", *STAGES, "total"], rows)
    ours = next((name for name in after_matching if name.startswith(FILTERED_RANSAC)), None)
    if ours and after_matching.get(RANSAC):
        ransac_ms, ours_ms = after_matching[RANSAC], max(after_matching[ours], 1e-9)
        lines += [
            "",
            f"After matching, `{ours}` takes {ours_ms:.1f} ms, {ransac_ms / ours_ms:.1f}× faster "
            f"than RANSAC on all matches ({ransac_ms:.1f} ms); 17× in the paper, on its machine.",
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
    return table(head, rows) if rows else []

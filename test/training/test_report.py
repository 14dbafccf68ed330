"""`python -m training report`: the paper's tables from whatever results there are."""

import json

import cv2
import pytest

from lgc_ros.errors import ConfigError, DatasetError
from training.report import write_report
from training.results import equal_budget, read_results


def scores(value, ms=(10.0, 5.0, 0.0, 100.0)):
    curve = {"5": value / 2, "10": value * 0.8, "20": value}
    stages = dict(zip(("features", "match", "filter", "estimate"), ms, strict=True))
    return {"pairs": 10, "map": curve, "auc": curve, "precision": 0.7, "recall": 0.9, "ms": stages}


def record(method, value, **other):
    defaults = {"sequence": "a", "group": "unknown-outdoors", "features": "sift"}
    defaults |= {"keypoints": 2000, "model": "sift" if method.startswith("cn") else None}
    ms = (10.0, 5.0, 20.0, 10.0) if method.startswith("cn") else (10.0, 5.0, 0.0, 300.0)
    return {**defaults, "method": method, "scores": scores(value, ms), **other}


def model(**config):
    defaults = {"loss": "hybrid", "context": "cn", "steps": 100, "batch": 16}
    return {"side": [], "training": {"step": 90, "config": {**defaults, **config}}}


def write(path, records, models=None):
    path.write_text(json.dumps({"records": records, "models": models or {}}))
    return path


def report(tmp_path, records, models=None):
    results = read_results([write(tmp_path / "results.json", records, models)])
    return write_report(results, tmp_path / "report").read_text()


def rows(text, title):
    """Cells of the first table below a title."""
    lines = text.split(title, 1)[1].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    table = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        table.append([cell.strip(" *") for cell in line.strip("|").split("|")])
    return table


PAPER = {  # the last table of the paper: mAP at 20 degrees with SIFT
    "unknown-outdoors": {"ransac": 0.221, "cn-8pt-plain": 0.264, "cn+ransac": 0.462},
    "unknown-indoors": {"ransac": 0.097, "cn-8pt-plain": 0.148, "cn+ransac": 0.242},
}


def test_the_post_processing_table_is_the_papers(tmp_path):
    records = [
        record(method, value, group=group)
        for group, values in PAPER.items()
        for method, value in values.items()
    ]
    table = rows(report(tmp_path, records), "RANSAC as post-processing")
    assert table[0] == ["mAP 20°", "unknown-outdoors, sift", "unknown-indoors, sift", "average"]
    assert table[2:4] == [
        ["RANSAC", "0.221", "0.097", "–"],
        ["Ours + 8-point", "0.264", "0.148", "–"],
    ]
    assert table[4] == ["w.r.t. RANSAC", "+19.5 %", "+52.6 %", "+36.0 %"]
    assert table[5][:3] == ["Ours + RANSAC", "0.462", "0.242"]
    assert table[6][:3] == ["w.r.t. RANSAC", "+109.0 %", "+149.5 %"]


def test_sequences_are_averaged_within_their_group(tmp_path):
    records = [
        record(method, value, sequence=sequence, group=group)
        for method in ("cn", "ransac+ratio")
        for sequence, group, value in (("a", "known", 0.2), ("b", "known", 0.6), ("c", "other", 1))
    ]
    text = report(tmp_path, records)
    table = rows(text, "known scenes (figure 6)")
    assert [row[:4] for row in table[2:]] == [
        ["cn", "0.200", "0.320", "0.400"],
        ["ransac+ratio", "0.200", "0.320", "0.400"],
    ]
    assert rows(text, "## Other scenes")[2][3] == "1.000"
    assert rows(text, "Results for every sequence")[2:] == [
        ["known / a", "0.100", "0.100"],
        ["known / b", "0.300", "0.300"],
        ["other / c", "0.500", "0.500"],
    ]


def test_figures_are_pictures(tmp_path):
    models = {loss: model(loss=loss) for loss in ("hybrid", "classification", "essential")}
    models |= {"direct": model(loss="direct"), "pointnet": model(context="pointnet")}
    records = [record("ransac", 0.3), record("poselib", 0.4, group="known-indoors")]
    for name in models:
        for method in ("direct",) if name == "direct" else ("cn-8pt-plain", "cn+ransac"):
            records += [record(method, 0.5, model=name, keypoints=n) for n in (500, 2000)]
    text = report(tmp_path, records, models)
    for name in (
        "figure4_loss",
        "figure5_architecture",
        "figure6_known",
        "figure7_unknown",
        "per_sequence",
    ):
        assert f"({name}.png)" in text
        picture = cv2.imread(str(tmp_path / "report" / f"{name}.png"))
        assert picture.std() > 5
        assert min(picture.shape[:2]) > 300


def test_the_loss_ablation_shows_each_loss_by_its_own_pose(tmp_path):
    models = {"h": model(), "e": model(loss="essential"), "d": model(loss="direct")}
    records = [
        record("cn-8pt-plain", 0.6, model="h"),
        record("cn", 0.9, model="h"),
        record("cn-8pt-plain", 0.3, model="e"),
        record("direct", 0.1, model="d"),
    ]
    text = report(tmp_path, records, models)
    table = rows(text, "Loss ablation")
    assert table[0] == ["variant", "2000 kp, 5°", "2000 kp, 10°", "2000 kp, 20°"]
    assert {row[0]: row[3] for row in table[2:]} == {
        "Ours": "0.600",
        "Essential": "0.300",
        "Direct": "0.100",
    }
    assert "Missing at this budget: `classification`" in text


def test_the_architecture_ablation_has_the_8_point_and_ransac(tmp_path):
    models = {"cn": model(), "none": model(context="none")}
    records = [
        record(method, value, model=name)
        for name, method, value in (
            ("cn", "cn-8pt-plain", 0.5),
            ("cn", "cn+ransac", 0.7),
            ("none", "cn-8pt-plain", 0.1),
            ("none", "cn+ransac", 0.2),
        )
    ]
    text = report(tmp_path, records, models)
    assert {row[0]: row[3] for row in rows(text, "Architecture ablation")[2:]} == {
        "Ours": "0.500",
        "Ours + RANSAC": "0.700",
        "Ours without CN": "0.100",
        "Ours without CN + RANSAC": "0.200",
    }
    assert "Missing at this budget: `pointnet`" in text


def test_only_models_of_equal_budget_are_compared():
    models = {
        "long": model(steps=10**6),
        "h": model(name="x", workers=4),
        "c": model(loss="classification"),
        "e": model(loss="essential", batch=8),
        "p": model(context="pointnet"),
    }
    assert equal_budget(models, "loss", {"context": "cn"}) == {
        "hybrid": "h",
        "classification": "c",
    }
    assert equal_budget(models, "context", {"loss": "hybrid"}) == {"cn": "h", "pointnet": "p"}


def test_models_of_an_ablation_do_not_crowd_the_comparison_with_baselines(tmp_path):
    models = {"sift": model(steps=9), "h": model(), "c": model(loss="classification")}
    records = [record("ransac", 0.3), *(record("cn", 0.5, model=name) for name in models)]
    table = rows(report(tmp_path, records, models), "unknown scenes (figure 7)")
    assert [row[0] for row in table[2:]] == ["ransac", "cn"]


def test_each_sequence_counts_with_its_largest_number_of_keypoints(tmp_path):
    records = [record("ransac", v, keypoints=n) for n, v in ((500, 0.1), (1000, 0.2), (2000, 0.3))]
    text = report(tmp_path, records)
    assert rows(text, "unknown scenes (figure 7)")[2][3] == "0.300"
    assert rows(text, "Number of keypoints") == [
        ["mAP 20°", "500", "1000", "2000"],
        ["---", "---:", "---:", "---:"],
        ["ransac", "0.100", "0.200", "0.300"],
    ]


DIFFERENCES = "## Differences between methods"


def test_cn_is_compared_with_every_other_method(tmp_path):
    records = [
        record("cn", 1.0, errors_deg=[1.0] * 10),
        record("cn-8pt", 1.0, errors_deg=[1.0] * 5 + [90.0] * 5),
        record("ransac", 1.0, errors_deg=[90.0] * 10),
    ]
    table = rows(report(tmp_path, records), DIFFERENCES)
    assert [row[0] for row in table] == ["cn minus", "---", "cn-8pt", "ransac"]
    assert table[3][1] == "+1.000 (+1.000 to +1.000)"


def test_without_cn_models_are_compared_with_one_another(tmp_path):
    records = [
        record("cn-8pt-plain", 1.0, model="before", errors_deg=[90.0] * 10),
        record("cn-8pt-plain", 1.0, model="after", errors_deg=[1.0] * 10),
    ]
    text = report(tmp_path, records)
    assert rows(text, DIFFERENCES)[2][:2] == [
        "cn-8pt-plain [after]",
        "-1.000 (-1.000 to -1.000)",
    ]
    assert "cn-8pt-plain [after] minus" in text


def test_the_time_table_reports_the_speedup_over_ransac(tmp_path):
    text = report(tmp_path, [record("ransac", 0.3), record("cn+ransac", 0.5)])
    assert rows(text, "## Time")[2] == ["ransac", "10.0", "5.0", "0.0", "300.0", "315.0"]
    assert "10.0× faster than RANSAC" in text


def test_sections_without_results_name_what_is_missing(tmp_path):
    text = report(tmp_path, [record("poselib", 0.4)])
    for missing in (
        "differ in `loss` alone",
        "differ in `context` alone",
        "`known`",
        "several numbers of keypoints",
        "results of `ransac`",
    ):
        assert missing in text.replace("begins with ", "")
    assert "(figure 7)" in text


def test_poses_of_other_programs_are_listed_with_the_methods(tmp_path):
    outside = record("demon", 0.2, features=None, keypoints=None)
    outside["scores"]["ms"] = {}
    text = report(tmp_path, [record("ransac", 0.3), outside])
    assert [row[0] for row in rows(text, "(figure 7)")[2:]] == ["ransac", "demon"]
    assert [row[0] for row in rows(text, "## Time")[2:]] == ["ransac"]


def test_several_files_are_put_together_and_the_later_one_counts(tmp_path):
    first = write(tmp_path / "1.json", [record("ransac", 0.1), record("poselib", 0.2)])
    second = write(tmp_path / "2.json", [record("ransac", 0.3)])
    found = {r["method"]: r["scores"]["map"]["20"] for r in read_results([first, second]).records}
    assert found == {"ransac": 0.3, "poselib": 0.2}


def test_results_of_the_lgc_command_are_understood(tmp_path):
    path = tmp_path / "castle.json"
    content = {"dataset": "castle", "features": "sift", "keypoints": 2000}
    path.write_text(json.dumps({**content, "methods": {"cn": scores(0.5)}}))
    [found] = read_results([path]).records
    assert (found["sequence"], found["method"], found["group"]) == ("castle", "cn", "pairs")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("no json", "cannot be read as JSON"),
        ('{"frames": 3}', "holds no evaluation results"),
        ('{"records": [{"method": "cn"}]}', "holds no evaluation results"),
        ("[]", "holds no evaluation results"),
    ],
)
def test_a_file_that_holds_no_results_is_named(tmp_path, text, complaint):
    path = tmp_path / "wrong.json"
    path.write_text(text)
    with pytest.raises(DatasetError, match=rf"wrong\.json {complaint}.*training evaluate"):
        read_results([path])


def test_missing_and_contradicting_files_are_named(tmp_path):
    with pytest.raises(DatasetError, match=r"results\.json cannot be read"):
        read_results([tmp_path])
    with pytest.raises(DatasetError, match="no results to report"):
        read_results([write(tmp_path / "empty.json", [])])
    first = write(tmp_path / "1.json", [record("cn", 0.1)], {"sift": model()})
    second = write(tmp_path / "2.json", [record("cn", 0.1)], {"sift": model(steps=5)})
    with pytest.raises(ConfigError, match=r"model 'sift' of .*2\.json differs from"):
        read_results([first, second])

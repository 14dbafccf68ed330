"""`lgc bench`."""

import json

import pytest


@pytest.mark.slow
def test_bench_times_every_stage_and_reports_the_ratios(lgc, tmp_path, heads_model):
    json_file, plot = tmp_path / "bench.json", tmp_path / "bench.png"
    model = heads_model(size=(480, 640))
    code, printed = lgc(
        "bench", "--rounds", 1, "--extractor-model", model, "--json", json_file, "--plot", plot
    )
    assert code == 0
    results = json.loads(json_file.read_text())
    for stages in results["ms"].values():
        assert set(stages) == {"features", "match", "filter", "estimate"}
        assert all(v["p5"] <= v["median"] <= v["p95"] for v in stages.values())
    expected = "filter_over_gemm eager_over_filter ransac_over_cn bf_over_match"
    expected += " frame_over_extract default_over_fast sift_over_xfeat"
    expected += " track_over_extract p95_over_extract mean_over_extract match_over_flow"
    assert set(results["ratios"]) == set(expected.split())
    assert all(value > 0 for value in results["ratios"].values())
    assert all(name in printed for name in results["ratios"])
    assert plot.stat().st_size > 0

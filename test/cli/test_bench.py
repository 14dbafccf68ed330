"""`lgc bench`."""

import json

import pytest


@pytest.mark.slow
def test_bench_times_every_stage_and_reports_the_ratios(lgc, tmp_path):
    code, said = lgc(
        "bench", "--rounds", 1, "--json", tmp_path / "bench.json", "--plot", tmp_path / "bench.png"
    )
    assert code == 0
    results = json.loads((tmp_path / "bench.json").read_text())
    for stages in results["ms"].values():
        assert set(stages) == {"features", "match", "filter", "estimate"}
        assert all(v["p5"] <= v["median"] <= v["p95"] for v in stages.values())
    expected = "filter_over_gemm eager_over_filter ransac_over_cn bf_over_match"
    expected += " frame_over_extract default_over_fast"
    assert set(results["ratios"]) == set(expected.split())
    assert all(value > 0 for value in results["ratios"].values())
    assert all(name in said for name in results["ratios"])
    assert (tmp_path / "bench.png").stat().st_size > 0

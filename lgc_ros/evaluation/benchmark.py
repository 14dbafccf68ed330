"""Latency by stage, and ratios to alternatives measured in the same run.

Cases take turns, so that other load on the machine affects all of them alike. A ratio is the
median over rounds of the ratio within a round.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from lgc_ros.estimation.two_view import STAGES, TwoViewPipeline
from lgc_ros.evaluation.benchmark_cases import (
    FULL,
    MATCHES,
    Cases,
    extractor_cases,
    filter_cases,
    matcher_cases,
    odometry_cases,
    real_pairs,
    rendered_pairs,
    solver_cases,
)
from lgc_ros.evaluation.benchmark_realtime import RATE_HZ, Times, realtime_ratios, realtime_times
from lgc_ros.evaluation.benchmark_realtime import RATIOS as REALTIME_RATIOS
from lgc_ros.features.base import make_extractor
from lgc_ros.geometry.camera import Camera
from lgc_ros.runtime.threads import thread_limit
from lgc_ros.sources.synthetic import SyntheticSource
from lgc_ros.visualization.figures import load_pyplot, save_figure

METHODS = ("cn", "cn-8pt", "ransac", "poselib+ratio")
HARD_PAIRS = 3
FRAMES = 48
# Ten seconds of a camera; a quick measurement takes two.
REALTIME_FRAMES, QUICK_FRAMES, QUICK_ROUNDS = 300, 60, 3
FIRST, SECOND = 0, 6  # frames of the pair on which stages are timed
WARM_UP_ROUNDS = 2
RATIOS = {
    "filter_over_gemm": "filter / its matrix products alone in the fastest engine",
    "eager_over_filter": "network in plain PyTorch / filter",
    "ransac_over_cn": "OpenCV RANSAC / filter and estimator, if at most 25 % of matches are true",
    "bf_over_match": "OpenCV brute-force matcher / ours",
    "frame_over_extract": "pipelined odometry, tracking match / extraction alone, per frame",
    "default_over_fast": "odometry with profile default / fast, per frame",
    **REALTIME_RATIOS,
    "sift_over_xfeat": "SIFT / the extractor model, one thread, 640x480, 2000 keypoints",
}


def run_bench(
    rounds: int = 15,
    device: str = "auto",
    pairs: Path | None = None,
    extractor_model: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict:
    """Medians, 5th and 95th percentiles in milliseconds, and the ratios of RATIOS.

    Args:
        rounds: measurements of methods, hard pairs and sequences; filters and matchers are
            measured three times as often, odometry at camera rate a fifth as often.
        device: device of the filter.
        pairs: folder with pairs.txt and images/, whose hard pairs RANSAC is measured on; rendered
            ones if None.
        extractor_model: ONNX file of a learned extractor to compare SIFT with, if any.
        progress: called with the number of finished rounds and their total.
    """
    many, few = 3 * rounds, max(1, rounds // 5)
    total = 3 * rounds + 2 * many + few + 5 * WARM_UP_ROUNDS
    total += many + WARM_UP_ROUNDS if extractor_model else 0
    done = iter(range(total + 1))

    def tick() -> None:
        progress(next(done), total)

    tick()
    source = SyntheticSource("walk", 100, seed=4, noise=4.0)
    frames = [source[index] for index in range(FRAMES)]
    extract = make_extractor("sift", FULL)
    image0, image1 = frames[FIRST].image, frames[SECOND].image
    hard = list(islice(real_pairs(pairs) if pairs else rendered_pairs(source), HARD_PAIRS))
    stages = stage_times(image0, image1, source.camera, device, rounds, tick)
    filtering = take_turns(filter_cases(device), many, tick)
    matching = take_turns(matcher_cases(extract(image0), extract(image1)), many, tick)
    solving = take_turns(solver_cases(hard, device), rounds, tick)
    sequences = take_turns(odometry_cases(frames, device), rounds, tick)
    per_frame = {name: values / len(frames) for name, values in sequences.items()}
    count = REALTIME_FRAMES if rounds > QUICK_ROUNDS else QUICK_FRAMES
    camera = list(SyntheticSource("walk", count, rate_hz=RATE_HZ, seed=4, noise=4.0))
    realtime = realtime_times(camera, device, few, tick)
    ratios = _ratios(filtering, matching, solving, per_frame) | realtime_ratios(realtime)
    extraction: Times = {}
    if extractor_model:
        with thread_limit(1):
            extraction = take_turns(extractor_cases(image0, extractor_model), many, tick)
        ratios["sift_over_xfeat"] = extraction["sift"] / extraction["learned"]
    return {
        "machine": _machine(device),
        "rounds": rounds,
        "ms": {method: _spreads(by_stage) for method, by_stage in stages.items()},
        "filter_ms": _spreads(filtering),
        "extraction_ms": _spreads(extraction),
        "frame_ms": _spreads(per_frame),
        "realtime_ms": _spreads(realtime),
        "ratios": {name: float(np.median(values)) for name, values in ratios.items()},
        "ratio_spread": _spreads(ratios),
    }


def _spreads(times: Times) -> dict:
    return {name: spread(values) for name, values in times.items()}


def take_turns(cases: Cases, rounds: int, tick: Callable[[], None]) -> Times:
    """Milliseconds of each case in each round, after warm-up rounds."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(WARM_UP_ROUNDS + rounds):
        for name, call in cases.items():
            start = perf_counter()
            call()
            times[name].append(1e3 * (perf_counter() - start))
        tick()
    return {name: np.array(values[WARM_UP_ROUNDS:]) for name, values in times.items()}


def stage_times(
    image0: np.ndarray,
    image1: np.ndarray,
    camera: Camera,
    device: str,
    rounds: int,
    tick: Callable[[], None],
) -> dict[str, Times]:
    """Milliseconds by method and stage, as the pipelines report them."""
    pipelines = {name: TwoViewPipeline(name, device=device) for name in METHODS}
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in METHODS}
    for _ in range(WARM_UP_ROUNDS + rounds):
        for name, pipeline in pipelines.items():
            result = pipeline(image0, image1, camera, camera)
            rows[name].append(result.ms)
        tick()
    return {
        name: {stage: np.array([ms[stage] for ms in times[WARM_UP_ROUNDS:]]) for stage in STAGES}
        for name, times in rows.items()
    }


def spread(values: Sequence[float] | np.ndarray) -> dict[str, float]:
    """Median, 5th and 95th percentile."""
    low, median, high = np.percentile(values, [5, 50, 95])
    return {"median": float(median), "p5": float(low), "p95": float(high)}


def _ratios(filtering: Times, matching: Times, solving: Times, per_frame: Times) -> Times:
    products = [values for name, values in filtering.items() if name.startswith("gemm")]
    fastest, default = min(products, key=np.median), filtering[f"default {FULL}"]
    hard_pairs = range(len(solving) // 2)
    return {
        "filter_over_gemm": default / fastest,
        "eager_over_filter": filtering["plain torch"] / default,
        "ransac_over_cn": np.concatenate(
            [solving[f"ransac {pair}"] / solving[f"cn {pair}"] for pair in hard_pairs]
        ),
        "bf_over_match": matching["brute force"] / matching["ours"],
        "frame_over_extract": per_frame["match"] / per_frame["extraction"],
        "default_over_fast": per_frame["default"] / per_frame["fast"],
    }


def _machine(device: str) -> dict[str, object]:
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() and device != "cpu" else None
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": gpu,
    }


def plot_bench(path: Path, results: dict) -> None:
    """Plot filter time over the number of matches, and the stages of each method."""
    plt = load_pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    by_engine: dict[str, list[dict[str, float]]] = {}
    for name, times in results["filter_ms"].items():
        engine, _, count = name.rpartition(" ")
        if count.isdigit():
            by_engine.setdefault(engine, []).append(times)
    for engine, times in by_engine.items():
        low, middle, high = (np.array([t[key] for t in times]) for key in ("p5", "median", "p95"))
        style = {"linewidth": 3, "alpha": 0.5} if engine == "default" else {}
        (line,) = left.plot(MATCHES, middle, "o-", label=engine, **style)
        left.fill_between(MATCHES, low, high, color=line.get_color(), alpha=0.15)
    steady = by_engine["default"][-1]["median"] / MATCHES[-1]
    left.plot(MATCHES, [steady * count for count in MATCHES], "k:", label="linear")
    left.set(xlabel="matches", ylabel="filter (ms)", ylim=(0, None))
    left.grid(alpha=0.3)
    left.legend(frameon=False)
    methods, start = list(results["ms"]), np.zeros(len(results["ms"]))
    for stage in STAGES:
        width = np.array([results["ms"][method][stage]["median"] for method in methods])
        right.barh(methods, width, left=start, label=stage)
        start += width
    right.invert_yaxis()
    right.set(xlabel="relative pose of two images with 2000 keypoints (ms)")
    right.legend(frameon=False)
    save_figure(path, figure)

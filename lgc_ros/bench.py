"""Latency by stage, measured so that a noisy machine disturbs all contestants alike."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

import cv2
import numpy as np

from lgc_ros.features import make_extractor
from lgc_ros.matching import match
from lgc_ros.sources.synthetic import SyntheticSource
from lgc_ros.two_view import STAGES, TwoViewPipeline

METHODS = ("cn", "cn-8pt", "ransac", "poselib+ratio")
ROOM, FIRST, SECOND = 4, 20, 50


def run_bench(
    rounds: int,
    device: str = "auto",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict:
    """Median, 10th and 90th percentile in milliseconds, 2000 SIFT keypoints of a rendered pair.

    Every round runs each contestant once, so that what else the machine does falls on all of
    them. A first round, in which caches and threads warm up, does not count.
    """
    source = SyntheticSource("walk", 200, seed=ROOM, noise=4.0)
    frame0, frame1 = source[FIRST], source[SECOND]
    pipelines = {name: TwoViewPipeline(name, device=device) for name in METHODS}
    extract = make_extractor("sift")
    features0, features1 = extract(frame0.image), extract(frame1.image)
    brute_force = cv2.BFMatcher(cv2.NORM_L2)
    stages: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    ratio = []
    for done in range(rounds + 1):
        times = {
            name: run(frame0.image, frame1.image, frame0.camera, frame1.camera).ms
            for name, run in pipelines.items()
        }
        theirs = _ms(
            lambda: brute_force.knnMatch(features0.descriptors, features1.descriptors, k=2)
        )
        ours = _ms(lambda: match(features0, features1))
        progress(done, rounds)
        if done == 0:
            continue
        ratio.append(theirs / ours)
        for name, ms in times.items():
            for stage in STAGES:
                stages[name][stage].append(ms[stage])
    return {
        "rounds": rounds,
        "ms": {
            name: {stage: _spread(values) for stage, values in by_stage.items()}
            for name, by_stage in stages.items()
        },
        "ratios": {"bf_over_match": float(np.median(ratio))},
    }


def _ms(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def _spread(values: list[float]) -> dict[str, float]:
    low, median, high = np.percentile(values, [10, 50, 90])
    return {"median": float(median), "p10": float(low), "p90": float(high)}

"""Odometry at camera rate: latency and processor time per frame, next to extraction alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from lgc_ros.images.frame import Frame
from lgc_ros.odometry.options import FLOW, MATCH
from lgc_ros.odometry.profiles import load_profile
from lgc_ros.odometry.visual_odometry import VisualOdometry

RATE_HZ = 30.0
WARM_UP_FRAMES = 20
EXTRACTED_EVERY = 4
RATIOS = {
    "track_over_extract": "median frame of odometry / SIFT extraction alone",
    "p95_over_extract": "95th percentile of a frame's latency at 30 Hz, with mapping in its "
    "thread / SIFT extraction alone",
    "mean_over_extract": "processor time per frame at 30 Hz, all threads / SIFT extraction alone",
    "match_over_flow": "odometry with tracking match / flow, per frame",
}

Times = dict[str, np.ndarray]


def realtime_times(
    frames: Sequence[Frame], device: str, rounds: int, tick: Callable[[], None]
) -> Times:
    """Milliseconds per frame in each round; what is compared takes turns.

    Returns:
        `extraction`: median of SIFT alone. `flow`: median of a frame, mapping included where it
        is due. `flow mean`, `match mean`: means over the sequence. `latency p95`: from the moment
        a camera of RATE_HZ delivers a frame to its pose, with mapping in the background.
        `processor`: mean processor time of all threads in that case.
    """
    options = load_profile("default", {"device": device})
    flow = VisualOdometry(replace(options, tracking=FLOW))
    match = VisualOdometry(replace(options, tracking=MATCH))
    live = VisualOdometry(replace(options, tracking=FLOW), background=True)
    rows: list[dict[str, float]] = []
    for odometry in (flow, match, live):
        _frame_times(odometry, frames[:WARM_UP_FRAMES])
    for _ in range(rounds):
        some = frames[::EXTRACTED_EVERY]
        extraction = [_milliseconds(partial(flow.extract, frame.image)) for frame in some]
        by_flow, by_match = (_frame_times(odometry, frames) for odometry in (flow, match))
        latencies, processor_ms = _paced(live, frames)
        rows.append(
            {
                "extraction": float(np.median(extraction)),
                "flow": float(np.median(by_flow)),
                "flow mean": float(np.mean(by_flow)),
                "match mean": float(np.mean(by_match)),
                "latency p95": float(np.percentile(latencies, 95)),
                "processor": processor_ms,
            }
        )
        tick()
    live.close()
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def realtime_ratios(times: Times) -> Times:
    """The ratios of RATIOS in each round."""
    extraction = times["extraction"]
    return {
        "track_over_extract": times["flow"] / extraction,
        "p95_over_extract": times["latency p95"] / extraction,
        "mean_over_extract": times["processor"] / extraction,
        "match_over_flow": times["match mean"] / times["flow mean"],
    }


def _frame_times(odometry: VisualOdometry, frames: Sequence[Frame]) -> list[float]:
    odometry.reset()
    return [_milliseconds(partial(odometry.process, frame)) for frame in frames]


def _paced(odometry: VisualOdometry, frames: Sequence[Frame]) -> tuple[list[float], float]:
    """Latencies of frames that arrive at RATE_HZ, and the mean processor time, milliseconds."""
    odometry.reset()
    latencies = []
    processor_s, start_s = time.process_time(), time.perf_counter()
    for index, frame in enumerate(frames):
        due_s = start_s + index / RATE_HZ
        time.sleep(max(0.0, due_s - time.perf_counter()))
        odometry.process(frame)
        latencies.append(1e3 * (time.perf_counter() - due_s))
    odometry.close()
    return latencies, 1e3 * (time.process_time() - processor_s) / len(frames)


def _milliseconds(call: Callable[[], object]) -> float:
    start_s = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start_s)

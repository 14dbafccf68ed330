"""Speed of our hand-written kernels relative to the libraries that could replace them.

    python -m lgc_ros.evaluation.benchmark_kernels

prints JSON: for each kernel and library, how many times faster the kernel is. See docs/kernels.md.
"""

from __future__ import annotations

import json
import sys

import cv2
import numpy as np

from lgc_ros.evaluation.benchmark import spread, take_turns
from lgc_ros.evaluation.benchmark_cases import Cases
from lgc_ros.matching.nearest_neighbor import nearest_two
from lgc_ros.runtime.threads import thread_limit

KEYPOINTS = 2000
ORB_BYTES = 32
ROUNDS = 60


def kernel_speedups(rounds: int = ROUNDS) -> dict[str, dict[str, dict[str, float]]]:
    """Time of each library over that of the kernel: median, 5th and 95th percentile of rounds.

    One thread each, because the threads of one library would disturb the next.
    """
    with thread_limit(1):
        kernels = {
            "Hamming search": ("nearest_two", hamming_cases()),
        }
        speedups = {}
        for kernel, (ours, cases) in kernels.items():
            times = take_turns(cases, rounds, tick=lambda: None)
            others = [name for name in cases if name != ours]
            speedups[kernel] = {name: spread(times[name] / times[ours]) for name in others}
        return speedups


def hamming_cases() -> Cases:
    """The two nearest neighbors of binary descriptors."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, (2, KEYPOINTS, ORB_BYTES), np.uint8)
    brute_force = cv2.BFMatcher(cv2.NORM_HAMMING)
    return {
        "nearest_two": lambda: nearest_two(a, b),
        "OpenCV": lambda: brute_force.knnMatch(a, b, k=2),
    }


if __name__ == "__main__":
    json.dump(kernel_speedups(), sys.stdout, indent=2)
    sys.stdout.write("\n")

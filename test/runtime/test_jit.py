"""Functions compiled on their first call."""

import logging
import os
import subprocess
import sys

from lgc_ros.runtime.jit import compiled

ALIGNMENT = """
import cv2
import numpy as np
from lgc_ros.odometry.patch_alignment import align_patches, image_pyramid
noise = np.random.default_rng(0).integers(0, 255, (240, 320)).astype(np.uint8)
image = cv2.GaussianBlur(noise, (0, 0), 1.5)
moved = cv2.warpAffine(image, np.float32([[1, 0.01, 2.3], [-0.01, 1, 1.1]]), (320, 240))
points = np.random.default_rng(1).uniform(30, 200, (200, 2))
warps = np.repeat(np.eye(2)[None], len(points), axis=0)
found, _ = align_patches(image_pyramid(image), points, image_pyramid(moved), points, warps, 3)
print(found.tobytes().hex())
"""


def test_a_function_that_cannot_be_cached_is_compiled_with_a_warning(caplog):
    scope = {}
    exec("def doubled(x):\n    return 2 * x", scope)
    with caplog.at_level(logging.WARNING):
        doubled = compiled(scope["doubled"])
    assert doubled(21) == 42
    assert doubled.signatures
    assert "every start compiles again" in caplog.text


def test_results_are_the_same_bytes_in_the_process_that_compiles_and_from_the_cache(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}

    def result():
        command = [sys.executable, "-c", ALIGNMENT]
        return subprocess.run(command, env=environment, capture_output=True, check=True).stdout

    compiled_now = result()
    assert any(tmp_path.rglob("*.nbi")), "the first process filled the cache"
    assert result() == compiled_now

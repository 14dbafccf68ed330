"""One setting limits the threads of every library, and idle ones leave the cores to others."""

import os
import subprocess
import sys

import cv2
import pytest
import torch

from lgc_ros.threads import BLAS_SETTERS, blas_libraries, limit_threads


def blas_threads():
    getters = [name.replace("set_num", "get_num") for name in BLAS_SETTERS]
    return [
        getattr(library, name)()
        for library in blas_libraries()
        for name in getters
        if hasattr(library, name)
    ]


def threads():
    return [cv2.getNumThreads(), torch.get_num_threads(), *blas_threads()]


@pytest.fixture
def _restored():
    before = max(threads())
    yield
    limit_threads(before)


@pytest.mark.usefixtures("_restored")
def test_a_limit_holds_for_all_libraries():
    for limit in (2, 1):
        limit_threads(limit)
        assert set(threads()) == {limit}


@pytest.mark.usefixtures("_restored")
def test_zero_changes_nothing():
    before = threads()
    limit_threads(0)
    assert threads() == before


@pytest.mark.parametrize(
    ("given", "expected"), [({}, "4"), ({"OPENBLAS_THREAD_TIMEOUT": "9"}, "9")]
)
def test_idle_threads_of_blas_rest_unless_the_user_says_otherwise(given, expected):
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_THREAD_TIMEOUT"} | given
    told = "import os, lgc_ros; print(os.environ['OPENBLAS_THREAD_TIMEOUT'])"
    said = subprocess.run(
        [sys.executable, "-c", told], env=environment, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == expected

"""One setting limits the threads of every library, and idle ones leave the cores to others."""

import os
import subprocess
import sys

import cv2
import pytest
import torch

from lgc_ros.runtime.threads import blas_threads, limit_threads, thread_limit


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


def test_a_limit_for_a_while_is_lifted_afterwards():
    before = threads()
    with thread_limit(1):
        assert set(threads()) == {1}
    assert threads() == before


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

"""One setting limits the threads of every library, and idle threads do not occupy the cores."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy  # noqa: F401  its BLAS must be loaded
import pytest
import torch
from threadpoolctl import threadpool_info

from lgc_ros.runtime.threads import limit_threads, single_torch_thread, thread_limit


def blas_threads():
    return [info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"]


def threads():
    return [cv2.getNumThreads(), torch.get_num_threads(), *blas_threads()]


@pytest.fixture
def _restored():
    before = max(threads())
    yield
    limit_threads(before)


def test_numpy_brings_a_blas_that_can_be_limited():
    assert blas_threads()


@pytest.mark.usefixtures("_restored")
def test_limit_applies_to_every_library():
    for limit in (2, 1):
        limit_threads(limit)
        assert set(threads()) == {limit}


@pytest.mark.usefixtures("_restored")
def test_limit_set_by_another_thread_replaces_the_first():
    limit_threads(2)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(limit_threads, 1).result()
    assert set(blas_threads()) == {1}


def test_thread_limit_restores_the_previous_limits():
    before = threads()
    with thread_limit(1):
        assert set(threads()) == {1}
    assert threads() == before


def test_thread_limit_restores_the_previous_limits_after_an_error():
    before = threads()
    with pytest.raises(ZeroDivisionError), thread_limit(1):
        1 / 0  # noqa: B018
    assert threads() == before


def test_nested_thread_limits_restore_in_reverse_order():
    before = threads()
    with thread_limit(2):
        with thread_limit(1):
            assert set(threads()) == {1}
        assert set(threads()) == {2}
    assert threads() == before


@pytest.mark.usefixtures("_restored")
def test_zero_keeps_the_current_limits():
    before = threads()
    limit_threads(0)
    assert threads() == before
    with thread_limit(0):
        assert threads() == before
    assert threads() == before


def test_single_torch_thread_limits_torch_alone():
    before = threads()
    with single_torch_thread():
        assert torch.get_num_threads() == 1
        assert blas_threads() == before[2:]
    assert threads() == before


@pytest.mark.parametrize(
    ("given", "expected"), [({}, "4"), ({"OPENBLAS_THREAD_TIMEOUT": "9"}, "9")]
)
def test_idle_blas_threads_sleep_unless_the_user_sets_otherwise(given, expected):
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_THREAD_TIMEOUT"} | given
    program = "import os, lgc_ros; print(os.environ['OPENBLAS_THREAD_TIMEOUT'])"
    printed = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.strip() == expected

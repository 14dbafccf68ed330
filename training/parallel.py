"""Run tasks on all cores, or on the workers of a Dask scheduler."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager

import cv2

from lgc_ros.errors import ConfigError, LgcError

Progress = Callable[[str, int, int], None]
"""Called with the name of the stage, the tasks done and the number of tasks."""

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def run_tasks(
    executor: Executor, tasks: list[tuple], total: int, stage: str, progress: Progress
) -> None:
    """Run the tasks `(function, *arguments)`; `total` counts those done in an earlier run too."""
    done = total - len(tasks)
    progress(stage, done, total)
    futures = [executor.submit(function, *arguments) for function, *arguments in tasks]
    try:
        for future in as_completed(futures):
            future.result()
            done += 1
            progress(stage, done, total)
    except BrokenExecutor as error:
        raise LgcError(
            f"a worker process ended during '{stage}', most likely because memory ran out: "
            "call again with fewer workers to continue"
        ) from error
    finally:
        for future in futures:
            future.cancel()


@contextmanager
def task_executor(workers: int | None, scheduler: str | None) -> Iterator[Executor]:
    """Local processes (None: as many as cores), or the workers of the scheduler at an address."""
    if scheduler is not None:
        from distributed import Client

        try:
            client = Client(scheduler)
        except OSError as error:
            raise ConfigError(
                f"no Dask scheduler answers at {scheduler} ({error}): "
                "start one with `dask scheduler` and workers with `dask worker ADDRESS`"
            ) from error
        with client, client.get_executor(pure=False) as executor:
            yield executor
        return
    workers = workers or os.cpu_count() or 1
    # One thread per process: as many processes as cores are already busy. The numerical
    # libraries read this when a fresh process loads them.
    previous = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))
    try:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, context, initializer=_start_worker) as executor:
            yield executor
    finally:
        for name, value in previous.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _start_worker() -> None:
    cv2.setNumThreads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for tasks for ever."""
    multiprocessing.parent_process().join()
    os._exit(1)

"""Runs that are interrupted, and runs of several processes."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
import yaml
from tiny_runs import (
    MATCHES,
    ROOT,
    assert_same_weights,
    skipped,
    tiny,
)

import training.run_log
import training.trainer
from lgc_ros.errors import ConfigError
from lgc_ros.filter.checkpoint import load_checkpoint
from training.data.batches import Batches, SourceConfig
from training.processes import Process
from training.trainer import train

TWO_PROCESSES = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def start(config, out, *launcher, program=("-m", "training", "train")):
    """The command line as users call it, in a process of its own."""
    path = out.with_suffix(".yaml")
    content = {**config.as_dict(), "sources": [dict(vars(s)) for s in config.sources]}
    path.write_text(
        yaml.safe_dump({k: list(v) if isinstance(v, tuple) else v for k, v in content.items()})
    )
    return subprocess.Popen(
        [sys.executable, *launcher, *program, path, "--out", out],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_run_resumes_to_the_same_weights(tmp_path, how):
    """Ctrl-C and cluster managers send signals to all processes of a run."""
    endless = tiny(steps=10**6, average=0.9, workers=1)
    process = start(endless, tmp_path / "run")
    while not (tmp_path / "run" / "resume.pt").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    os.killpg(process.pid, how)
    _, errors = process.communicate(timeout=120)
    step = torch.load(tmp_path / "run" / "resume.pt", weights_only=True)["step"]
    if how == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 130
        assert f"training stopped at step {step} of 1000000" in " ".join(errors.split())
    rest = replace(endless, steps=step + 5, workers=0)
    assert_same_weights(train(rest, tmp_path / "run"), train(rest, tmp_path / "at_once"))


@pytest.mark.slow
def test_two_processes_give_the_same_weights_as_one(dumps, tmp_path):
    """Also where a batch holds NaN: all processes must then skip it."""
    mixed = SourceConfig("dump", path=str(dumps / "mixed.hdf5"), weight=0.3)
    config = tiny(sources=(SourceConfig("simulation"), mixed), steps=10, beta_from=5)
    process = start(config, tmp_path / "two", *TWO_PROCESSES)
    alone = train(config, tmp_path / "one")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert 0 < skipped(tmp_path / "one") < 10
    assert skipped(tmp_path / "two") == skipped(tmp_path / "one")
    one, two = load_checkpoint(alone)[0], load_checkpoint(tmp_path / "two/last.safetensors")[0]
    batch = Batches(config.sources, steps=1, batch=4, matches=MATCHES)[0]
    torch.testing.assert_close(one(batch.xs), two(batch.xs), rtol=0, atol=1e-5)
    for (name, value), other in zip(one.named_parameters(), two.parameters(), strict=True):
        # What is added before a normalization is taken away by it: only noise moves such a bias.
        if not name.endswith("linear.bias"):
            torch.testing.assert_close(value, other, rtol=0, atol=1e-5)


THREADS_LEFT_BY_TRAINING = """
import sys
from pathlib import Path
from training.config import read_train_config
from training.trainer import train

def threads():
    return {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}

before = threads()
train(read_train_config(Path(sys.argv[1])), Path(sys.argv[3]))
left = threads() - before
sys.exit(", ".join(left) if left else 0)
"""


@pytest.mark.slow
def test_a_process_ends_without_threads_of_the_process_group(tmp_path):
    """One that still holds a tensor when the interpreter ends would abort the process."""
    script = tmp_path / "script.py"
    script.write_text(THREADS_LEFT_BY_TRAINING)
    process = start(tiny(), tmp_path / "two", *TWO_PROCESSES, program=(script,))
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


def test_processes_must_be_able_to_share_the_batch(monkeypatch, tmp_path):
    from contextlib import nullcontext

    one_of_three = nullcontext(Process(0, 3, torch.device("cpu")))
    monkeypatch.setattr(training.trainer, "process_group", lambda: one_of_three)
    with pytest.raises(ConfigError, match="batch 4 cannot be shared by 3 processes"):
        train(tiny(), tmp_path)

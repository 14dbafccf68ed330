"""Training processes: torchrun's process group, shared gradients, requests to stop."""

from __future__ import annotations

import datetime
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a process group: see process_group
from torch import nn

TIMEOUT = datetime.timedelta(hours=4)
"""Maximum wait for another process: all others wait while the first one validates."""


@dataclass(frozen=True)
class Process:
    """One of ``world`` training processes, and the device it trains on."""

    rank: int
    world: int
    device: torch.device

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process; every process gets the same answer."""
        if self.world == 1:
            return flag
        flags = torch.tensor(float(flag), device=self.device)
        dist.all_reduce(flags)
        return bool(flags > 0)

    def share_gradients(self, network: nn.Module) -> None:
        """Give every process the mean of all their gradients, in one message.

        ``DistributedDataParallel`` would send them while they are computed. This gains nothing for
        1.6 MB, and deadlocks if it holds the last reference to Gloo's process group: it then waits
        for Gloo's threads while holding the interpreter lock, which they wait for.
        """
        if self.world == 1:
            return
        gradients = [w.grad for w in network.parameters() if w.grad is not None]
        shared = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(shared)
        shared /= self.world
        means = shared.split([gradient.numel() for gradient in gradients])
        for gradient, mean in zip(gradients, means, strict=True):
            gradient.copy_(mean.view_as(gradient))


@contextmanager
def process_group() -> Iterator[Process]:
    """This process in the group that torchrun set up; a single process without torchrun.

    ``torch.distributed.nn`` makes the process group that exists at its import the default argument
    of its functions. Imported later, for example by the optimizer, it would keep the group and
    Gloo's threads alive; a thread that then still holds a tensor aborts the process at exit.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    cuda = torch.cuda.is_available()
    device = torch.device("cpu")
    if cuda:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if world == 1:
        yield Process(0, 1, device)
        return
    dist.init_process_group("nccl" if cuda else "gloo", timeout=TIMEOUT)
    try:
        yield Process(dist.get_rank(), world, device)
    finally:
        dist.destroy_process_group()


def ignore_stop_signals(worker: int) -> None:
    """For loader processes: Ctrl-C signals them too, but the trainer still needs their batches."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """A function that returns whether SIGTERM or Ctrl-C arrived; a second one acts as usual."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    received: list[int] = []
    signals = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in signals}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def receive(number: int, frame: object) -> None:
        received.append(number)
        restore()

    for number in signals:
        signal.signal(number, receive)
    try:
        yield lambda: bool(received)
    finally:
        restore()

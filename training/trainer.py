"""Trains the network: resumable at any step, alone or as one of many processes (torchrun)."""

from __future__ import annotations

import copy
import datetime
import logging
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a process group: see _processes
import yaml
from rich.progress import TextColumn
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torch.utils.tensorboard import SummaryWriter

from lgc_ros.errors import CheckpointError, ConfigError, LgcError
from lgc_ros.filter.checkpoint import ModelInfo, load_checkpoint, save_checkpoint
from lgc_ros.filter.network import COORDINATES, CorrespondenceNetwork
from lgc_ros.runtime.safe_yaml import parse_yaml
from training.config import TrainConfig
from training.data.batches import Batch, Batches, open_dump
from training.losses import (
    classification_loss,
    distillation_loss,
    essential_loss,
    regression_loss,
)
from training.progress import progress_bar
from training.validation import ValidationScore, validate

log = logging.getLogger(__name__)

RESUME_FILE = "resume.pt"
BEST_FILE = "best.safetensors"
LAST_FILE = "last.safetensors"
LOG_EVERY = 20
TIMEOUT = datetime.timedelta(hours=4)
"""How long processes wait for each other: the first one validates while the others wait."""


def train(config: TrainConfig, out: Path) -> Path:
    """Train until ``config.steps``, continuing from the resume point in ``out`` if there is one.

    Writes ``best.safetensors`` (by validation mAP), ``last.safetensors``, the resume point,
    TensorBoard events and the configuration. Returns the best weights; the last ones when nothing
    is validated. A run that is asked to end (SIGTERM, Ctrl-C) saves a resume point first.
    """
    with _processes() as (rank, world, device):
        if config.batch % world:
            raise ConfigError(f"batch {config.batch} cannot be shared by {world} processes")
        out.mkdir(parents=True, exist_ok=True)
        run = _Run(config, out, rank, world, device)
        run.loop()
    best = out / BEST_FILE
    return best if best.is_file() else out / LAST_FILE


class _Run:
    """State of one training run: what a resume point has to hold, and how it moves on."""

    def __init__(
        self, config: TrainConfig, out: Path, rank: int, world: int, device: torch.device
    ) -> None:
        self.config, self.out, self.device = config, out, device
        self.rank, self.world = rank, world
        torch.manual_seed(config.seed)
        self.network = _initial_network(config).to(device)
        self.teacher, self.taught_by = _teacher(config, device)
        self.average = copy.deepcopy(self.network) if config.average else None
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=config.learning_rate)
        self.scaler = torch.amp.GradScaler(device.type, enabled=device.type == "cuda")
        self.step, self.skipped, self.best = 0, 0, -math.inf
        self._resume()
        self.batches = Batches(
            config.sources,
            steps=config.steps,
            batch=config.batch,
            matches=config.matches,
            side=config.side,
            label_threshold=config.label_threshold,
            seed=config.seed,
            rank=rank,
            world=world,
        )
        dumps = config.validation if rank == 0 else ()
        self.validation = [open_dump(Path(path), config.side) for path in dumps]

    def loop(self) -> None:
        config = self.config
        loader = DataLoader(
            self.batches,
            batch_size=None,
            sampler=range(self.step, config.steps),
            num_workers=config.workers,
            prefetch_factor=4 if config.workers else None,
            worker_init_fn=_leave_ending_to_the_trainer,
        )
        with self._reporting() as report, _end_requests() as asked_to_end:
            for batch in loader:
                losses = self._update(batch)
                self.step += 1
                report(losses)
                end = self._agree(asked_to_end())
                if self.rank == 0:
                    self._housekeeping(end)
                if end and self.step < config.steps:
                    raise LgcError(
                        f"training was ended at step {self.step} of {config.steps}: "
                        "call it again to go on from there"
                    )

    def _agree(self, end: bool) -> bool:
        """Whether any process was asked to end: all of them must do so after the same step."""
        if self.world == 1:
            return end
        requests = torch.tensor(float(end), device=self.device)
        dist.all_reduce(requests)
        return bool(requests > 0)

    def _update(self, batch: Batch) -> dict[str, float]:
        """One optimizer step; a batch whose loss or gradient is not finite changes nothing."""
        config = self.config
        self.network.train()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(config, self.step)
        statistics = [buffer.clone() for buffer in self.network.buffers()]
        xs = batch.xs.to(self.device)
        with torch.autocast(self.device.type, enabled=self.device.type == "cuda"):
            output = self.network(xs)
            taught = None if self.teacher is None else self.teacher(xs).float()
        losses = batch_losses(config, self.step, output.float(), batch, taught)
        self.optimizer.zero_grad()
        self.scaler.scale(losses["loss"]).backward()
        if self.world > 1:
            share_gradients(self.network, self.world)
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), config.clip)
        # Gradients are shared by all processes, so all of them come to the same verdict.
        if torch.isfinite(norm):
            self.scaler.step(self.optimizer)
            self._follow()
        else:
            for buffer, before in zip(self.network.buffers(), statistics, strict=True):
                buffer.copy_(before)
            self.skipped += 1
            if self.rank == 0:
                log.warning(
                    "step %d: the gradient is not finite; batch skipped, %d so far",
                    self.step,
                    self.skipped,
                )
        self.scaler.update()
        return {name: value.item() for name, value in losses.items()} | {"gradient": float(norm)}

    def _follow(self) -> None:
        if self.average is None:
            return
        decay = min(self.config.average, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for mean, value in zip(
                self.average.state_dict().values(), self.network.state_dict().values(), strict=True
            ):
                if mean.dtype.is_floating_point:
                    mean.lerp_(value, 1 - decay)
                else:
                    mean.copy_(value)

    def _housekeeping(self, end: bool) -> None:
        config, last = self.config, self.step == self.config.steps
        if self.validation and (last or self.step % config.validate_every == 0):
            self._validate()
        if last or end or self.step % config.save_every == 0:
            save_checkpoint(self.out / LAST_FILE, self.result, self._info({}))
            self._save()

    def _validate(self) -> None:
        config = self.config
        scores = {
            dump.path.stem: validate(
                self.result, dump, config.side, config.label_threshold, config.validation_pairs
            )
            for dump in self.validation
        }
        headline = float(np.mean([score.headline for score in scores.values()]))
        for name, score in scores.items():
            self._write_score(name, score)
        self.writer.add_scalar("validation/map", headline, self.step)
        log.info("step %d: validation mAP %.4f (best %.4f)", self.step, headline, self.best)
        if headline > self.best:
            self.best = headline
            summary = {"validation_map": round(headline, 4)}
            save_checkpoint(self.out / BEST_FILE, self.result, self._info(summary))

    def _write_score(self, name: str, score: ValidationScore) -> None:
        for threshold, value in score.map_robust.items():
            self.writer.add_scalar(f"{name}/map{threshold}", value, self.step)
        for threshold, value in score.map_eight_point.items():
            self.writer.add_scalar(f"{name}/map{threshold}_8pt", value, self.step)
        self.writer.add_scalar(f"{name}/precision", score.precision, self.step)
        self.writer.add_scalar(f"{name}/recall", score.recall, self.step)
        log.info(
            "%s: mAP %s, 8-point %s, precision %.3f, recall %.3f",
            name,
            _rounded(score.map_robust),
            _rounded(score.map_eight_point),
            score.precision,
            score.recall,
        )

    @property
    def result(self) -> CorrespondenceNetwork:
        """The weights that are validated and saved."""
        return self.network if self.average is None else self.average

    def _info(self, summary: dict) -> ModelInfo:
        taught_by = self.taught_by  # a pupil's logits mean what its teacher's do
        return ModelInfo(
            name=self.config.name,
            features=self.config.features,
            network=self.config.network,
            side=self.config.side,
            keep_above=taught_by.keep_above if taught_by else 0.0,
            trust_above=taught_by.trust_above if taught_by else 0.0,
            training={
                "step": self.step,
                "date": datetime.date.today().isoformat(),
                "config": self.config.as_dict(),
                **summary,
            },
        )

    def _save(self) -> None:
        state = {
            "config": yaml.safe_dump(_plain(self.config.as_dict())),
            "step": self.step,
            "skipped": self.skipped,
            "best": self.best,
            "network": self.network.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "rng": torch.get_rng_state(),
        }
        partial = self.out / (RESUME_FILE + ".partial")
        torch.save(state, partial)
        partial.replace(self.out / RESUME_FILE)

    def _resume(self) -> None:
        path = self.out / RESUME_FILE
        if not path.is_file():
            return
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            before = dict(parse_yaml(state["config"]))
        except Exception as error:
            raise CheckpointError(
                f"{path} cannot be read ({error}): remove it to start this run from the beginning"
            ) from error
        now = _plain(self.config.as_dict())
        # How long a run goes on and how it is watched may change; what it learns from may not.
        free = {
            "steps",
            "validation",
            "validate_every",
            "validation_pairs",
            "save_every",
            "workers",
        }
        changed = sorted(k for k in now if k not in free and now[k] != before.get(k))
        if changed:
            raise ConfigError(
                f"{path} belongs to another configuration (different: {', '.join(changed)}): "
                "choose another --out, or remove the folder to start again"
            )
        try:
            self.step, self.skipped, self.best = state["step"], state["skipped"], state["best"]
            self.network.load_state_dict(state["network"])
            if self.average is not None:
                self.average.load_state_dict(state["average"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.scaler.load_state_dict(state["scaler"])
            torch.set_rng_state(state["rng"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(
                f"{path} is not the state of such a run ({error!r:.200}): remove it to start this "
                "run from the beginning"
            ) from error
        log.info("resuming at step %d", self.step)

    @contextmanager
    def _reporting(self) -> Iterator[Callable[[dict[str, float]], None]]:
        """What is called with the losses of each step; only the first process reports."""
        if self.rank != 0:
            yield lambda losses: None
            return
        (self.out / "config.yaml").write_text(
            yaml.safe_dump(_plain(self.config.as_dict()), sort_keys=False), encoding="utf-8"
        )
        self.writer = SummaryWriter(self.out, purge_step=self.step)
        numbers = TextColumn("loss {task.fields[loss]:.4f}  skipped {task.fields[skipped]}")
        with progress_bar(numbers) as progress, self.writer:
            task = progress.add_task(
                self.config.name,
                total=self.config.steps,
                completed=self.step,
                loss=math.nan,
                skipped=self.skipped,
            )

            def report(losses: dict[str, float]) -> None:
                progress.update(
                    task, completed=self.step, loss=losses["loss"], skipped=self.skipped
                )
                if self.step % LOG_EVERY == 0:
                    for name, value in losses.items():
                        self.writer.add_scalar(f"train/{name}", value, self.step)
                    self.writer.add_scalar("train/skipped", self.skipped, self.step)
                if progress.disable and self.step % self.config.save_every == 0:
                    log.info(
                        "step %d of %d: loss %.4f, %d batches skipped",
                        self.step,
                        self.config.steps,
                        losses["loss"],
                        self.skipped,
                    )

            yield report


def batch_losses(
    config: TrainConfig, step: int, output: Tensor, batch: Batch, taught: Tensor | None = None
) -> dict[str, Tensor]:
    """The loss of a batch (key ``loss``) and its parts; ``taught`` is a teacher's output."""
    E_gt = batch.E_gt.to(output.device)
    if config.loss == "direct":
        return {"loss": essential_loss(output, E_gt)}
    labels, xs = batch.labels.to(output.device), batch.xs.to(output.device)
    alpha, beta = config.alpha, config.beta if step >= config.beta_from else 0.0
    if config.loss == "classification":
        beta = 0.0
    elif config.loss == "essential":
        alpha, beta = 0.0, 1.0
    losses = {}
    if alpha:
        losses["classification"] = classification_loss(output, labels)
    if beta:
        losses["regression"] = regression_loss(output, xs, E_gt)
    total = alpha * losses.get("classification", 0.0) + beta * losses.get("regression", 0.0)
    if taught is not None:
        losses["distillation"] = distillation_loss(output, taught)
        total = total + config.distill * losses["distillation"]
    return {"loss": total, **losses}


def learning_rate(config: TrainConfig, step: int) -> float:
    """Adam's learning rate at a step: linear warm-up, then constant or half a cosine."""
    rate = config.learning_rate
    if step < config.warmup:
        return rate * (step + 1) / config.warmup
    if config.decay == "constant":
        return rate
    progress = (step - config.warmup) / max(config.steps - config.warmup, 1)
    return rate * 0.5 * (1 + math.cos(math.pi * progress))


def _leave_ending_to_the_trainer(worker: int) -> None:
    """Ctrl-C and cluster managers signal all processes; the last batches must still arrive."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def _end_requests() -> Iterator[Callable[[], bool]]:
    """Whether SIGTERM or Ctrl-C came since; a second one acts as if nobody had listened."""
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


@contextmanager
def _processes() -> Iterator[tuple[int, int, torch.device]]:
    """Rank, number of processes and device, as torchrun set them up; alone without torchrun.

    ``torch.distributed.nn`` makes the process group of its import the default argument of its
    functions. Imported later (by the optimizer, say), it keeps the group and Gloo's threads beyond
    their end, and one that then still holds a tensor aborts the process when Python ends.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    cuda = torch.cuda.is_available()
    device = torch.device("cpu")
    if cuda:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if world == 1:
        yield 0, 1, device
        return
    dist.init_process_group("nccl" if cuda else "gloo", timeout=TIMEOUT)
    try:
        yield dist.get_rank(), world, device
    finally:
        dist.destroy_process_group()


def share_gradients(network: nn.Module, world: int) -> None:
    """Give every process the mean of all their gradients, in one message.

    ``DistributedDataParallel`` would send them while they are computed, which buys nothing for
    1.6 MB, and deadlocks if it is the last to let go of Gloo's process group: it then waits for
    Gloo's threads with the interpreter locked, and they for the interpreter.
    """
    gradients = [weights.grad for weights in network.parameters()]
    shared = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(shared)
    shared /= world
    means = shared.split([gradient.numel() for gradient in gradients])
    for gradient, mean in zip(gradients, means, strict=True):
        gradient.copy_(mean.view_as(gradient))


def _initial_network(config: TrainConfig) -> CorrespondenceNetwork:
    if not config.init:
        return CorrespondenceNetwork(config.network)
    start, info = load_checkpoint(config.init)
    asked = config.network
    deeper = info.network.blocks > asked.blocks and asked.context != "pointnet"
    blocks = asked.blocks if deeper else info.network.blocks
    if replace(info.network, side=asked.side, blocks=blocks) != asked:
        raise ConfigError(f"{config.init} is {info.network}, the configuration asks for {asked}")
    if deeper:
        start.body = nn.Sequential(*(start.body[i] for i in _spread(blocks, len(start.body))))
    network = CorrespondenceNetwork(asked)
    weights = start.state_dict()
    weights["input.weight"] = _input_weights(weights["input.weight"], info.side, config.side)
    network.load_state_dict(weights)
    return network


def _spread(count: int, of: int) -> list[int]:
    """So many places of a row, evenly spaced, the first and the last among them."""
    return [int(i) for i in np.linspace(0, of - 1, count).round()]


def _teacher(
    config: TrainConfig, device: torch.device
) -> tuple[nn.Module, ModelInfo] | tuple[None, None]:
    if not config.teacher:
        return None, None
    teacher, info = load_checkpoint(config.teacher)
    if info.side != config.side or info.network.head != "weights":
        raise ConfigError(
            f"the teacher {config.teacher} has side information {info.side} and head "
            f"{info.network.head}, the configuration asks for {config.side} and weights"
        )
    return teacher.requires_grad_(False).eval().to(device), info


def _input_weights(weights: Tensor, before: Sequence[str], side: Sequence[str]) -> Tensor:
    """The first layer for other side information: what is new begins without a say."""
    columns = dict(zip(before, weights.T[COORDINATES:], strict=True))
    new = weights.new_zeros(len(weights))
    return torch.stack(
        [*weights.T[:COORDINATES], *(columns.get(name, new) for name in side)], dim=1
    )


def _plain(value):
    """Tuples as lists, so that YAML stays plain."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _rounded(values: dict[int, float]) -> str:
    return "/".join(f"{value:.3f}" for value in values.values())

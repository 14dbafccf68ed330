"""Trains the network: resumable at any step, alone or as one of many processes (torchrun)."""

from __future__ import annotations

import copy
import datetime
import io
import logging
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
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

from lgc_ros.errors import CheckpointError, ConfigError, Interrupted
from lgc_ros.filter.checkpoint import ModelInfo, load_checkpoint, save_checkpoint
from lgc_ros.filter.network import COORDINATES, CorrespondenceNetwork
from lgc_ros.runtime.output_files import make_folder, write_file
from lgc_ros.runtime.safe_yaml import parse_yaml
from training.config import TrainConfig
from training.data.batches import Batch, Batches, SourceConfig, open_dump
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
BEST_8PT_FILE = "best_8pt.safetensors"
LAST_FILE = "last.safetensors"
LOG_EVERY = 20
WATCH_SEED = 1_000_003
TIMEOUT = datetime.timedelta(hours=4)
"""How long processes wait for each other: the first one validates while the others wait."""


def train(config: TrainConfig, out: Path) -> Path:
    """Train until ``config.steps``, continuing from the resume point in ``out`` if there is one.

    Writes ``best.safetensors`` (by validation mAP of the robust pose), ``best_8pt.safetensors``
    (of the closed form), ``last.safetensors``, the resume point, TensorBoard events and the
    configuration. Returns the best weights; the last ones when nothing
    is validated. A run that is asked to end (SIGTERM, Ctrl-C) saves a resume point first.
    """
    with _processes() as (rank, world, device):
        if config.batch % world:
            raise ConfigError(f"batch {config.batch} cannot be shared by {world} processes")
        make_folder(out)
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
        network, started_from = _initial_network(config)
        self.network = network.to(device)
        self.teacher, taught_by = _teacher(config, device)
        self.limits = _limits(config, taught_by or started_from)
        self.average = copy.deepcopy(self.network) if config.average else None
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=config.learning_rate)
        cuda, brief = device.type == "cuda", config.precision == "bfloat16"
        self.autocast = partial(
            torch.autocast, device.type, torch.bfloat16 if brief else None, enabled=cuda or brief
        )
        self.scaler = torch.amp.GradScaler(device.type, enabled=cuda and not brief)
        self.step, self.skipped = 0, 0
        self.best = {BEST_FILE: -math.inf, BEST_8PT_FILE: -math.inf}
        self._resume()
        self.batches = self._open(config.sources, config.batch, config.seed, rank, world)
        dumps = config.validation if rank == 0 else ()
        self.validation = [open_dump(Path(path), config.side) for path in dumps]
        self.watched = self._watched() if self.validation else {}

    def _open(
        self, sources: Sequence[SourceConfig], batch: int, seed: int, rank: int = 0, world: int = 1
    ) -> Batches:
        return Batches(
            tuple(sources),
            steps=self.config.steps,
            batch=batch,
            matches=self.config.matches,
            side=self.config.side,
            label_threshold=self.config.label_threshold,
            seed=seed,
            rank=rank,
            world=world,
        )

    def _watched(self) -> dict[str, Batch]:
        """Pairs of the training and of the validation data whose loss is logged, always the same.

        The seed is none of training's: what is watched may be learned from, but is not the next
        batch.
        """
        config, seed = self.config, self.config.seed + WATCH_SEED
        unseen = [SourceConfig("dump", path=path) for path in config.validation]
        sources = {"training": config.sources, "validation": unseen}
        return {
            name: self._open(source, config.watch_pairs, seed)[0]
            for name, source in sources.items()
        }

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
            if self.step == 0 and config.init and self.validation:
                self._validate()
            for batch in loader:
                losses = self._update(batch)
                self.step += 1
                report(losses)
                end = self._agree(asked_to_end())
                if self.rank == 0:
                    self._housekeeping(end)
                if end and self.step < config.steps:
                    raise Interrupted(
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
        with self.autocast():
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
                self.result,
                dump,
                self._info({}),
                config.label_threshold,
                config.validation_pairs,
            )
            for dump in self.validation
        }
        for name, score in scores.items():
            self._write_score(name, score)
        for name, batch in self.watched.items():
            losses = watched_losses(config, self.result, batch)
            for part, value in losses.items():
                self.writer.add_scalar(f"loss_{part}/{name}", value, self.step)
            log.info("%s: %s", name, ", ".join(f"{k} {v:.4f}" for k, v in losses.items()))
        found = {
            BEST_FILE: float(np.mean([score.headline for score in scores.values()])),
            BEST_8PT_FILE: float(np.mean([score.closed_form for score in scores.values()])),
        }
        robust, closed = found.values()
        self.writer.add_scalar("validation/map", robust, self.step)
        self.writer.add_scalar("validation/map_8pt", closed, self.step)
        log.info(
            "step %d: validation mAP %.4f (best %.4f), 8-point %.4f (best %.4f)",
            self.step,
            robust,
            self.best[BEST_FILE],
            closed,
            self.best[BEST_8PT_FILE],
        )
        summary = {"validation_map": round(robust, 4), "validation_map_8pt": round(closed, 4)}
        for name, value in found.items():
            if value > self.best[name]:
                self.best[name] = value
                save_checkpoint(self.out / name, self.result, self._info(summary))

    def _write_score(self, name: str, score: ValidationScore) -> None:
        values = score.scalars()
        for key, value in values.items():
            self.writer.add_scalar(f"{name}/{key}", value, self.step)
        log.info("%s: %s", name, ", ".join(f"{key} {v:.3f}" for key, v in values.items()))

    @property
    def result(self) -> CorrespondenceNetwork:
        """The weights that are validated and saved."""
        return self.network if self.average is None else self.average

    def _info(self, summary: dict) -> ModelInfo:
        return ModelInfo(
            name=self.config.name,
            features=self.config.features,
            network=self.config.network,
            side=self.config.side,
            **self.limits,
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
        file = io.BytesIO()
        torch.save(state, file)
        write_file(self.out / RESUME_FILE, file.getvalue())

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
            "watch_pairs",
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
        config = yaml.safe_dump(_plain(self.config.as_dict()), sort_keys=False)
        write_file(self.out / "config.yaml", config)
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

            written, printed = Means(), Means()

            def report(losses: dict[str, float]) -> None:
                written.add(losses)
                printed.add(losses)
                progress.update(
                    task, completed=self.step, loss=losses["loss"], skipped=self.skipped
                )
                if self.step % LOG_EVERY == 0:
                    for name, value in written.take().items():
                        self.writer.add_scalar(f"train/{name}", value, self.step)
                    self.writer.add_scalar("train/skipped", self.skipped, self.step)
                if progress.disable and self.step % self.config.save_every == 0:
                    log.info(
                        "step %d of %d: %s, %d batches skipped",
                        self.step,
                        self.config.steps,
                        ", ".join(f"{name} {value:.4f}" for name, value in printed.take().items()),
                        self.skipped,
                    )

            yield report


class Means:
    """Means of named values since they were last taken; what is not finite is left out."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, int]] = {}

    def add(self, values: dict[str, float]) -> None:
        for name, value in values.items():
            if math.isfinite(value):
                total, count = self._sums.get(name, (0.0, 0))
                self._sums[name] = total + value, count + 1

    def take(self) -> dict[str, float]:
        sums, self._sums = self._sums, {}
        return {name: total / count for name, (total, count) in sums.items()}


@torch.no_grad()
def watched_losses(
    config: TrainConfig, network: CorrespondenceNetwork, batch: Batch
) -> dict[str, float]:
    """The losses of a batch of any size with the final weight of each, by name."""
    network.eval()
    device, means = next(network.parameters()).device, Means()
    for start in range(0, len(batch.xs), config.batch):
        some = slice(start, start + config.batch)
        part = Batch(batch.xs[some], batch.labels[some], batch.E_gt[some])
        losses = batch_losses(config, config.steps, network(part.xs.to(device)), part)
        means.add({name: value.item() for name, value in losses.items()})
    return means.take()


def regression_weight(config: TrainConfig, step: int) -> float:
    """beta at a step: zero, then growing over the ramp, then what the configuration says."""
    if step < config.beta_from:
        return 0.0
    return config.beta * min(1.0, (step - config.beta_from + 1) / max(config.beta_ramp, 1))


def batch_losses(
    config: TrainConfig, step: int, output: Tensor, batch: Batch, taught: Tensor | None = None
) -> dict[str, Tensor]:
    """The loss of a batch (key ``loss``) and its parts; ``taught`` is a teacher's output."""
    E_gt = batch.E_gt.to(output.device)
    if config.loss == "direct":
        return {"loss": essential_loss(output, E_gt)}
    labels, xs = batch.labels.to(output.device), batch.xs.to(output.device)
    alpha, beta = config.alpha, regression_weight(config, step)
    if config.loss == "classification":
        beta = 0.0
    elif config.loss == "essential":
        alpha, beta = 0.0, 1.0
    losses = {}
    if alpha:
        losses["classification"] = classification_loss(output + config.margin, labels)
    if beta:
        losses["regression"] = regression_loss(
            output, xs, E_gt, config.regression, config.conditioned, config.pair_clip
        )
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
    gradients = [w.grad for w in network.parameters() if w.grad is not None]
    shared = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(shared)
    shared /= world
    means = shared.split([gradient.numel() for gradient in gradients])
    for gradient, mean in zip(gradients, means, strict=True):
        gradient.copy_(mean.view_as(gradient))


def _initial_network(config: TrainConfig) -> tuple[CorrespondenceNetwork, ModelInfo | None]:
    """The network to start with, and what is said of the model it was taken from."""
    if not config.init:
        return CorrespondenceNetwork(config.network), None
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
    weights["output.bias"] = weights["output.bias"] - (config.margin - _margin(info))
    network.load_state_dict(weights)
    return network, info


def _margin(info: ModelInfo) -> float:
    """The margin that a model was trained with."""
    return float(info.training.get("config", {}).get("margin", 0.0))


def _limits(config: TrainConfig, model: ModelInfo | None) -> dict[str, float]:
    """Logits above which matches are kept and trusted: as the model does that was learned from.

    Its logits mean the same but for the margin. Without one, matches more likely right than wrong
    (in balance) are kept, and all of them trusted.
    """
    if model is None:
        return {"keep_above": -config.margin, "trust_above": -config.margin}
    if config.teacher:
        return {"keep_above": model.keep_above, "trust_above": model.trust_above}
    shift = config.margin - _margin(model)
    return {"keep_above": model.keep_above - shift, "trust_above": model.trust_above - shift}


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

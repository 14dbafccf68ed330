"""Trains the network: resumable at any step, alone or as one of many processes (torchrun)."""

from __future__ import annotations

import copy
import datetime
import logging
import math
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from lgc_ros.errors import ConfigError, Interrupted
from lgc_ros.filter.checkpoint import ModelInfo, save_checkpoint
from lgc_ros.filter.network import CorrespondenceNetwork
from lgc_ros.runtime.output_files import make_folder, write_file
from training.config import TrainConfig
from training.data.batches import Batch, Batches, SourceConfig, open_dump
from training.initialization import initial_network, load_teacher, thresholds
from training.objective import batch_losses, monitored_losses
from training.processes import Process, ignore_stop_signals, process_group, stop_requests
from training.resume import config_yaml, invalid_state, read_resume_point, write_resume_point
from training.run_log import RunLog, open_run_log
from training.schedule import learning_rate
from training.validation import validate

log = logging.getLogger(__name__)

BEST_FILE = "best.safetensors"
BEST_8PT_FILE = "best_8pt.safetensors"
LAST_FILE = "last.safetensors"
MONITOR_SEED = 1_000_003


def train(config: TrainConfig, out: Path) -> Path:
    """Train until ``config.steps``, continuing from the resume point in ``out`` if there is one.

    Writes ``best.safetensors`` (by validation mAP of the robust pose), ``best_8pt.safetensors``
    (of the closed form), ``last.safetensors``, the resume point, TensorBoard events and the
    configuration. Returns the best weights, or the last ones without validation data. On SIGTERM
    or Ctrl-C the run saves a resume point and stops.
    """
    with process_group() as process:
        if config.batch % process.world:
            raise ConfigError(
                f"batch {config.batch} cannot be shared by {process.world} processes"
            )
        make_folder(out)
        _Run(config, out, process).loop()
    best = out / BEST_FILE
    return best if best.is_file() else out / LAST_FILE


class _Run:
    """State of one training run: what a resume point has to hold, and one step of it."""

    def __init__(self, config: TrainConfig, out: Path, process: Process) -> None:
        self.config, self.out, self.process = config, out, process
        torch.manual_seed(config.seed)
        network, origin = initial_network(config)
        self.network = network.to(process.device)
        self.teacher, teacher_info = load_teacher(config, process.device)
        self.thresholds = thresholds(config, teacher_info or origin)
        self.average = copy.deepcopy(self.network) if config.average else None
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=config.learning_rate)
        device = process.device.type
        cuda, bfloat16 = device == "cuda", config.precision == "bfloat16"
        self.autocast = partial(
            torch.autocast, device, torch.bfloat16 if bfloat16 else None, enabled=cuda or bfloat16
        )
        self.scaler = torch.amp.GradScaler(device, enabled=cuda and not bfloat16)
        self.step, self.skipped = 0, 0
        self.best = {BEST_FILE: -math.inf, BEST_8PT_FILE: -math.inf}
        self._resume()
        self.batches = self._open(
            config.sources, config.batch, config.seed, process.rank, process.world
        )
        dumps = config.validation if process.rank == 0 else ()
        self.validation = [open_dump(Path(path), config.side) for path in dumps]
        self.monitored = self._monitored() if self.validation else {}
        self.run_log: RunLog | None = None  # of the first process only

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

    def _monitored(self) -> dict[str, Batch]:
        """Fixed pairs of the training and of the validation data whose losses are logged.

        Their seed differs from that of training: they may be trained on, but no training batch
        equals them.
        """
        config, seed = self.config, self.config.seed + MONITOR_SEED
        validation = [SourceConfig("dump", path=path) for path in config.validation]
        sources = {"training": config.sources, "validation": validation}
        return {
            name: self._open(source, config.watch_pairs, seed)[0]
            for name, source in sources.items()
        }

    def loop(self) -> None:
        config, first = self.config, self.process.rank == 0
        loader = DataLoader(
            self.batches,
            batch_size=None,
            sampler=range(self.step, config.steps),
            num_workers=config.workers,
            prefetch_factor=4 if config.workers else None,
            worker_init_fn=ignore_stop_signals,
        )
        with ExitStack() as stack:
            if first:
                write_file(self.out / "config.yaml", config_yaml(config))
                opened = open_run_log(config, self.out, self.step, self.skipped)
                self.run_log = stack.enter_context(opened)
            stop_requested = stack.enter_context(stop_requests())
            if self.step == 0 and config.init:
                self._validate()
            for batch in loader:
                losses = self._update(batch)
                self.step += 1
                if self.run_log:
                    self.run_log.step(self.step, losses, self.skipped)
                stop = self.process.any(stop_requested())
                if first:
                    self._validate_and_save(stop)
                if stop and self.step < config.steps:
                    raise Interrupted(
                        f"training stopped at step {self.step} of {config.steps}: call it again "
                        "to continue"
                    )

    def _update(self, batch: Batch) -> dict[str, float]:
        """One optimizer step; a batch whose loss or gradient is not finite changes nothing."""
        config = self.config
        self.network.train()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(config, self.step)
        statistics = [buffer.clone() for buffer in self.network.buffers()]
        xs = batch.xs.to(self.process.device)
        with self.autocast():
            output = self.network(xs)
            teacher_logits = None if self.teacher is None else self.teacher(xs).float()
        losses = batch_losses(config, self.step, output.float(), batch, teacher_logits)
        self.optimizer.zero_grad()
        self.scaler.scale(losses["loss"]).backward()
        self.process.share_gradients(self.network)
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), config.clip)
        # All processes have the same gradients, so they make the same decision.
        if torch.isfinite(norm):
            self.scaler.step(self.optimizer)
            if self.average is not None:
                decay = min(config.average, (1 + self.step) / (10 + self.step))
                _update_average(self.average, self.network, decay)
        else:
            for buffer, before in zip(self.network.buffers(), statistics, strict=True):
                buffer.copy_(before)
            self.skipped += 1
            if self.process.rank == 0:
                log.warning(
                    "step %d: the gradient is not finite; batch skipped, %d so far",
                    self.step,
                    self.skipped,
                )
        self.scaler.update()
        return {name: value.item() for name, value in losses.items()} | {"gradient": float(norm)}

    def _validate_and_save(self, stop: bool) -> None:
        config, last = self.config, self.step == self.config.steps
        if last or self.step % config.validate_every == 0:
            self._validate()
        if last or stop or self.step % config.save_every == 0:
            save_checkpoint(self.out / LAST_FILE, self.result, self._info({}))
            self._save()

    def _validate(self) -> None:
        """Score the weights on the validation dumps, and keep them if they are the best so far."""
        if not self.validation or self.run_log is None:
            return
        config, scores = self.config, []
        for dump in self.validation:
            score = validate(
                self.result, dump, self._info({}), config.label_threshold, config.validation_pairs
            )
            scores.append(score)
            self._report(dump.path.stem, score.scalars())
        for name, batch in self.monitored.items():
            losses = monitored_losses(config, self.result, batch)
            for term, value in losses.items():
                self.run_log.scalars(f"loss_{term}", {name: value}, self.step)
            log.info("%s: %s", name, ", ".join(f"{k} {v:.4f}" for k, v in losses.items()))
        robust = float(np.mean([score.headline for score in scores]))
        closed_form = float(np.mean([score.closed_form for score in scores]))
        self.run_log.scalars("validation", {"map": robust, "map_8pt": closed_form}, self.step)
        summary = {"validation_map": round(robust, 4), "validation_map_8pt": round(closed_form, 4)}
        for file, value in ((BEST_FILE, robust), (BEST_8PT_FILE, closed_form)):
            if value > self.best[file]:
                self.best[file] = value
                save_checkpoint(self.out / file, self.result, self._info(summary))
        log.info(
            "step %d: validation mAP %.4f (best %.4f), 8-point %.4f (best %.4f)",
            self.step,
            robust,
            self.best[BEST_FILE],
            closed_form,
            self.best[BEST_8PT_FILE],
        )

    def _report(self, name: str, values: dict[str, float]) -> None:
        assert self.run_log is not None
        self.run_log.scalars(name, values, self.step)
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
            **self.thresholds,
            training={
                "step": self.step,
                "date": datetime.date.today().isoformat(),
                "config": self.config.as_dict(),
                **summary,
            },
        )

    def _save(self) -> None:
        state = {
            "step": self.step,
            "skipped": self.skipped,
            "best": self.best,
            "network": self.network.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "rng": torch.get_rng_state(),
        }
        write_resume_point(self.out, self.config, state)

    def _resume(self) -> None:
        state = read_resume_point(self.out, self.config)
        if state is None:
            return
        try:
            self.step, self.skipped, self.best = state["step"], state["skipped"], state["best"]
            self.network.load_state_dict(state["network"])
            if self.average is not None:
                self.average.load_state_dict(state["average"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.scaler.load_state_dict(state["scaler"])
            torch.set_rng_state(state["rng"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise invalid_state(self.out, error) from error
        log.info("resuming at step %d", self.step)


def _update_average(average: nn.Module, network: nn.Module, decay: float) -> None:
    """Move the exponential moving average of the weights toward the current ones."""
    pairs = zip(average.state_dict().values(), network.state_dict().values(), strict=True)
    with torch.no_grad():
        for mean, value in pairs:
            if mean.dtype.is_floating_point:
                mean.lerp_(value, 1 - decay)
            else:
                mean.copy_(value)

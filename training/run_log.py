"""What a run reports: TensorBoard curves, a progress bar, log lines where there is no terminal."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.progress import Progress, TaskID, TextColumn
from torch.utils.tensorboard import SummaryWriter

from training.config import TrainConfig
from training.progress import progress_bar
from training.running_means import RunningMeans

log = logging.getLogger(__name__)

LOG_EVERY = 20


class RunLog:
    """Curves and progress of the first process of a run."""

    def __init__(
        self, config: TrainConfig, writer: SummaryWriter, progress: Progress, task: TaskID
    ) -> None:
        self._config, self._writer = config, writer
        self._progress, self._task = progress, task
        self._curves, self._lines = RunningMeans(), RunningMeans()

    def step(self, step: int, losses: dict[str, float], skipped: int) -> None:
        """Record the losses of the batch that led to this step."""
        self._curves.add(losses)
        self._lines.add(losses)
        self._progress.update(self._task, completed=step, loss=losses["loss"], skipped=skipped)
        if step % LOG_EVERY == 0:
            self.scalars("train", {**self._curves.take(), "skipped": skipped}, step)
        if self._progress.disable and step % self._config.save_every == 0:
            means = ", ".join(f"{name} {value:.4f}" for name, value in self._lines.take().items())
            log.info("step %d of %d: %s, %d skipped", step, self._config.steps, means, skipped)

    def scalars(self, group: str, values: Mapping[str, float], step: int) -> None:
        """Add one point to each curve of a group."""
        for name, value in values.items():
            self._writer.add_scalar(f"{group}/{name}", value, step)


@contextmanager
def open_run_log(config: TrainConfig, out: Path, step: int, skipped: int) -> Iterator[RunLog]:
    """A log that continues at a step; curves beyond it, of an interrupted run, are dropped."""
    numbers = TextColumn("loss {task.fields[loss]:.4f}  skipped {task.fields[skipped]}")
    with progress_bar(numbers) as progress, SummaryWriter(out, purge_step=step) as writer:
        task = progress.add_task(
            config.name, total=config.steps, completed=step, loss=math.nan, skipped=skipped
        )
        yield RunLog(config, writer, progress, task)

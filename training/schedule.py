"""Learning rate and regression weight as functions of the step."""

from __future__ import annotations

import math

from training.config import TrainConfig


def learning_rate(config: TrainConfig, step: int) -> float:
    """Adam's learning rate: linear warm-up, then constant or half a cosine.

    With a cooldown the rate stays constant until the last ``cooldown`` steps.
    """
    rate = config.learning_rate
    if step < config.warmup:
        return rate * (step + 1) / config.warmup
    if config.decay == "constant":
        return rate
    start = config.warmup
    if config.cooldown:
        start = max(start, config.steps - config.cooldown)
    progress = max(step - start, 0) / max(config.steps - start, 1)
    return rate * 0.5 * (1 + math.cos(math.pi * progress))


def regression_weight(config: TrainConfig, step: int) -> float:
    """beta: zero before ``beta_from``, then a linear ramp to its full value."""
    if step < config.beta_from:
        return 0.0
    return config.beta * min(1.0, (step - config.beta_from + 1) / max(config.beta_ramp, 1))

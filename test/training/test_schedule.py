"""Learning rate and weight of the regression loss by step."""

from dataclasses import replace

import pytest
from tiny_runs import (
    tiny,
)

from training.schedule import learning_rate, regression_weight


def test_the_weight_of_the_regression_loss_grows_over_a_ramp():
    config = tiny(beta=0.4, beta_from=20, beta_ramp=4)
    weights = [regression_weight(config, step) for step in (0, 19, 20, 21, 23, 500)]
    assert weights == pytest.approx([0, 0, 0.1, 0.2, 0.4, 0.4])


def test_the_learning_rate_warms_up_and_decays():
    config = tiny(learning_rate=1.0, warmup=10, steps=110, decay="cosine")
    assert learning_rate(config, 0) == pytest.approx(0.1)
    assert learning_rate(config, 9) == learning_rate(config, 10) == pytest.approx(1.0)
    assert learning_rate(config, 60) == pytest.approx(0.5)
    assert learning_rate(config, 109) < 0.01
    assert learning_rate(tiny(learning_rate=1e-4), 400_000) == 1e-4
    config = replace(config, cooldown=20)
    assert learning_rate(config, 89) == learning_rate(config, 90) == pytest.approx(1.0)
    assert learning_rate(config, 100) == pytest.approx(0.5)
    assert learning_rate(config, 109) < 0.01

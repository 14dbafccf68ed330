"""Training configuration: a frozen dataclass read from YAML; unknown keys are errors."""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lgc_ros.errors import ConfigError
from lgc_ros.estimation.two_view import LABEL_THRESHOLD
from lgc_ros.filter.network import CONTEXTS, NetworkConfig
from lgc_ros.filter.side_information import side_information_error
from lgc_ros.runtime.safe_yaml import YamlError, parse_yaml
from training.data.batches import SourceConfig
from training.losses import REGRESSIONS
from training.settings import build, read_mapping

LOSSES = ("hybrid", "classification", "essential", "direct")
DECAYS = ("constant", "cosine")
PRECISIONS = ("float32", "bfloat16")
AT_LEAST_ONE = (
    *("blocks", "width", "matches", "batch", "steps"),
    *("validate_every", "validation_pairs", "watch_pairs", "save_every"),
)


@dataclass(frozen=True)
class TrainConfig:
    """All settings of a training run.

    Attributes:
        name: name of the model.
        sources: where training pairs come from.
        validation: dumps whose mean mAP selects the best weights.
        features: kind of keypoints, recorded in the model.
        side: side information, see ``lgc_ros.filter.side_information``.
        blocks, width, context: architecture, see ``lgc_ros.filter.network.NetworkConfig``.
        init: model to start from; its side information may differ, and it may have more blocks,
            of which evenly spaced ones are taken. Empty for random weights.
        teacher: model whose logits are learned in addition to the labels; its side information
            must be the same. Empty for none.
        distill: weight of the distillation loss.
        loss: ``hybrid``, ``classification``, ``essential`` or ``direct``.
        alpha, beta: weights of classification and regression.
        margin: the logit is the balanced log odds of a match minus this margin, so that only
            matches above it have a weight. With 0, as in the paper, and one true match in ten,
            even matches that are more likely outliers have a weight.
        beta_from, beta_ramp: beta is zero before step ``beta_from`` and grows linearly to its
            full value over ``beta_ramp`` steps.
        regression: ``essential`` (the paper's distance of matrices) or ``epipolar`` (distance of
            virtual matches) of the weighted 8-point solution.
        conditioned: solve for conditioned points, as inference does, unlike the paper.
        pair_clip: maximum norm of the gradient of one pair's regression loss with respect to its
            logits; 0 for no limit. The median is 0.05, one pair in a hundred has 5 and more.
        label_threshold: a match is true below this squared symmetric epipolar distance.
        matches, batch: matches per pair, pairs per batch (over all processes).
        steps: number of batches.
        learning_rate, warmup, decay: Adam's rate; steps of linear warm-up; ``constant`` or
            ``cosine``.
        cooldown: the cosine decay takes the last so many steps and the rate is constant before; 0
            for a decay over all steps. A run whose duration is not known beforehand is stopped and
            resumed with the final ``steps``.
        precision: of activations and matrix products, ``float32`` or ``bfloat16``, which is two to
            three times faster on processors with bfloat16 arithmetic. Weights stay float32.
        average: decay of the moving average of the weights that is validated; 0 for none.
        clip: maximum norm of the gradient.
        validate_every, validation_pairs: steps between validations; maximum number of pairs per
            dump.
        watch_pairs: number of fixed training pairs, and of validation pairs, whose losses are
            logged at each validation.
        save_every: steps between resume points.
        workers: processes that prepare batches.
        seed: determines the initial weights and all batches.
    """

    name: str
    sources: tuple[SourceConfig, ...]
    validation: tuple[str, ...] = ()
    features: str = "sift"
    side: tuple[str, ...] = ()
    blocks: int = 12
    width: int = 128
    context: str = "cn"
    init: str = ""
    teacher: str = ""
    distill: float = 1.0
    loss: str = "hybrid"
    alpha: float = 1.0
    margin: float = 0.0
    beta: float = 0.1
    beta_from: int = 20_000
    beta_ramp: int = 0
    regression: str = "essential"
    conditioned: bool = False
    pair_clip: float = 0.0
    label_threshold: float = LABEL_THRESHOLD
    matches: int = 2000
    batch: int = 32
    steps: int = 500_000
    learning_rate: float = 1e-4
    warmup: int = 0
    decay: str = "constant"
    cooldown: int = 0
    precision: str = "float32"
    average: float = 0.0
    clip: float = 1e3
    validate_every: int = 2000
    validation_pairs: int = 1000
    watch_pairs: int = 128
    save_every: int = 500
    workers: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        choices = (
            ("loss", LOSSES),
            ("regression", REGRESSIONS),
            ("precision", PRECISIONS),
            ("decay", DECAYS),
            ("context", CONTEXTS),
        )
        for key, allowed in choices:
            if getattr(self, key) not in allowed:
                raise ConfigError(
                    f"{key} is {getattr(self, key)!r}, it must be one of {', '.join(allowed)}"
                )
        for key in AT_LEAST_ONE:
            if getattr(self, key) < 1:
                raise ConfigError(f"{key} is {getattr(self, key)}, it must be at least 1")
        if self.teacher and self.loss == "direct":
            raise ConfigError("a teacher provides logits, but a network with loss direct has none")
        if self.teacher and self.margin:
            raise ConfigError("the margin is that of the teacher: leave out margin")
        if problem := side_information_error(self.side):
            raise ConfigError(problem)
        if not self.sources:
            raise ConfigError("sources is empty: name at least one source of training pairs")

    @property
    def network(self) -> NetworkConfig:
        head = "direct" if self.loss == "direct" else "weights"
        return NetworkConfig(self.blocks, self.width, self.context, head, len(self.side))

    def as_dict(self) -> dict:
        return asdict(self)


def read_train_config(path: Path, overrides: dict[str, str] | None = None) -> TrainConfig:
    """Read a YAML file; ``overrides`` replaces top-level keys by values in YAML.

    Environment variables in paths are replaced, so that a configuration fits every machine.
    """
    try:
        overrides = {key: parse_yaml(value) for key, value in (overrides or {}).items()}
    except YamlError as error:
        raise ConfigError(f"a value of --set cannot be read: {error}") from error
    content = {**read_mapping(path), **overrides}
    sources = content.pop("sources", None) or ()
    if not isinstance(sources, list | tuple):
        raise ConfigError(f"{path}: sources must be a list of sources, not {sources!r}")
    built = tuple(build(SourceConfig, source, path) for source in sources)
    config = build(TrainConfig, {**content, "sources": built}, path)
    return replace(
        config,
        sources=tuple(replace(s, path=s.path and _expand(s.path, path)) for s in built),
        validation=tuple(_expand(name, path) for name in config.validation),
        init=_expand(config.init, path),
        teacher=_expand(config.teacher, path),
    )


def _expand(name: str, where: Path) -> str:
    expanded = os.path.expandvars(name)
    missing = re.search(r"\$\{?(\w+)", expanded)
    if missing:
        raise ConfigError(
            f"{where}: the environment variable {missing[1]} is not set, which {name!r} needs"
        )
    return expanded

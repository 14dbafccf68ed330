"""Batches as a pure function of seed and step.

Because batch k does not depend on what was drawn before, a run that is resumed at step k, or
split over several processes, sees exactly the same data.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transforms3d.axangles import axangle2mat

from lgc_ros.errors import ConfigError, DatasetError
from lgc_ros.estimation.two_view import LABEL_THRESHOLD
from lgc_ros.filter.side_information import network_inputs
from lgc_ros.geometry import epipolar as geometry
from training.data.dump import Dump, LabeledPair
from training.data.keypoint_frames import rotation_change
from training.data.simulation import simulate_pair

MIN_DEPTH_AFTER_TURN = 0.4
"""A virtual rotation must not turn a viewing ray further sideways than this z component."""

CROP = (0.4, 1.0)
"""Shortest and longest side of a cropped window, as shares of the image's."""

THIN_HALVINGS = 3.0
MIN_TRUE = 40
"""Neither cropping nor thinning leaves fewer true matches than this."""

HARD_SHARES = (0.02, 0.30)
"""Shares of true matches that make a pair hard: below the first there is little to learn from."""

CACHE_BYTES = 1 << 30
"""Memory for cached pairs of a dump in each process that reads from it."""

CONSENSUS_ATTRIBUTES = ("ratio", "mutual", "zoom", "roll")
"""What consensus is computed from."""

MATCH_ATTRIBUTES = (*CONSENSUS_ATTRIBUTES, "descriptor_distance")
"""What a pair holds of each match besides its coordinates."""

PairSource = Callable[[np.random.Generator], LabeledPair]


@dataclass(frozen=True)
class SourceConfig:
    """One source of training pairs.

    Attributes:
        kind: ``dump`` (prepared pairs) or ``simulation``.
        weight: how often it is drawn, relative to the other sources.
        path: dump file, for ``dump``.
        turn: apply random virtual rotations and mirroring, which keep the geometry exact.
        crop: share of the pairs of which only a random window of each image is used, as a longer
            lens would see it.
        thin: share of the pairs that lose a random part of their true matches.
        hard: how often a pair with 2 to 30 % true matches is drawn, relative to the others of its
            scene; for ``dump``.
    """

    kind: str
    weight: float = 1.0
    path: str | None = None
    turn: bool = False
    crop: float = 0.0
    thin: float = 0.0
    hard: float = 1.0


@dataclass(frozen=True, eq=False)
class Batch:
    """xs (B, N, 4 + side), labels (B, N) in {0, 1}, E_gt (B, 3, 3), all float32."""

    xs: Tensor
    labels: Tensor
    E_gt: Tensor


class Batches(torch.utils.data.Dataset):
    """``batches[step]`` is this process's share of the global batch of that step."""

    def __init__(
        self,
        sources: tuple[SourceConfig, ...],
        *,
        steps: int,
        batch: int,
        matches: int,
        side: tuple[str, ...] = (),
        label_threshold: float = LABEL_THRESHOLD,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.sources = [open_pair_source(s, matches, side, label_threshold) for s in sources]
        weights = np.array([source.weight for source in sources], dtype=np.float64)
        self.probabilities = weights / weights.sum()
        self.steps = steps
        self.items = range(rank, batch, world)
        self.matches = matches
        self.side = side
        self.label_threshold = label_threshold
        self.seed = seed

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> Batch:
        pairs = [self._pair(np.random.default_rng([self.seed, step, i])) for i in self.items]
        xs = [network_inputs(p.xs[:, :2], p.xs[:, 2:], p, self.side) for p in pairs]
        labels = [p.ys < self.label_threshold for p in pairs]
        E_gt = [geometry.essential_from_pose(p.R_10, p.t_10) for p in pairs]
        return Batch(
            *(torch.as_tensor(np.stack(v), dtype=torch.float32) for v in (xs, labels, E_gt))
        )

    def _pair(self, rng: np.random.Generator) -> LabeledPair:
        source = self.sources[rng.choice(len(self.sources), p=self.probabilities)]
        return choose_matches(rng, source(rng), self.matches)


def open_pair_source(
    config: SourceConfig,
    matches: int,
    side: tuple[str, ...] = (),
    label_threshold: float = LABEL_THRESHOLD,
) -> PairSource:
    """The function that draws one pair, with the named side information, from a source."""
    if config.kind == "simulation":
        return _Varied(config, partial(simulate_pair, matches=matches), label_threshold)
    if config.kind == "dump":
        if config.path is None:
            raise ConfigError("a source of kind 'dump' needs a path")
        pairs = _DumpPairs(Path(config.path), side, config.hard, label_threshold)
        return _Varied(config, pairs, label_threshold)
    raise ConfigError(
        f"unknown source kind {config.kind!r}: use simulation, or dump for prepared pairs "
        "(photographs and rendered ones alike)"
    )


@dataclass(frozen=True)
class _Varied:
    """Pairs of a source with the random variations of its configuration."""

    config: SourceConfig
    source: PairSource
    label_threshold: float

    def __call__(self, rng: np.random.Generator) -> LabeledPair:
        pair, config = self.source(rng), self.config
        if config.crop and rng.random() < config.crop:
            pair = crop_pair(rng, pair, self.label_threshold)
        if config.thin and rng.random() < config.thin:
            pair = thin_pair(rng, pair, self.label_threshold)
        return turn_pair(rng, pair) if config.turn else pair


class _DumpPairs:
    def __init__(
        self, path: Path, side: tuple[str, ...], hard: float, label_threshold: float
    ) -> None:
        self.dump = open_dump(path, side)
        weights = scene_balance(path, len(self.dump))
        if hard != 1.0:
            weights = weights * hard_pair_weights(self.dump, hard, label_threshold)
            self.dump.close()
        self.cumulative = np.cumsum(weights)
        self.cache: dict[int, LabeledPair] = {}
        self.cached_bytes = 0

    def __call__(self, rng: np.random.Generator) -> LabeledPair:
        drawn = rng.random() * self.cumulative[-1]
        return self._read(int(np.searchsorted(self.cumulative, drawn, side="right")))

    def _read(self, index: int) -> LabeledPair:
        """A pair, cached after the first read: opening its datasets takes 5 ms."""
        pair = self.cache.get(index)
        if pair is None:
            pair = self.dump[index]
            size = sum(value.nbytes for value in vars(pair).values() if value is not None)
            if self.cached_bytes + size <= CACHE_BYTES:
                self.cache[index] = pair
                self.cached_bytes += size
        return pair


def open_dump(path: Path, side: tuple[str, ...] = ()) -> Dump:
    """A dump that holds pairs, and the side information asked for."""
    dump = Dump(path)
    if len(dump) == 0:
        raise DatasetError(f"{path} holds no pairs: prepare it with a lower visibility limit")
    needed = dict.fromkeys(name for name in side if name != "consensus")
    if "consensus" in side:
        needed |= dict.fromkeys(CONSENSUS_ATTRIBUTES)
    missing = [name for name in needed if getattr(dump[0], name) is None]
    if missing:
        raise DatasetError(
            f"{path} holds no {' and '.join(missing)} for its matches: prepare the data with "
            "`python -m training prepare`, or train without this side information"
        )
    dump.close()  # each process that reads from it opens the file itself
    return dump


def scene_balance(path: Path, pairs: int) -> np.ndarray:
    """Sampling weight of each pair of a dump: scenes count with the square root of their size.

    Otherwise video-like scenes, with far more pairs than photo collections, would dominate. The
    manifest next to the dump names the scenes; without one all pairs have equal weight.
    """
    manifest = path.with_suffix(".json")
    if not manifest.is_file():
        return np.ones(pairs)
    scenes = json.loads(manifest.read_text(encoding="utf-8")).get("pair_sequence", [])
    if len(scenes) != pairs:
        raise DatasetError(f"{manifest} does not belong to {path.name}: prepare the dump again")
    _, scene, size = np.unique(scenes, return_inverse=True, return_counts=True)
    return 1 / np.sqrt(size[scene])


def hard_pair_weights(dump: Dump, weight: float, label_threshold: float) -> np.ndarray:
    """``weight`` for each pair of a dump with 2 to 30 % true matches, 1 for all others."""
    share = np.array([(ys < label_threshold).mean() for ys in dump.distances()])
    hard = (share >= HARD_SHARES[0]) & (share <= HARD_SHARES[1])
    return np.where(hard, weight, 1.0)


def choose_matches(rng: np.random.Generator, pair: LabeledPair, count: int) -> LabeledPair:
    """A random selection of ``count`` matches; some repeat if the pair has too few."""
    total = len(pair.xs)
    if total >= count:
        chosen = rng.choice(total, count, replace=False)
    else:
        chosen = np.concatenate([np.arange(total), rng.integers(0, total, count - total)])
    return _matches_of(pair, chosen)


def _matches_of(pair: LabeledPair, chosen: np.ndarray) -> LabeledPair:
    """The pair reduced to the matches selected by a mask or by indices."""
    known = {name: getattr(pair, name) for name in MATCH_ATTRIBUTES}
    side = {name: None if value is None else value[chosen] for name, value in known.items()}
    return replace(pair, xs=pair.xs[chosen], ys=pair.ys[chosen], **side)


def crop_pair(rng: np.random.Generator, pair: LabeledPair, label_threshold: float) -> LabeledPair:
    """The matches inside a random window of each image; the whole pair if too few are true.

    Both windows contain the same true match, so that they show the same part of the scene.
    """
    true = np.flatnonzero(pair.ys < label_threshold)
    if len(true) < MIN_TRUE:
        return pair
    center = pair.xs[rng.choice(true)]
    inside = np.ones(len(pair.xs), bool)
    for columns in (slice(0, 2), slice(2, 4)):
        x = pair.xs[:, columns]
        half = rng.uniform(*CROP) * np.ptp(x, axis=0) / 2
        # Anywhere around the center, not beyond the border of the image.
        middle = center[columns] + rng.uniform(-1, 1, 2) * half
        middle = np.clip(middle, x.min(axis=0) + half, x.max(axis=0) - half)
        inside &= (np.abs(x - middle) <= half).all(axis=1)
    cropped = _matches_of(pair, inside)
    return cropped if (cropped.ys < label_threshold).sum() >= MIN_TRUE else pair


def thin_pair(rng: np.random.Generator, pair: LabeledPair, label_threshold: float) -> LabeledPair:
    """A harder pair: all outliers, but only a random part of the true matches.

    The part is log-uniform between one eighth and all, but at least ``MIN_TRUE`` matches.
    """
    true = np.flatnonzero(pair.ys < label_threshold)
    count = max(int(len(true) * 2.0 ** -rng.uniform(0, THIN_HALVINGS)), MIN_TRUE)
    if count >= len(true):
        return pair
    kept = pair.ys >= label_threshold
    kept[rng.choice(true, count, replace=False)] = True
    return _matches_of(pair, kept)


def turn_pair(rng: np.random.Generator, pair: LabeledPair) -> LabeledPair:
    """The same matches seen by virtually rotated, and perhaps mirrored, cameras.

    Rotating a calibrated camera about its center is a homography that moves matches exactly, so
    the new pairs are valid. Epipolar distances are computed again; sizes and angles of keypoints
    change as the homography does at their position.
    """
    x0, x1 = pair.xs[:, :2].astype(np.float64), pair.xs[:, 2:].astype(np.float64)
    R_10, t_10 = pair.R_10.astype(np.float64), pair.t_10.astype(np.float64)
    zoom, roll = pair.zoom, pair.roll
    if rng.random() < 0.5:
        mirror = np.diag([-1.0, 1.0, 1.0])
        x0, x1 = x0 * [-1, 1], x1 * [-1, 1]
        R_10, t_10 = mirror @ R_10 @ mirror, mirror @ t_10
        roll = None if roll is None else -roll
    turn0, turn1 = _turn(rng, x0), _turn(rng, x1)
    if zoom is not None and roll is not None:
        (zoom0, roll0), (zoom1, roll1) = rotation_change(turn0, x0), rotation_change(turn1, x1)
        zoom = (zoom + zoom1 - zoom0).astype(np.float32)
        roll = (roll + roll1 - roll0).astype(np.float32)
    x0, x1 = _rotated(turn0, x0), _rotated(turn1, x1)
    R_10, t_10 = turn1 @ R_10 @ turn0.T, turn1 @ t_10
    E = geometry.essential_from_pose(R_10, t_10)
    return replace(
        pair,
        xs=np.hstack([x0, x1]).astype(np.float32),
        ys=geometry.symmetric_epipolar_distance(E, x0, x1).astype(np.float32),
        R_10=R_10.astype(np.float32),
        t_10=t_10.astype(np.float32),
        zoom=zoom,
        roll=roll,
    )


def _turn(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """A random tilt and roll of the camera that keeps its points well in front of it."""
    roll = rng.normal(0, 10) if rng.random() < 0.8 else rng.uniform(-180, 180)
    tilt = np.radians(rng.normal(0, 12))
    direction = rng.uniform(0, 2 * np.pi)
    axis = [np.cos(direction), np.sin(direction), 0.0]
    while True:
        R = axangle2mat([0, 0, 1], np.radians(roll)) @ axangle2mat(axis, tilt)
        turned = geometry.homogeneous(x) @ R.T
        length = np.linalg.norm(turned, axis=1)
        if len(x) == 0 or (turned[:, 2] > MIN_DEPTH_AFTER_TURN * length).all():
            return R
        if abs(tilt) < 1e-3:
            return np.eye(3)
        tilt /= 2


def _rotated(R: np.ndarray, x: np.ndarray) -> np.ndarray:
    turned = geometry.homogeneous(x) @ R.T
    return turned[:, :2] / turned[:, 2:]

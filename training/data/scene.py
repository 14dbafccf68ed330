"""The common result of all data readers: images with cameras and poses, and pairs of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lgc_ros.errors import ConfigError, DatasetError
from lgc_ros.geometry import epipolar as geometry
from lgc_ros.geometry.camera import Camera

SPLITS = ("train", "val", "test")
MIN_BASELINE = 1e-5
"""Pairs with a shorter baseline have no essential matrix (length unit of the poses)."""


@dataclass(frozen=True, eq=False)
class PosedImage:
    """One image with its camera and pose `X_cam = R_cw @ X_world + t_cw`.

    `load` reads the pixels only when called, so that scenes of any size are cheap to describe;
    it can be pickled, so that another process may call it. `path` is None where the image is
    not a file of its own (a message in a bag).
    """

    name: str
    camera: Camera
    R_cw: np.ndarray
    t_cw: np.ndarray
    load: Callable[[], np.ndarray]
    path: Path | None = None


@dataclass(frozen=True, eq=False)
class PosedScene:
    """Images of one place and the ordered pairs (M, 2) of image indices that overlap."""

    name: str
    images: tuple[PosedImage, ...]
    pairs: np.ndarray


def relative_pose(image0: PosedImage, image1: PosedImage) -> tuple[np.ndarray, np.ndarray]:
    """`R_10, t_10` with `X1 = R_10 @ X0 + t_10`, in the length unit of the poses."""
    return geometry.relative_pose(image0.R_cw, image0.t_cw, image1.R_cw, image1.t_cw)


def pairs_above(visibility: np.ndarray, threshold: float) -> np.ndarray:
    """Ordered pairs (i, j), i != j, whose `visibility[i, j]` is above the threshold."""
    visible = np.asarray(visibility) > threshold
    return np.argwhere(visible & ~np.eye(len(visible), dtype=bool))


def pairs_by_gap(frames: np.ndarray, min_gap: int, max_gap: int) -> np.ndarray:
    """Pairs, in both orders, of images whose frame numbers are min_gap..max_gap apart."""
    if not 1 <= min_gap <= max_gap:
        raise ConfigError(f"frame gaps {min_gap}..{max_gap} are empty: use 1 <= min <= max")
    gap = np.abs(frames[:, None] - frames[None, :])
    return np.argwhere((gap >= min_gap) & (gap <= max_gap))


def restrict(scene: PosedScene, keep: np.ndarray) -> PosedScene:
    """The scene with only the images `keep` (indices, in that order) and the pairs among them."""
    new_index = np.full(len(scene.images), -1)
    new_index[keep] = np.arange(len(keep))
    pairs = new_index[scene.pairs.reshape(-1, 2)]
    images = tuple(scene.images[index] for index in keep)
    return replace(scene, images=images, pairs=pairs[(pairs >= 0).all(axis=1)])


def split_scene(
    scene: PosedScene, split: str, seed: int, ratio: tuple[float, float, float] = (60, 20, 20)
) -> PosedScene:
    """The part of the scene for `split`: disjoint random subsets of its images (section 4.1).

    The shuffle depends only on the seed and the number of images.
    """
    if split not in SPLITS:
        raise ConfigError(f"unknown split '{split}': use one of {', '.join(SPLITS)}")
    count = len(scene.images)
    ends = np.rint(np.cumsum((0, *ratio)) / sum(ratio) * count).astype(int)
    order = np.random.default_rng(seed).permutation(count)
    part = SPLITS.index(split)
    return restrict(scene, np.sort(order[ends[part] : ends[part + 1]]))


def some_images(scene: PosedScene, max_images: int | None, seed: int) -> PosedScene:
    """The scene with at most `max_images` of its images, chosen at random."""
    if max_images is None or len(scene.images) <= max_images:
        return scene
    chosen = np.random.default_rng(seed).choice(len(scene.images), max_images, replace=False)
    return restrict(scene, np.sort(chosen))


def usable_pairs(scene: PosedScene, max_pairs: int | None = None, seed: int = 0) -> np.ndarray:
    """Pairs with a baseline, at most `max_pairs` of them chosen at random, in scene order."""
    pairs = scene.pairs.reshape(-1, 2)
    if len(pairs) and (pairs.min() < 0 or pairs.max() >= len(scene.images)):
        raise DatasetError(
            f"{scene.name}: a pair names image {int(pairs.max())} of {len(scene.images)}; "
            "give the pair list that belongs to these images"
        )
    centers = np.array([-image.R_cw.T @ image.t_cw for image in scene.images]).reshape(-1, 3)
    baseline = np.linalg.norm(centers[pairs[:, 0]] - centers[pairs[:, 1]], axis=1)
    pairs = pairs[baseline > MIN_BASELINE]
    if max_pairs is not None and len(pairs) > max_pairs:
        chosen = np.random.default_rng(seed).choice(len(pairs), max_pairs, replace=False)
        pairs = pairs[np.sort(chosen)]
    return pairs

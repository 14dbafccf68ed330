"""Image pairs with ground truth, in SuperGlue's text format.

One line per pair: ``name0 name1 rot0 rot1 K0(9) K1(9) T_0to1(16)``, matrices row by row.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lgc_ros.errors import DatasetError
from lgc_ros.features.base import Features

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Pair:
    """Two images with known intrinsics and relative pose.

    ``turns0`` and ``turns1`` are the counter-clockwise quarter turns that make an image upright.
    K and the pose refer to the image as stored.
    """

    line: int
    name0: str
    name1: str
    turns0: int
    turns1: int
    K0: np.ndarray
    K1: np.ndarray
    R_10: np.ndarray
    t_10: np.ndarray


def read_pairs(path: Path, skip_bad: bool = False) -> list[Pair]:
    """Read a list of pairs, without empty lines and comments (#).

    A malformed line is an error that names its number, or a warning with ``skip_bad``.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read ({error}): it must list image pairs") from error
    pairs = []
    for number, text in enumerate(lines, start=1):
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        try:
            pairs.append(_parse_pair(number, text.split()))
        except ValueError as error:
            message = f"{path}, line {number}: {error}"
            if not skip_bad:
                raise DatasetError(f"{message}. Use --skip-bad to skip such lines") from error
            log.warning("%s; skipped", message)
    if not pairs:
        raise DatasetError(f"{path} has no valid pair")
    return pairs


def _parse_pair(number: int, fields: list[str]) -> Pair:
    expected = 2 + 2 + 9 + 9 + 16
    if len(fields) != expected:
        raise ValueError(f"{len(fields)} values instead of {expected} (two names, 36 numbers)")
    try:
        values = np.array([float(value) for value in fields[2:]])
    except ValueError as error:
        raise ValueError(f"not a number ({error})") from error
    if not np.isfinite(values).all():
        raise ValueError("a number is NaN or infinite")
    K0, K1 = values[2:11].reshape(3, 3), values[11:20].reshape(3, 3)
    if min(K0[0, 0], K0[1, 1], K1[0, 0], K1[1, 1]) <= 0:
        raise ValueError("a focal length is not positive")
    T_10 = values[20:].reshape(4, 4)
    R_10, t_10 = T_10[:3, :3], T_10[:3, 3]
    if np.abs(R_10 @ R_10.T - np.eye(3)).max() > 1e-3 or np.linalg.det(R_10) < 0:
        raise ValueError("the pose has no valid rotation matrix")
    if np.linalg.norm(t_10) == 0:
        raise ValueError("the translation is zero, so there is no essential matrix")
    turns0, turns1 = int(values[0]) % 4, int(values[1]) % 4
    return Pair(number, fields[0], fields[1], turns0, turns1, K0, K1, R_10, t_10)


def format_pair(pair: Pair) -> str:
    """The line of a pair, which :func:`read_pairs` reads back exactly."""
    T_10 = np.eye(4)
    T_10[:3, :3], T_10[:3, 3] = pair.R_10, pair.t_10
    numbers = np.concatenate([pair.K0.ravel(), pair.K1.ravel(), T_10.ravel()])
    turns = f"{pair.turns0} {pair.turns1}"
    return f"{pair.name0} {pair.name1} {turns} {' '.join(repr(float(v)) for v in numbers)}"


def turn_back(features: Features, turns: int, size: tuple[int, int]) -> Features:
    """Map features of ``np.rot90(image, turns)`` to the pixels of the image itself.

    Args:
        size: width and height of the image as stored.
    """
    width, height = size
    x, y = features.points.T
    if turns == 1:
        x, y = width - 1 - y, x
    elif turns == 2:
        x, y = width - 1 - x, height - 1 - y
    elif turns == 3:
        x, y = y, height - 1 - x
    angles = (features.angles + 90 * turns) % 360
    return replace(features, points=np.column_stack([x, y]), angles=angles)


def read_pose(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """R_10, t_10 from a text file with a 3x4 or 4x4 matrix."""
    try:
        T_10 = np.loadtxt(path)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path} cannot be read as a matrix ({error})") from error
    if T_10.shape not in ((3, 4), (4, 4)) or not np.isfinite(T_10).all():
        raise DatasetError(f"{path} must hold a finite 3x4 or 4x4 matrix, got shape {T_10.shape}")
    return T_10[:3, :3], T_10[:3, 3]

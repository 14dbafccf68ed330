"""Keypoints from the raw heads of a network, as XFeat and SuperPoint have them.

A head is a map with one column of numbers per cell. The logits of a cell of 8x8 pixels say which
of its pixels is a keypoint, if any; some exports turn them into one score per pixel. Descriptors
and reliability are interpolated between cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import cv2
import numpy as np

from lgc_ros.runtime.jit import compiled

CELL_PX = 8
# Logits of a cell: one per pixel, row by row, and one for "no keypoint in this cell".
LOGITS = CELL_PX**2 + 1
# A keypoint is the most probable one within this window, and more probable than chance: without
# texture, each of the 65 logits has the same share of 0.015.
WINDOW_PX = 5
MIN_PROBABILITY = 0.02
# Second difference of log probabilities below which a maximum has no peak to refine.
MIN_BEND = 1e-6


@dataclass(frozen=True, eq=False)
class Heads:
    """Outputs of a network for an image of H rows and W columns."""

    probability: np.ndarray  # (H, W) float32, of each pixel to be a keypoint, or another score
    descriptors: np.ndarray  # (D, h, w) float32, in cells of H/h x W/w pixels
    reliability: np.ndarray | None  # (H/8, W/8) float32 in [0, 1], if the network has it


def find_heads(outputs: Mapping[str, np.ndarray], input_size: tuple[int, ...]) -> Heads | None:
    """The heads among the outputs of a network, recognized by their shapes; None if it has none.

    Names are of no help: exporters make them up. Keypoint logits are (1, 65, H/8, W/8), or scores
    (1, H, W) or (1, 1, H, W); reliability is (1, 1, H/8, W/8); descriptors have another number of
    channels and square cells of any size.

    Args:
        outputs: outputs by name.
        input_size: width and height of the image that the network was given.
    """
    by_role: dict[str, np.ndarray] = {}
    for value in outputs.values():
        role = _role(value.shape, (input_size[1], input_size[0]))
        if role is None or role in by_role:
            return None
        by_role[role] = value.astype(np.float32, copy=False)
    if "descriptors" not in by_role or len({"logits", "scores"} & by_role.keys()) != 1:
        return None
    if "logits" in by_role:
        probability = keypoint_probability(by_role["logits"][0])
    else:
        probability = by_role["scores"].reshape(input_size[::-1])
    reliability = by_role.get("reliability")
    return Heads(
        probability,
        by_role["descriptors"][0],
        None if reliability is None else reliability[0, 0],
    )


def _role(shape: tuple[int, ...], size: tuple[int, int]) -> str | None:
    """What an output of this shape is for an input of `size`, rows and columns."""
    if shape in ((1, *size), (1, 1, *size)):
        return "scores"
    if len(shape) != 4 or shape[0] != 1 or 0 in shape:
        return None
    if shape[2:] == (size[0] // CELL_PX, size[1] // CELL_PX) and shape[1] in (1, LOGITS):
        return "logits" if shape[1] == LOGITS else "reliability"
    cell_px = size[0] // shape[2]
    whole = cell_px > 0 and (cell_px * shape[2], cell_px * shape[3]) == size
    return "descriptors" if whole and shape[1] > 1 else None


def detect(heads: Heads) -> tuple[np.ndarray, np.ndarray]:
    """Keypoints (N, 2) as x and y in pixels of the network's input, and their scores (N,).

    The score is the probability of a keypoint at this pixel times the reliability there.
    """
    probability = heads.probability
    highest = cv2.dilate(probability, np.ones((WINDOW_PX, WINDOW_PX), np.uint8))
    row, column = np.nonzero((probability == highest) & (probability > MIN_PROBABILITY))
    scores = probability[row, column]
    if heads.reliability is not None:
        scores = scores * _at_pixels(heads.reliability, probability.shape)[row, column]
    return _refined(probability, row, column), scores


def keypoint_probability(logits: np.ndarray) -> np.ndarray:
    """(8h, 8w) probability of each pixel to be the keypoint of its cell."""
    exponential = np.exp(logits - logits.max(axis=0))
    share = exponential[:-1] / exponential.sum(axis=0)
    height, width = logits.shape[1:]
    by_cell = share.reshape(CELL_PX, CELL_PX, height, width).transpose(2, 0, 3, 1)
    return by_cell.reshape(CELL_PX * height, CELL_PX * width)


def describe(heads: Heads, points: np.ndarray) -> np.ndarray:
    """(N, D) descriptors of unit length at points (N, 2) in pixels of the network's input."""
    columns = heads.descriptors.transpose(1, 2, 0)
    with np.errstate(over="ignore"):  # of a damaged network; the descriptor is then zero
        length = np.linalg.norm(columns, axis=2, keepdims=True)
    unit = columns / np.maximum(length, np.finfo(np.float32).tiny)
    cell_px = heads.probability.shape[1] / columns.shape[1]
    cells = (points + 0.5) / cell_px - 0.5
    return _interpolated(np.ascontiguousarray(unit), cells.astype(np.float64))


def _at_pixels(by_cell: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A map of cells, interpolated at every pixel."""
    return cv2.resize(by_cell, shape[::-1], interpolation=cv2.INTER_LINEAR)


def _refined(probability: np.ndarray, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Peaks of parabolas through the logarithms of the probabilities around each maximum."""
    height, width = probability.shape
    y, x = np.clip(row, 1, height - 2), np.clip(column, 1, width - 2)
    tiny = np.finfo(np.float32).tiny

    def log_at(down: int, right: int) -> np.ndarray:
        return np.log(np.maximum(probability[y + down, x + right], tiny))

    center = log_at(0, 0)
    offsets = []
    for before, after in ((log_at(0, -1), log_at(0, 1)), (log_at(-1, 0), log_at(1, 0))):
        bend = np.minimum(before + after - 2 * center, -MIN_BEND)
        offsets.append(np.clip((before - after) / (2 * bend), -0.5, 0.5))
    inside = (y == row) & (x == column)
    points = np.stack([column, row], axis=1).astype(np.float32)
    return points + np.where(inside[:, None], np.stack(offsets, axis=1), 0).astype(np.float32)


@compiled
def _interpolated(columns, at):
    """(N, C) rows of unit length: bicubic interpolation of (h, w, C) at (N, 2), x and y.

    The coefficient -0.75 is that of torch, with which XFeat was trained. Beyond the border the
    nearest cell counts.
    """
    height, width, channels = columns.shape
    rows = np.zeros((len(at), channels), np.float32)
    for i in range(len(at)):
        left, top = int(np.floor(at[i, 0])) - 1, int(np.floor(at[i, 1])) - 1
        for down in range(4):
            weight_y = _cubic_weight(at[i, 1] - (top + down))
            y = min(max(top + down, 0), height - 1)
            for right in range(4):
                weight = np.float32(weight_y * _cubic_weight(at[i, 0] - (left + right)))
                x = min(max(left + right, 0), width - 1)
                for c in range(channels):
                    rows[i, c] += weight * columns[y, x, c]
        square = np.float32(0)
        for c in range(channels):
            square += rows[i, c] * rows[i, c]
        scale = np.float32(1 / np.sqrt(square)) if square > 0 else np.float32(0)
        for c in range(channels):
            rows[i, c] *= scale
    return rows


@compiled
def _cubic_weight(distance):
    """Weight of a sample at this distance in bicubic interpolation."""
    d, a = abs(distance), -0.75
    if d <= 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a if d < 2 else 0.0

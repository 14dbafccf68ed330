"""Random generator, noise and colors shared by all painters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np

from lgc_ros.synthetic.renderer import ALIGN

Painter = Callable[[float, float], np.ndarray]
"""Width and height in meters to BGR float32 albedo in [0, 1]."""

# BGR colors of rooms and streets: mostly earth tones, greens and blues.
PIGMENTS = np.array(
    [
        (0.72, 0.88, 1.0),  # cream
        (0.35, 0.55, 1.0),  # terracotta
        (0.3, 0.72, 1.0),  # ochre
        (0.25, 0.3, 1.0),  # brick red
        (0.72, 1.0, 0.82),  # sage
        (0.55, 0.85, 0.45),  # green
        (1.0, 0.85, 0.45),  # teal
        (1.0, 0.62, 0.35),  # blue
        (1.0, 0.9, 0.78),  # ice
        (0.8, 0.78, 1.0),  # rose
        (1.0, 0.98, 0.95),  # gray
        (0.85, 0.95, 1.0),  # stone
    ],
    np.float32,
)


@dataclass(frozen=True, eq=False)
class Brush:
    """A random generator, a sheet of fractal noise to cut from, and texels per meter."""

    rng: np.random.Generator
    sheet: np.ndarray
    density: float = 256.0

    @classmethod
    def make(cls, rng: np.random.Generator, detail: float = 1.0, size: int = 2048) -> Brush:
        """Create a brush; its noise has octaves of equal contrast from 1/4 sheet to 1 texel."""
        sheet = np.zeros((size, size), np.float32)
        cells = 4
        while cells <= size:
            octave = rng.standard_normal((cells, cells), np.float32)
            sheet += cv2.resize(octave, (size, size), interpolation=cv2.INTER_CUBIC)
            cells *= 2
        return cls(rng, sheet / sheet.std(), detail * cls.density)

    def finer(self, factor: float) -> Brush:
        """The same brush with `factor` times as many texels per meter."""
        return Brush(self.rng, self.sheet, self.density * factor)

    def shape(self, width: float, height: float) -> tuple[int, int]:
        """Rows and columns of a texture of this size in meters."""
        return tuple(max(round(m * self.density / ALIGN), 1) * ALIGN for m in (height, width))

    def noise(self, shape: tuple[int, int], stretch=(1.0, 1.0)) -> np.ndarray:
        """Fractal noise with unit standard deviation, stretched along (rows, columns)."""
        size = len(self.sheet)
        need = [min(max(int(n / s), 2), size) for n, s in zip(shape, stretch, strict=True)]
        y, x = (self.rng.integers(0, size - n + 1) for n in need)
        cut = self.sheet[y : y + need[0], x : x + need[1]]
        if self.rng.random() < 0.5:
            cut = cut[::-1, ::-1]
        return cv2.resize(cut, shape[::-1], interpolation=cv2.INTER_LINEAR)

    def color(self, low: float = 0.2, high: float = 0.9, saturation: float = 0.5) -> np.ndarray:
        """A random pigment with brightness in [low, high] and bounded saturation."""
        value, amount = self.rng.uniform(low, high), self.rng.uniform(0.5, 1) * saturation
        pigment = PIGMENTS[self.rng.integers(len(PIGMENTS))]
        return (value * (1 - amount + amount * pigment)).astype(np.float32)

    def vary(self, color: np.ndarray, amount: float) -> np.ndarray:
        """A random color close to the given one."""
        change = 1 + amount * (self.rng.standard_normal() + 0.1 * self.rng.standard_normal(3))
        return np.clip(color * change, 0.02, 1).astype(np.float32)


def one_of(rng: np.random.Generator, *choices):
    """Pick one of the choices with equal probability."""
    return choices[rng.integers(len(choices))]


def tint(color: np.ndarray, tone: np.ndarray) -> np.ndarray:
    """Color (3,) or (H, W, 3) times a tone (H, W), clipped to [0, 1]."""
    return np.clip(color * tone[..., None], 0, 1)

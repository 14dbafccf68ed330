"""Procedural textures: wood, bricks, tiles, cloth, paper; all drawn, no image files.

Every painter takes a `Brush` and the size of a surface in metres and returns BGR float32 albedo in
[0, 1]. Patterns that repeat (bricks, tiles, wallpaper, windows) do so on purpose: they make wrong
matches that agree with one another, as real buildings do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np

from lgc_ros.synthetic.renderer import ALIGN

Painter = Callable[[float, float], np.ndarray]

# fmt: off
WORDS = (
    "ATLAS", "BAKERY", "CINEMA", "DELTA", "EPOCH", "FRAGILE", "GALLERY", "HARBOUR", "INDEX",
    "JAZZ", "KEPLER", "LEMON", "MUSEUM", "NORTH", "ORBIT", "PAPER", "QUARTZ", "RIVER", "STATION",
    "TEA", "URBAN", "VISTA", "WINTER", "ZENITH",
)
# fmt: on
# BGR, as one finds them in rooms and streets: earths, greens and blues, few loud ones.
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
        (1.0, 0.98, 0.95),  # grey
        (0.85, 0.95, 1.0),  # stone
    ],
    np.float32,
)
FONTS = (cv2.FONT_HERSHEY_DUPLEX, cv2.FONT_HERSHEY_TRIPLEX, cv2.FONT_HERSHEY_COMPLEX)


@dataclass(frozen=True, eq=False)
class Brush:
    """A random generator, a sheet of fractal noise to cut from, and texels per metre."""

    rng: np.random.Generator
    sheet: np.ndarray
    density: float = 256.0

    @classmethod
    def make(cls, rng: np.random.Generator, detail: float = 1.0, size: int = 2048) -> Brush:
        """A brush with its own noise: octaves of equal contrast from 1/4 sheet to 1 texel."""
        sheet = np.zeros((size, size), np.float32)
        cells = 4
        while cells <= size:
            octave = rng.standard_normal((cells, cells), np.float32)
            sheet += cv2.resize(octave, (size, size), interpolation=cv2.INTER_CUBIC)
            cells *= 2
        return cls(rng, sheet / sheet.std(), detail * cls.density)

    def finer(self, factor: float) -> Brush:
        """The same brush with more texels per metre."""
        return Brush(self.rng, self.sheet, self.density * factor)

    def shape(self, width: float, height: float) -> tuple[int, int]:
        """Rows and columns of a texture of this size in metres."""
        return tuple(max(round(m * self.density / ALIGN), 1) * ALIGN for m in (height, width))

    def noise(self, shape: tuple[int, int], stretch=(1.0, 1.0)) -> np.ndarray:
        """Fractal noise with unit deviation; `stretch` enlarges it along (rows, columns)."""
        size = len(self.sheet)
        need = [min(max(int(n / s), 2), size) for n, s in zip(shape, stretch, strict=True)]
        y, x = (self.rng.integers(0, size - n + 1) for n in need)
        cut = self.sheet[y : y + need[0], x : x + need[1]]
        if self.rng.random() < 0.5:
            cut = cut[::-1, ::-1]
        return cv2.resize(cut, shape[::-1], interpolation=cv2.INTER_LINEAR)

    def colour(self, low: float = 0.2, high: float = 0.9, saturation: float = 0.5) -> np.ndarray:
        """A random pigment of a value in [low, high]; `saturation` bounds how far from grey."""
        value, amount = self.rng.uniform(low, high), self.rng.uniform(0.5, 1) * saturation
        pigment = PIGMENTS[self.rng.integers(len(PIGMENTS))]
        return (value * (1 - amount + amount * pigment)).astype(np.float32)

    def vary(self, colour: np.ndarray, amount: float) -> np.ndarray:
        """A colour near the given one."""
        change = 1 + amount * (self.rng.standard_normal() + 0.1 * self.rng.standard_normal(3))
        return np.clip(colour * change, 0.02, 1).astype(np.float32)


def one_of(rng: np.random.Generator, *choices):
    """One of the choices, each as likely as the others."""
    return choices[rng.integers(len(choices))]


def tint(colour: np.ndarray, tone: np.ndarray) -> np.ndarray:
    """Colour (3,) or (H, W, 3) times a tone (H, W), clipped to [0, 1]."""
    return np.clip(colour * tone[..., None], 0, 1)


def masonry(brush: Brush, width, height, cell, colours, gap, gap_colour, shift=0.0, wear=0.06):
    """Rectangular cells in rows (bricks, tiles, planks), each with a colour of its own.

    Every second row is shifted by `shift` of a cell, or every row at random if it is None. Returns
    the albedo and the number of the cell at every texel, which alternates like a chessboard.
    """
    rng, (rows, columns) = brush.rng, brush.shape(width, height)
    cell_w, cell_h = (c * brush.density for c in cell)
    y = np.arange(rows, dtype=np.float32)[:, None] + rng.uniform(0, cell_h)
    row = np.floor(y / cell_h).astype(np.int32)
    starts = rng.uniform(0, cell_w, row.max() + 1) if shift is None else None
    offset = (row % 2) * shift * cell_w if starts is None else starts[row]
    x = np.arange(columns, dtype=np.float32)[None] + offset.astype(np.float32)
    column = np.floor(x / cell_w).astype(np.int32)
    number = row * 13 + column
    mixed = np.array(colours)[rng.integers(len(colours), size=499)]
    mixed *= 1 + 0.09 * rng.standard_normal((499, 1), np.float32)
    half = 0.5 * gap * brush.density
    edge = np.minimum((x - column * cell_w), (column + 1) * cell_w - x)
    edge = np.minimum(edge, np.minimum(y - row * cell_h, (row + 1) * cell_h - y)) - half
    inside = np.clip(edge + 0.5, 0, 1)[..., None]
    bevel = 0.85 + 0.15 * np.clip(edge / (4 * half + 2), 0, 1)
    tone = (1 + wear * brush.noise((rows, columns))) * bevel
    gap_colour = np.float32(gap_colour)
    return tint(gap_colour + (mixed[(number * 37) % 499] - gap_colour) * inside, tone), number


def bricks(brush: Brush) -> Painter:
    """A running bond of bricks in one of a few clays."""
    clay = brush.vary(
        np.array(
            [(0.24, 0.31, 0.55), (0.66, 0.72, 0.75), (0.36, 0.47, 0.66)][brush.rng.integers(3)],
            np.float32,
        ),
        0.08,
    )
    mortar = np.float32(brush.rng.uniform(0.45, 0.75))
    scale = brush.rng.uniform(0.9, 1.4)
    colours = [brush.vary(clay, 0.12) for _ in range(5)]
    cell = (0.24 * scale, 0.075 * scale)
    return lambda w, h: masonry(brush, w, h, cell, colours, 0.012, mortar, 0.5, 0.11)[0]


def tiles(brush: Brush) -> Painter:
    """Square tiles, plain or chequered, with worn glaze."""
    first = brush.colour(0.55, 0.9, 0.4)
    second = brush.colour(0.15, 0.6, 0.6) if brush.rng.random() < 0.6 else first
    side, speckle = brush.rng.uniform(0.18, 0.4), brush.rng.uniform(0.04, 0.08)

    def paint(width, height):
        base, number = masonry(brush, width, height, (side, side), [first], 0.008, 0.4, 0, speckle)
        other = (number % 2 == 1)[..., None]
        chips = 1 - 0.25 * (brush.noise(base.shape[:2]) > 2.0).astype(np.float32)
        return tint(np.where(other, base * (second / first), base), chips)

    return paint


def wood(brush: Brush, tone: np.ndarray | None = None) -> Painter:
    """Planed wood: grain along the longer side."""
    base = brush.vary(_timber(brush), 0.1) if tone is None else tone

    def paint(width, height):
        rows, columns = brush.shape(width, height)
        along = (1, 14) if columns >= rows else (14, 1)
        grain = brush.noise((rows, columns), along)
        rings = np.sin(5 * brush.noise((rows, columns), tuple(4.0 * a for a in along)))
        return tint(base, 1 + 0.10 * grain + 0.07 * rings)

    return paint


def _timber(brush: Brush) -> np.ndarray:
    kinds = ((0.28, 0.45, 0.62), (0.14, 0.26, 0.42), (0.45, 0.6, 0.72), (0.1, 0.17, 0.28))
    return np.array(kinds[brush.rng.integers(len(kinds))], np.float32)


def planks(brush: Brush) -> Painter:
    """A floor of boards, each with its own grain and shade."""
    base = _timber(brush)
    colours = [brush.vary(base, 0.13) for _ in range(7)]
    cell = (brush.rng.uniform(0.8, 1.8), brush.rng.uniform(0.08, 0.16))

    def paint(width, height):
        boards, index = masonry(brush, width, height, cell, colours, 0.005, 0.08, None, 0.0)
        shape = boards.shape[:2]
        grain = brush.noise(shape, (1, 12))
        # Shifting the phase per board breaks the grain where boards meet.
        rings = np.sin(4 * brush.noise(shape, (3, 40)) + index.astype(np.float32))
        knots = np.clip(brush.noise(shape, (6, 10)) - 2.0, 0, 0.6)
        return tint(boards, 1 + 0.11 * grain + 0.07 * rings - 0.6 * knots)

    return paint


def plaster(brush: Brush, tone: np.ndarray | None = None) -> Painter:
    """Painted plaster: roller grain, soft mottling, a few scuffs and scratches."""
    base = brush.colour(0.6, 0.9, 0.25) if tone is None else tone

    def paint(width, height):
        shape = brush.shape(width, height)
        mottled = 1 + 0.055 * brush.noise(shape) + 0.03 * brush.noise(shape, (3, 3))
        scuffs = np.ones(shape, np.float32)
        for _ in range(brush.rng.poisson(3 * width * height)):
            start = brush.rng.random(2) * shape[::-1]
            end = start + brush.rng.normal(0, 0.06, 2) * brush.density
            p, q = ([int(v) for v in point] for point in (start, end))
            shade, thickness = brush.rng.uniform(0.6, 1.15), int(brush.rng.integers(1, 4))
            cv2.line(scuffs, p, q, shade, thickness)
        return tint(base, mottled * cv2.GaussianBlur(scuffs, (3, 3), 0))

    return paint


def wallpaper(brush: Brush) -> Painter:
    """A motif repeated on a lattice over faint stripes."""
    ground, ink = brush.colour(0.7, 0.92, 0.3), brush.colour(0.15, 0.45, 0.6)
    step = brush.rng.uniform(0.18, 0.4)
    side = max(int(step * brush.density), 16)
    motif = _motif(brush, side)
    strength = brush.rng.uniform(0.7, 0.95)

    def paint(width, height):
        rows, columns = brush.shape(width, height)
        half_drop = np.vstack([motif, np.roll(motif, side // 2, axis=1)])
        repeats = (rows // (2 * side) + 1, columns // side + 1)
        pattern = strength * np.tile(half_drop, repeats)[:rows, :columns, None]
        aged = (
            1 + 0.06 * brush.noise((rows, columns)) + 0.03 * brush.noise((rows, columns), (4, 4))
        )
        return tint(ground * (1 - pattern) + ink * pattern, aged)

    return paint


def _motif(brush: Brush, side: int) -> np.ndarray:
    """A mirrored figure of petals and rings in a square of coverage values."""
    canvas = np.zeros((side, side), np.uint8)
    centre, rng = np.array([side / 2, side / 2]), brush.rng
    petals = int(rng.integers(4, 9))
    axes = (int(side * rng.uniform(0.1, 0.2)), int(side * rng.uniform(0.03, 0.08)))
    for k in range(petals):
        angle = 360 * k / petals + 90
        tip = centre + side * 0.22 * np.array(
            [np.cos(np.radians(angle)), np.sin(np.radians(angle))]
        )
        middle = tuple(int(v) for v in tip)
        cv2.ellipse(canvas, middle, axes, angle, 0, 360, 255, -1, cv2.LINE_AA)
    for _ in range(3):
        p = (rng.uniform(0.08, 0.45, 2) * side).astype(int)
        radius = int(rng.integers(side // 30 + 1, side // 12 + 2))
        filled = -1 if rng.random() < 0.5 else 2
        cv2.circle(canvas, (int(p[0]), int(p[1])), radius, 255, filled, cv2.LINE_AA)
    canvas = np.maximum(canvas, canvas[:, ::-1])
    canvas = np.maximum(canvas, canvas[::-1])
    return canvas.astype(np.float32) / 255


def fabric(brush: Brush) -> Painter:
    """Woven cloth, some of it chequered."""
    base, other = brush.colour(0.2, 0.7, 0.6), brush.colour(0.2, 0.8, 0.6)
    step = brush.rng.uniform(0.06, 0.16) if brush.rng.random() < 0.5 else None

    def paint(width, height):
        shape = brush.shape(width, height)
        cloth = np.broadcast_to(base, (*shape, 3))
        if step:
            y, x = (np.arange(n) / (step * brush.density) % 1 < 0.35 for n in shape)
            weight = 0.5 * (y[:, None].astype(np.float32) + x[None])[..., None]
            cloth = base * (1 - weight) + other * weight
        return tint(
            cloth, 1 + 0.09 * brush.noise(shape, (0.7, 2)) + 0.09 * brush.noise(shape, (2, 0.7))
        )

    return paint


def ceiling_panels(brush: Brush) -> Painter:
    """Mineral-fibre panels in a grid, with their pinholes."""
    side = brush.rng.uniform(0.5, 0.65)
    white = brush.vary(np.array((0.84, 0.86, 0.87), np.float32), 0.03)

    def paint(width, height):
        grid, _ = masonry(brush, width, height, (side, side), [white], 0.02, 0.62, 0, 0.015)
        holes = brush.rng.random(grid.shape[:2], np.float32) > 0.985
        return tint(grid, 1 - 0.8 * cv2.blur(holes.astype(np.float32), (2, 2)))

    return paint


def concrete(brush: Brush) -> Painter:
    """Cast concrete or asphalt: grain, pores and cracks."""
    base = brush.colour(0.3, 0.6, 0.1)

    def paint(width, height):
        shape = brush.shape(width, height)
        cracks = np.abs(brush.noise(shape, (6, 6))) < 0.03
        pores = brush.noise(shape, (1.5, 1.5)) > 2.0
        marks = 1 - 0.5 * cv2.blur(np.maximum(cracks, pores).astype(np.float32), (2, 2))
        tone = 1 + 0.09 * brush.noise(shape, (0.7, 0.7)) + 0.07 * brush.noise(shape, (5, 5))
        return tint(base, tone * marks)

    return paint


def cobbles(brush: Brush) -> Painter:
    """Paving stones."""
    stone = brush.colour(0.4, 0.65, 0.12)
    colours = [brush.vary(stone, 0.15) for _ in range(5)]
    scale = brush.rng.uniform(0.16, 0.4)
    cell = (scale * brush.rng.uniform(1, 1.6), scale)
    return lambda w, h: masonry(brush, w, h, cell, colours, 0.02, 0.2, 0.5, 0.1)[0]


def foliage(brush: Brush) -> Painter:
    """Leaves in patches of light and shade."""
    green = brush.vary(np.array((0.16, 0.36, 0.28), np.float32), 0.1)

    def paint(width, height):
        shape = brush.shape(width, height)
        leaves = brush.noise(shape, (2.5, 2.5)) + 0.5 * brush.noise(shape, (8, 8))
        return tint(green, np.exp(0.35 * leaves))

    return paint


def rug(brush: Brush) -> Painter:
    """A carpet with a border and a field of repeated figures."""
    ground, frame, ink = (brush.colour(0.15, 0.75, 0.8) for _ in range(3))
    weave = fabric(brush)

    def paint(width, height):
        rows, columns = brush.shape(width, height)
        side = max(int(0.24 * brush.density), 16)
        motif, small = _motif(brush, side), _motif(brush, side // 2)

        def spread(tile):
            return np.tile(tile, (rows // len(tile) + 1, columns // len(tile) + 1))[
                :rows, :columns
            ]

        y, x = np.arange(rows)[:, None], np.arange(columns)[None]
        inset = np.minimum(np.minimum(x, columns - 1 - x), np.minimum(y, rows - 1 - y))
        inset = (inset / brush.density)[..., None]
        field = ground + (ink - ground) * spread(motif)[..., None]
        border = frame + (ground - frame) * spread(small)[..., None]
        carpet = np.where(inset > 0.16, field, np.where(inset > 0.03, border, ink))
        carpet = np.where(np.abs(inset - 0.16) < 0.012, ink, carpet)
        return np.clip(carpet * (0.75 + 0.5 * weave(width, height).mean(-1, keepdims=True)), 0, 1)

    return paint


def poster(brush: Brush) -> Painter:
    """A printed picture: shapes or a landscape, and some words, in a frame."""
    rng = brush.rng

    def paint(width, height):
        rows, columns = brush.shape(width, height)
        canvas = np.empty((rows, columns, 3), np.uint8)
        canvas[:] = _byte(brush.colour(0.3, 0.95, 0.7))
        if rng.random() < 0.45:
            _landscape(brush, canvas)
        else:
            _shapes(brush, canvas)
        if rng.random() < 0.7:
            _text(brush, canvas, str(rng.choice(WORDS)), rng.uniform(0.12, 0.25))
        edge = max(int(0.02 * brush.density), 2)
        cv2.rectangle(
            canvas, (0, 0), (columns - 1, rows - 1), _byte(brush.colour(0.05, 0.9, 0.3)), edge
        )
        paper = 1 + 0.04 * brush.noise((rows, columns))
        return tint(canvas.astype(np.float32) / 255, paper)

    return paint


def _byte(colour: np.ndarray) -> tuple[int, ...]:
    return tuple(int(255 * c) for c in colour)


def _shapes(brush: Brush, canvas: np.ndarray) -> None:
    rng, (rows, columns) = brush.rng, canvas.shape[:2]
    for _ in range(rng.integers(8, 26)):
        colour = _byte(brush.colour(0.05, 1.0, 0.9))
        x, y = (int(v) for v in rng.random(2) * (columns, rows))
        size = int(rng.uniform(0.04, 0.28) * min(rows, columns)) + 2
        kind = rng.integers(4)
        if kind == 0:
            cv2.circle(canvas, (x, y), size, colour, -1, cv2.LINE_AA)
        elif kind == 1:
            cv2.circle(canvas, (x, y), size, colour, max(size // 5, 1), cv2.LINE_AA)
        elif kind == 2:
            corners = np.array([x, y]) + rng.normal(0, size, (int(rng.integers(3, 6)), 2))
            cv2.fillPoly(canvas, [corners.astype(np.int32)], colour, cv2.LINE_AA)
        else:
            cv2.rectangle(canvas, (x, y), (x + size, y + size // 2), colour, -1)


def _landscape(brush: Brush, canvas: np.ndarray, sky: np.ndarray | None = None) -> None:
    """Sky, hills behind hills, a sun."""
    rng, (rows, columns) = brush.rng, canvas.shape[:2]
    sky = brush.colour(0.7, 1, 0.5) if sky is None else sky
    ground = brush.colour(0.2, 0.7, 0.8)
    ramp = np.linspace(1, 0.75, rows, dtype=np.float32)[:, None]
    clouds = ramp + 0.06 * brush.noise((rows, columns), (3, 6))
    canvas[:] = (255 * tint(sky, clouds)).astype(np.uint8)
    sun = tuple(int(v) for v in rng.uniform(0.15, 0.6, 2) * (columns, rows))
    cv2.circle(
        canvas, sun, int(0.08 * rows) + 2, _byte(brush.colour(0.8, 1, 0.4)), -1, cv2.LINE_AA
    )
    x = np.arange(columns)
    for depth in range(4):
        ridge = rows * (0.45 + 0.14 * depth) + 0.06 * rows * brush.noise((2, columns), (1, 8))[0]
        outline = np.column_stack([x, ridge]).astype(np.int32)
        outline = np.vstack([outline, [[columns, rows], [0, rows]]])
        colour = ground * (1.3 - 0.28 * depth) + sky * (0.25 - 0.08 * depth)
        cv2.fillPoly(canvas, [outline], _byte(np.clip(colour, 0, 1)), cv2.LINE_AA)
    canvas[:] = np.clip(canvas * (1 + 0.05 * brush.noise((rows, columns))[..., None]), 0, 255)


def _text(brush: Brush, canvas: np.ndarray, text: str, height: float, y: float | None = None):
    """Write words across the canvas; height and y are fractions of its height."""
    rng, (rows, columns) = brush.rng, canvas.shape[:2]
    font = FONTS[rng.integers(len(FONTS))]
    (w, h), _ = cv2.getTextSize(text, font, 1.0, 2)
    scale = min(height * rows / h, 0.85 * columns / w)
    x = int(rng.uniform(0.3, 0.7) * (columns - scale * w))
    y = int((rng.uniform(0.3, 0.95) if y is None else y) * rows)
    ink = _byte(brush.colour(0.0, 0.2, 0.8) if canvas.mean() > 110 else brush.colour(0.8, 1, 0.4))
    cv2.putText(canvas, text, (x, y), font, scale, ink, max(int(2 * scale), 1), cv2.LINE_AA)


def book_spines(brush: Brush) -> Painter:
    """A row of books seen from the back."""
    rng = brush.rng

    def paint(width, height):
        rows, columns = brush.shape(width, height)
        canvas = np.full((rows, columns, 3), 12, np.uint8)
        x = 0
        while x < columns:
            w = max(int(rng.uniform(0.018, 0.055) * brush.density), 4)
            top = int(rng.uniform(0, 0.22) * rows)
            colour = brush.colour(0.1, 0.9, 0.8)
            cv2.rectangle(canvas, (x, top), (x + w - 2, rows), _byte(colour), -1)
            band = _byte(brush.colour(0.05, 1.0, 0.6))
            for y in rng.uniform(0.1, 0.95, rng.integers(1, 4)):
                y = int(top + y * (rows - top))
                thick = int(rng.integers(1, max(rows // 14, 2)))
                cv2.rectangle(canvas, (x, y), (x + w - 2, y + thick), band, -1)
            for y in range(int(top + 0.2 * (rows - top)), int(0.7 * rows), max(w // 3, 3)):
                if rng.random() < 0.75:
                    reach = int(rng.integers(1, max(w // 2, 2)))
                    cv2.line(canvas, (x + w // 4, y), (x + w // 4 + reach, y), band, 1)
            x += w
        return tint(
            canvas.astype(np.float32) / 255, 1 + 0.06 * brush.noise((rows, columns), (6, 1))
        )

    return paint


def cardboard(brush: Brush) -> Painter:
    """A box with tape, a label and stamps."""
    rng = brush.rng
    base = brush.vary(np.array((0.38, 0.53, 0.68), np.float32), 0.08)

    def paint(width, height):
        rows, columns = brush.shape(width, height)
        tone = (
            1 + 0.05 * brush.noise((rows, columns)) + 0.03 * brush.noise((rows, columns), (1, 20))
        )
        canvas = (255 * tint(base, tone)).astype(np.uint8)
        middle, half = columns // 2, max(columns // 14, 2)
        tape = canvas[:, middle - half : middle + half]
        tape[:] = 0.6 * tape + 0.4 * np.array((150, 190, 205))
        x, y = (int(v) for v in rng.uniform(0.05, 0.5, 2) * (columns, rows))
        label = canvas[y : y + rows // 3, x : x + columns // 3]
        label[:] = 225
        for line in range(3, len(label) - 2, 5):
            reach = int(rng.uniform(0.3, 0.9) * label.shape[1])
            cv2.line(label, (3, line), (reach, line), (40, 40, 50), int(rng.integers(1, 3)))
        _text(brush, canvas, str(rng.choice(WORDS)), 0.16, 0.9)
        return canvas.astype(np.float32) / 255

    return paint


def slats(brush: Brush) -> Painter:
    """The side of a wooden crate: boards with nails, a frame around them."""
    base = brush.vary(_timber(brush), 0.1)
    colours = [brush.vary(base, 0.14) for _ in range(4)]

    def paint(width, height):
        boards, _ = masonry(brush, width, height, (9.0, 0.11), colours, 0.01, 0.05, 0, 0.0)
        rows, columns = boards.shape[:2]
        boards = tint(boards, 1 + 0.13 * brush.noise((rows, columns), (1, 14)))
        edge = max(int(0.06 * brush.density), 4)
        frame = wood(brush, base * 0.85)
        for cut in (np.s_[:edge], np.s_[-edge:], np.s_[:, :edge], np.s_[:, -edge:]):
            part = boards[cut]
            part[:] = cv2.resize(
                frame(part.shape[1] / brush.density, part.shape[0] / brush.density),
                part.shape[1::-1],
            )
        for x in (edge // 2, columns - edge // 2):
            for y in range(edge // 2, rows, edge):
                cv2.circle(boards, (x, y), 2, (0.1, 0.1, 0.12), -1)
        return boards

    return paint


def drawers(brush: Brush) -> Painter:
    """The front of a cabinet: equal drawers or doors with handles."""
    rng = brush.rng
    body = wood(brush) if rng.random() < 0.6 else plaster(brush, brush.colour(0.4, 0.85, 0.6))
    size = rng.uniform(0.35, 0.6), rng.uniform(0.18, 0.4)

    def paint(width, height):
        face = body(width, height)
        rows, columns = face.shape[:2]
        nx, ny = max(round(width / size[0]), 1), max(round(height / size[1]), 1)
        tone = np.ones((rows, columns), np.float32)
        for i in range(nx):
            for j in range(ny):
                x0, x1 = (columns * i // nx + 2, columns * (i + 1) // nx - 3)
                y0, y1 = (rows * j // ny + 2, rows * (j + 1) // ny - 3)
                cv2.rectangle(tone, (x0, y0), (x1, y1), 0.35, 2)
                cv2.rectangle(tone, (x0 + 7, y0 + 7), (x1 - 7, y1 - 7), 0.82, 2)
                middle, reach = (x0 + x1) // 2, max((x1 - x0) // 8, 2)
                y = y0 + (y1 - y0) // 3
                cv2.line(tone, (middle - reach, y + 3), (middle + reach, y + 3), 0.45, 3)
                cv2.line(tone, (middle - reach, y), (middle + reach, y), 1.6, 3)
        return tint(face, cv2.GaussianBlur(tone, (3, 3), 0))

    return paint


def bars(brush: Brush) -> Painter:
    """A radiator: equal columns."""
    base, step = brush.vary(np.array((0.82, 0.85, 0.86), np.float32), 0.05), 0.055

    def paint(width, height):
        rows, columns = brush.shape(width, height)
        phase = np.arange(columns) / (step * brush.density) % 1
        profile = np.where(phase < 0.75, 0.7 + 0.4 * np.sin(np.pi * phase / 0.75), 0.3)
        return tint(
            base, profile[None].astype(np.float32) * (1 + 0.03 * brush.noise((rows, columns)))
        )

    return paint


def door(brush: Brush) -> Painter:
    """A panelled door in its frame."""
    leaf = wood(brush) if brush.rng.random() < 0.6 else plaster(brush, brush.colour(0.5, 0.9, 0.6))

    def paint(width, height):
        face = leaf(width, height)
        rows, columns = face.shape[:2]
        tone = np.ones((rows, columns), np.float32)
        edge = columns // 14
        cv2.rectangle(tone, (0, 0), (columns - 1, rows - 1), 0.8, edge)
        cv2.rectangle(tone, (edge, edge), (columns - edge, rows), 0.3, 2)
        for i in range(2):
            for y0, y1 in ((0.08, 0.3), (0.35, 0.55), (0.62, 0.92)):
                x0, x1 = columns * (0.15 + 0.37 * i), columns * (0.48 + 0.37 * i)
                p, q = (int(x0), int(y0 * rows)), (int(x1), int(y1 * rows))
                cv2.rectangle(tone, p, q, 0.6, 4)
                cv2.rectangle(tone, (p[0] + 4, p[1] + 4), (q[0] - 4, q[1] - 4), 1.15, 2)
        face = tint(face, cv2.GaussianBlur(tone, (3, 3), 0))
        knob = (int(0.9 * columns), int(0.53 * rows))
        cv2.circle(face, knob, columns // 30, (0.5, 0.65, 0.75), -1)
        return face

    return paint


def window(brush: Brush) -> Painter:
    """A window with glazing bars and houses outside."""

    def paint(width, height):
        rows, columns = brush.shape(width, height)
        canvas = np.empty((rows, columns, 3), np.uint8)
        _landscape(brush, canvas, brush.vary(np.array((0.98, 0.9, 0.8), np.float32), 0.04))
        wall = facade(brush.finer(0.1))(width * 4, height * 4)
        house = cv2.resize(wall, (columns // 2, int(0.55 * rows)), interpolation=cv2.INTER_AREA)
        x = int(brush.rng.integers(0, columns // 2))
        canvas[rows - len(house) :, x : x + house.shape[1]] = 255 * house
        bar = max(int(0.05 * brush.density), 3)
        white = (225, 230, 232)
        for i in range(3):
            p = i * (columns - 1) // 2
            cv2.line(canvas, (p, 0), (p, rows), white, bar)
            cv2.line(canvas, (0, i * rows // 2), (columns, i * rows // 2), white, bar)
            cv2.line(canvas, (p + bar // 2, 0), (p + bar // 2, rows), (120, 120, 120), 2)
        return canvas.astype(np.float32) / 255

    return paint


def screen(brush: Brush) -> Painter:
    """Lines of writing and a plot: a monitor, a whiteboard, a sheet of paper."""
    rng = brush.rng

    def paint(width, height):
        rows, columns = brush.shape(width, height)
        dark = rng.random() < 0.4
        canvas = np.full((rows, columns, 3), 30 if dark else 232, np.uint8)
        step = max(rows // int(rng.integers(14, 26)), 4)
        for y in range(step, rows - step, step):
            x = int(rng.integers(0, 4)) * columns // 24 + columns // 30
            while x < columns * rng.uniform(0.3, 0.62):
                reach = int(rng.uniform(0.01, 0.07) * columns) + 2
                ink = _byte(brush.colour(0.5, 1, 0.7) if dark else brush.colour(0, 0.4, 0.8))
                cv2.line(canvas, (x, y), (x + reach, y), ink, max(step // 3, 1))
                x += reach + max(columns // 90, 2)
        x = np.linspace(0.66, 0.96, 40) * columns
        for k in range(3):
            y = rows * (0.25 + 0.2 * k + 0.05 * np.cumsum(rng.standard_normal(40)) / 4)
            line = np.column_stack([x, y]).astype(np.int32)
            cv2.polylines(canvas, [line], False, _byte(brush.colour(0.2, 0.9, 1)), 2, cv2.LINE_AA)
        return canvas.astype(np.float32) / 255

    return paint


def facade(brush: Brush) -> Painter:
    """A house front: storeys of equal windows with sills."""
    rng = brush.rng
    wall = bricks(brush) if rng.random() < 0.5 else plaster(brush)
    step = rng.uniform(1.6, 2.6), rng.uniform(2.8, 3.4)
    size = rng.uniform(0.45, 0.65), rng.uniform(0.5, 0.65)
    trim, glass = brush.colour(0.5, 0.95, 0.2), brush.colour(0.15, 0.4, 0.4)

    def paint(width, height):
        front = wall(width, height)
        rows, columns = front.shape[:2]
        nx, ny = max(round(width / step[0]), 1), max(round(height / step[1]), 1)
        for i in range(nx):
            for j in range(ny):
                w, h = columns / nx, rows / ny
                x0, y0 = int((i + 0.5 - size[0] / 2) * w), int((j + 0.5 - size[1] / 2) * h)
                x1, y1 = int(x0 + size[0] * w), int(y0 + size[1] * h)
                edge = max(int(0.05 * w), 1)
                front[y0 - edge : y1 + edge, x0 - edge : x1 + edge] = trim
                pane = front[y0:y1, x0:x1]
                shine = np.linspace(1.5, 0.6, y1 - y0, dtype=np.float32)[:, None]
                shine = shine + 0.25 * brush.noise(pane.shape[:2], (4, 4))
                curtain = rng.uniform(0, 0.45) if rng.random() < 0.5 else 0
                pane[:] = tint(glass, shine)
                pane[: int(curtain * len(pane))] = brush.vary(trim, 0.1)
                pane[:, (x1 - x0) // 2 - edge // 4 : (x1 - x0) // 2 + edge // 4 + 1] = trim
                pane[(y1 - y0) // 3 : (y1 - y0) // 3 + edge // 2 + 1] = trim
                front[y1 + edge : y1 + 2 * edge, x0 - 2 * edge : x1 + 2 * edge] *= 0.55
        return front

    return paint

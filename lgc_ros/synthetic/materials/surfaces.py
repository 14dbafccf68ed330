"""Walls, floors, ceilings, cloth and ground."""

from __future__ import annotations

import cv2
import numpy as np

from lgc_ros.synthetic.materials.brush import Brush, Painter, tint


def masonry(brush: Brush, width, height, cell, colors, gap, gap_color, shift=0.0, wear=0.06):
    """Rectangular cells in rows (bricks, tiles, planks), each with its own color.

    Every second row is shifted by `shift` of a cell, or every row at random if `shift` is None.
    Returns the albedo and the cell number of every texel; its parity alternates like a chessboard.
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
    mixed = np.array(colors)[rng.integers(len(colors), size=499)]
    mixed *= 1 + 0.09 * rng.standard_normal((499, 1), np.float32)
    half = 0.5 * gap * brush.density
    edge = np.minimum((x - column * cell_w), (column + 1) * cell_w - x)
    edge = np.minimum(edge, np.minimum(y - row * cell_h, (row + 1) * cell_h - y)) - half
    inside = np.clip(edge + 0.5, 0, 1)[..., None]
    bevel = 0.85 + 0.15 * np.clip(edge / (4 * half + 2), 0, 1)
    tone = (1 + wear * brush.noise((rows, columns))) * bevel
    gap_color = np.float32(gap_color)
    return tint(gap_color + (mixed[(number * 37) % 499] - gap_color) * inside, tone), number


def bricks(brush: Brush) -> Painter:
    """A running bond of bricks, in one of three clays."""
    clay = brush.vary(
        np.array(
            [(0.24, 0.31, 0.55), (0.66, 0.72, 0.75), (0.36, 0.47, 0.66)][brush.rng.integers(3)],
            np.float32,
        ),
        0.08,
    )
    mortar = np.float32(brush.rng.uniform(0.45, 0.75))
    scale = brush.rng.uniform(0.9, 1.4)
    colors = [brush.vary(clay, 0.12) for _ in range(5)]
    cell = (0.24 * scale, 0.075 * scale)
    return lambda w, h: masonry(brush, w, h, cell, colors, 0.012, mortar, 0.5, 0.11)[0]


def tiles(brush: Brush) -> Painter:
    """Square tiles, plain or checkered, with worn glaze."""
    first = brush.color(0.55, 0.9, 0.4)
    second = brush.color(0.15, 0.6, 0.6) if brush.rng.random() < 0.6 else first
    side, speckle = brush.rng.uniform(0.18, 0.4), brush.rng.uniform(0.04, 0.08)

    def paint(width, height):
        base, number = masonry(brush, width, height, (side, side), [first], 0.008, 0.4, 0, speckle)
        other = (number % 2 == 1)[..., None]
        chips = 1 - 0.25 * (brush.noise(base.shape[:2]) > 2.0).astype(np.float32)
        return tint(np.where(other, base * (second / first), base), chips)

    return paint


def wood(brush: Brush, tone: np.ndarray | None = None) -> Painter:
    """Planed wood with the grain along the longer side."""
    base = brush.vary(timber(brush), 0.1) if tone is None else tone

    def paint(width, height):
        rows, columns = brush.shape(width, height)
        along = (1, 14) if columns >= rows else (14, 1)
        grain = brush.noise((rows, columns), along)
        rings = np.sin(5 * brush.noise((rows, columns), tuple(4.0 * a for a in along)))
        return tint(base, 1 + 0.10 * grain + 0.07 * rings)

    return paint


def timber(brush: Brush) -> np.ndarray:
    kinds = ((0.28, 0.45, 0.62), (0.14, 0.26, 0.42), (0.45, 0.6, 0.72), (0.1, 0.17, 0.28))
    return np.array(kinds[brush.rng.integers(len(kinds))], np.float32)


def planks(brush: Brush) -> Painter:
    """Floorboards, each with its own grain and shade."""
    base = timber(brush)
    colors = [brush.vary(base, 0.13) for _ in range(7)]
    cell = (brush.rng.uniform(0.8, 1.8), brush.rng.uniform(0.08, 0.16))

    def paint(width, height):
        boards, index = masonry(brush, width, height, cell, colors, 0.005, 0.08, None, 0.0)
        shape = boards.shape[:2]
        grain = brush.noise(shape, (1, 12))
        # A phase per board interrupts the grain where boards meet.
        rings = np.sin(4 * brush.noise(shape, (3, 40)) + index.astype(np.float32))
        knots = np.clip(brush.noise(shape, (6, 10)) - 2.0, 0, 0.6)
        return tint(boards, 1 + 0.11 * grain + 0.07 * rings - 0.6 * knots)

    return paint


def plaster(brush: Brush, tone: np.ndarray | None = None) -> Painter:
    """Painted plaster: roller grain, mottling, scuffs and scratches."""
    base = brush.color(0.6, 0.9, 0.25) if tone is None else tone

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
    """A motif repeated in a half-drop pattern."""
    ground, ink = brush.color(0.7, 0.92, 0.3), brush.color(0.15, 0.45, 0.6)
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
    """A mirrored figure of petals and rings; coverage in [0, 1]."""
    canvas = np.zeros((side, side), np.uint8)
    center, rng = np.array([side / 2, side / 2]), brush.rng
    petals = int(rng.integers(4, 9))
    axes = (int(side * rng.uniform(0.1, 0.2)), int(side * rng.uniform(0.03, 0.08)))
    for k in range(petals):
        angle = 360 * k / petals + 90
        tip = center + side * 0.22 * np.array(
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
    """Woven cloth, plain or checkered."""
    base, other = brush.color(0.2, 0.7, 0.6), brush.color(0.2, 0.8, 0.6)
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
    """A grid of mineral-fiber panels with pinholes."""
    side = brush.rng.uniform(0.5, 0.65)
    white = brush.vary(np.array((0.84, 0.86, 0.87), np.float32), 0.03)

    def paint(width, height):
        grid, _ = masonry(brush, width, height, (side, side), [white], 0.02, 0.62, 0, 0.015)
        holes = brush.rng.random(grid.shape[:2], np.float32) > 0.985
        return tint(grid, 1 - 0.8 * cv2.blur(holes.astype(np.float32), (2, 2)))

    return paint


def concrete(brush: Brush) -> Painter:
    """Cast concrete or asphalt: grain, pores and cracks."""
    base = brush.color(0.3, 0.6, 0.1)

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
    stone = brush.color(0.4, 0.65, 0.12)
    colors = [brush.vary(stone, 0.15) for _ in range(5)]
    scale = brush.rng.uniform(0.16, 0.4)
    cell = (scale * brush.rng.uniform(1, 1.6), scale)
    return lambda w, h: masonry(brush, w, h, cell, colors, 0.02, 0.2, 0.5, 0.1)[0]


def foliage(brush: Brush) -> Painter:
    """Leaves in patches of light and shade."""
    green = brush.vary(np.array((0.16, 0.36, 0.28), np.float32), 0.1)

    def paint(width, height):
        shape = brush.shape(width, height)
        leaves = brush.noise(shape, (2.5, 2.5)) + 0.5 * brush.noise(shape, (8, 8))
        return tint(green, np.exp(0.35 * leaves))

    return paint


def rug(brush: Brush) -> Painter:
    """A carpet with a border around a repeated motif."""
    ground, frame, ink = (brush.color(0.15, 0.75, 0.8) for _ in range(3))
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

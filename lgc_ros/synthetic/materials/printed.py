"""Printed and written matter: posters, book spines, cartons, screens."""

from __future__ import annotations

import cv2
import numpy as np

from lgc_ros.synthetic.materials.brush import Brush, Painter, tint

# fmt: off
WORDS = (
    "ATLAS", "BAKERY", "CINEMA", "DELTA", "EPOCH", "FRAGILE", "GALLERY", "HARBOUR", "INDEX",
    "JAZZ", "KEPLER", "LEMON", "MUSEUM", "NORTH", "ORBIT", "PAPER", "QUARTZ", "RIVER", "STATION",
    "TEA", "URBAN", "VISTA", "WINTER", "ZENITH",
)
# fmt: on
FONTS = (cv2.FONT_HERSHEY_DUPLEX, cv2.FONT_HERSHEY_TRIPLEX, cv2.FONT_HERSHEY_COMPLEX)


def poster(brush: Brush) -> Painter:
    """A framed print: shapes or a landscape, often with a word."""
    rng = brush.rng

    def paint(width, height):
        rows, columns = brush.shape(width, height)
        canvas = np.empty((rows, columns, 3), np.uint8)
        canvas[:] = _byte(brush.color(0.3, 0.95, 0.7))
        if rng.random() < 0.45:
            landscape(brush, canvas)
        else:
            _shapes(brush, canvas)
        if rng.random() < 0.7:
            _text(brush, canvas, str(rng.choice(WORDS)), rng.uniform(0.12, 0.25))
        edge = max(int(0.02 * brush.density), 2)
        cv2.rectangle(
            canvas, (0, 0), (columns - 1, rows - 1), _byte(brush.color(0.05, 0.9, 0.3)), edge
        )
        paper = 1 + 0.04 * brush.noise((rows, columns))
        return tint(canvas.astype(np.float32) / 255, paper)

    return paint


def _byte(color: np.ndarray) -> tuple[int, ...]:
    return tuple(int(255 * c) for c in color)


def _shapes(brush: Brush, canvas: np.ndarray) -> None:
    rng, (rows, columns) = brush.rng, canvas.shape[:2]
    for _ in range(rng.integers(8, 26)):
        color = _byte(brush.color(0.05, 1.0, 0.9))
        x, y = (int(v) for v in rng.random(2) * (columns, rows))
        size = int(rng.uniform(0.04, 0.28) * min(rows, columns)) + 2
        kind = rng.integers(4)
        if kind == 0:
            cv2.circle(canvas, (x, y), size, color, -1, cv2.LINE_AA)
        elif kind == 1:
            cv2.circle(canvas, (x, y), size, color, max(size // 5, 1), cv2.LINE_AA)
        elif kind == 2:
            corners = np.array([x, y]) + rng.normal(0, size, (int(rng.integers(3, 6)), 2))
            cv2.fillPoly(canvas, [corners.astype(np.int32)], color, cv2.LINE_AA)
        else:
            cv2.rectangle(canvas, (x, y), (x + size, y + size // 2), color, -1)


def landscape(brush: Brush, canvas: np.ndarray, sky: np.ndarray | None = None) -> None:
    """Draw a sky with a sun, and rows of hills."""
    rng, (rows, columns) = brush.rng, canvas.shape[:2]
    sky = brush.color(0.7, 1, 0.5) if sky is None else sky
    ground = brush.color(0.2, 0.7, 0.8)
    ramp = np.linspace(1, 0.75, rows, dtype=np.float32)[:, None]
    clouds = ramp + 0.06 * brush.noise((rows, columns), (3, 6))
    canvas[:] = (255 * tint(sky, clouds)).astype(np.uint8)
    sun = tuple(int(v) for v in rng.uniform(0.15, 0.6, 2) * (columns, rows))
    cv2.circle(canvas, sun, int(0.08 * rows) + 2, _byte(brush.color(0.8, 1, 0.4)), -1, cv2.LINE_AA)
    x = np.arange(columns)
    for depth in range(4):
        ridge = rows * (0.45 + 0.14 * depth) + 0.06 * rows * brush.noise((2, columns), (1, 8))[0]
        outline = np.column_stack([x, ridge]).astype(np.int32)
        outline = np.vstack([outline, [[columns, rows], [0, rows]]])
        color = ground * (1.3 - 0.28 * depth) + sky * (0.25 - 0.08 * depth)
        cv2.fillPoly(canvas, [outline], _byte(np.clip(color, 0, 1)), cv2.LINE_AA)
    canvas[:] = np.clip(canvas * (1 + 0.05 * brush.noise((rows, columns))[..., None]), 0, 255)


def _text(brush: Brush, canvas: np.ndarray, text: str, height: float, y: float | None = None):
    """Write words across the canvas; `height` and `y` are fractions of its height."""
    rng, (rows, columns) = brush.rng, canvas.shape[:2]
    font = FONTS[rng.integers(len(FONTS))]
    (w, h), _ = cv2.getTextSize(text, font, 1.0, 2)
    scale = min(height * rows / h, 0.85 * columns / w)
    x = int(rng.uniform(0.3, 0.7) * (columns - scale * w))
    y = int((rng.uniform(0.3, 0.95) if y is None else y) * rows)
    ink = _byte(brush.color(0.0, 0.2, 0.8) if canvas.mean() > 110 else brush.color(0.8, 1, 0.4))
    cv2.putText(canvas, text, (x, y), font, scale, ink, max(int(2 * scale), 1), cv2.LINE_AA)


def book_spines(brush: Brush) -> Painter:
    """A row of book spines."""
    rng = brush.rng

    def paint(width, height):
        rows, columns = brush.shape(width, height)
        canvas = np.full((rows, columns, 3), 12, np.uint8)
        x = 0
        while x < columns:
            w = max(int(rng.uniform(0.018, 0.055) * brush.density), 4)
            top = int(rng.uniform(0, 0.22) * rows)
            color = brush.color(0.1, 0.9, 0.8)
            cv2.rectangle(canvas, (x, top), (x + w - 2, rows), _byte(color), -1)
            band = _byte(brush.color(0.05, 1.0, 0.6))
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
    """The side of a carton with tape, a label and a printed word."""
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


def screen(brush: Brush) -> Painter:
    """Lines of text and a plot: a monitor, a whiteboard or a sheet of paper."""
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
                ink = _byte(brush.color(0.5, 1, 0.7) if dark else brush.color(0, 0.4, 0.8))
                cv2.line(canvas, (x, y), (x + reach, y), ink, max(step // 3, 1))
                x += reach + max(columns // 90, 2)
        x = np.linspace(0.66, 0.96, 40) * columns
        for k in range(3):
            y = rows * (0.25 + 0.2 * k + 0.05 * np.cumsum(rng.standard_normal(40)) / 4)
            line = np.column_stack([x, y]).astype(np.int32)
            cv2.polylines(canvas, [line], False, _byte(brush.color(0.2, 0.9, 1)), 2, cv2.LINE_AA)
        return canvas.astype(np.float32) / 255

    return paint

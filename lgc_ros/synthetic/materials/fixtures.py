"""Fixtures: crates, drawers, radiators, doors, windows, house fronts."""

from __future__ import annotations

import cv2
import numpy as np

from lgc_ros.synthetic.materials.brush import Brush, Painter, tint
from lgc_ros.synthetic.materials.printed import landscape
from lgc_ros.synthetic.materials.surfaces import bricks, masonry, plaster, timber, wood


def slats(brush: Brush) -> Painter:
    """The side of a wooden crate: nailed boards in a frame."""
    base = brush.vary(timber(brush), 0.1)
    colors = [brush.vary(base, 0.14) for _ in range(4)]

    def paint(width, height):
        boards, _ = masonry(brush, width, height, (9.0, 0.11), colors, 0.01, 0.05, 0, 0.0)
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
    """The front of a cabinet: identical drawers or doors with handles."""
    rng = brush.rng
    body = wood(brush) if rng.random() < 0.6 else plaster(brush, brush.color(0.4, 0.85, 0.6))
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
    """A radiator: identical columns."""
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
    leaf = wood(brush) if brush.rng.random() < 0.6 else plaster(brush, brush.color(0.5, 0.9, 0.6))

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
    """A window with glazing bars and a view of houses."""

    def paint(width, height):
        rows, columns = brush.shape(width, height)
        canvas = np.empty((rows, columns, 3), np.uint8)
        landscape(brush, canvas, brush.vary(np.array((0.98, 0.9, 0.8), np.float32), 0.04))
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


def facade(brush: Brush) -> Painter:
    """A house front: stories of identical windows with sills."""
    rng = brush.rng
    wall = bricks(brush) if rng.random() < 0.5 else plaster(brush)
    step = rng.uniform(1.6, 2.6), rng.uniform(2.8, 3.4)
    size = rng.uniform(0.45, 0.65), rng.uniform(0.5, 0.65)
    trim, glass = brush.color(0.5, 0.95, 0.2), brush.color(0.15, 0.4, 0.4)

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

"""Chessboards in images: their corners, and the choice of views that differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from lgc_ros.errors import ConfigError

# Larger images are searched at this width; corners are refined at full resolution.
SEARCH_WIDTH_PX = 1280
SEARCH_FLAGS = cv2.CALIB_CB_NORMALIZE_IMAGE | cv2.CALIB_CB_ACCURACY
# Half the side of the window for sub-pixel refinement, as a share of the distance to the next
# corner, and its limits.
WINDOW_SHARE, WINDOW_PX = 0.4, (2, 15)
MIN_CORNERS = 3  # per side; OpenCV finds no smaller board


@dataclass(frozen=True)
class Board:
    """A chessboard by its inner corners (one less than squares) and the side of a square."""

    columns: int
    rows: int
    square_m: float

    @classmethod
    def parse(cls, size: str, square_m: float) -> Board:
        """Read a size such as `9x6`."""
        match = re.fullmatch(r"(\d{1,3})x(\d{1,3})", size)
        columns, rows = map(int, match.groups()) if match else (0, 0)
        if min(columns, rows) < MIN_CORNERS:
            raise ConfigError(
                f"--board {size} must be the number of inner corners, such as 9x6 for a board of "
                f"10x7 squares, at least {MIN_CORNERS}x{MIN_CORNERS}"
            )
        if not square_m > 0:
            raise ConfigError(f"--square {square_m:g} must be the side of a square in meters")
        return cls(columns, rows, square_m)

    @property
    def points_m(self) -> np.ndarray:
        """Corners (N, 3) in the frame of the board, row by row, in meters."""
        x, y = np.meshgrid(np.arange(self.columns), np.arange(self.rows))
        plane = np.column_stack([x.ravel(), y.ravel(), np.zeros(x.size)])
        return plane * self.square_m


@dataclass(frozen=True, eq=False)
class BoardView:
    """The corners (N, 2) of the board in one image, in pixels."""

    name: str
    corners_px: np.ndarray


def find_board(image: np.ndarray, board: Board) -> np.ndarray | None:
    """Corners (N, 2) of the board in pixels; None if it is not seen.

    They are in the order of `Board.points_m` or in the reverse order, because a board that is
    turned by half a turn looks the same; either is a pose of the board.
    """
    gray = image if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    scale = max(1.0, gray.shape[1] / SEARCH_WIDTH_PX)
    searched = gray
    if scale > 1:
        searched = cv2.resize(gray, None, fx=1 / scale, fy=1 / scale, interpolation=cv2.INTER_AREA)
    found, corners = cv2.findChessboardCornersSB(
        searched, (board.columns, board.rows), flags=SEARCH_FLAGS
    )
    if not found:
        return None
    coarse = ((corners.reshape(-1, 2) + 0.5) * scale - 0.5).astype(np.float32)
    return _refined(gray, coarse, board)


def _refined(gray: np.ndarray, corners_px: np.ndarray, board: Board) -> np.ndarray:
    """Corners at sub-pixel precision, from a window that contains no other corner."""
    grid = corners_px.reshape(board.rows, board.columns, 2)
    spacing = min(np.linalg.norm(np.diff(grid, axis=axis), axis=-1).min() for axis in (0, 1))
    side = int(np.clip(spacing * WINDOW_SHARE, *WINDOW_PX))
    stop = (cv2.TERM_CRITERIA_EPS + cv2.TERM_CRITERIA_MAX_ITER, 40, 1e-3)
    refined = cv2.cornerSubPix(gray, corners_px.copy(), (side, side), (-1, -1), stop)
    return refined.reshape(-1, 2).astype(np.float64)


def choose_views(
    views: Sequence[BoardView], size: tuple[int, int], board: Board, limit: int
) -> list[BoardView]:
    """At most `limit` views that differ most in position, size and slant of the board.

    A video shows nearly the same view many times; these would only slow the estimate down.
    """
    if len(views) <= limit:
        return list(views)
    looks = np.array([_look(view.corners_px, size, board) for view in views])
    chosen = [0]
    distance = np.linalg.norm(looks - looks[0], axis=1)
    while len(chosen) < limit:
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, np.linalg.norm(looks - looks[chosen[-1]], axis=1))
    return [views[index] for index in sorted(chosen)]


def _look(corners_px: np.ndarray, size: tuple[int, int], board: Board) -> np.ndarray:
    """Position, size and slant of a board: numbers between about 0 and 1."""
    grid = corners_px.reshape(board.rows, board.columns, 2) / max(size)
    top, bottom = (np.linalg.norm(grid[row, -1] - grid[row, 0]) for row in (0, -1))
    left, right = (np.linalg.norm(grid[-1, col] - grid[0, col]) for col in (0, -1))
    slant = [np.log(top / bottom), np.log(left / right)]
    return np.array([*grid.mean(axis=(0, 1)), np.sqrt((top + bottom) * (left + right)), *slant])

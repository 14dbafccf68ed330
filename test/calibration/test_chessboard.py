"""Chessboards: found to a fraction of a pixel, and views that differ are chosen."""

import cv2
import numpy as np
import pytest
from chessboards import BOARD, CAMERA, board_poses, render_board

from lgc_ros.calibration.chessboard import Board, BoardView, choose_views, find_board
from lgc_ros.errors import ConfigError

T_CB = board_poses(8)[3]


def error_px(found, scale=1):
    """Largest error of a corner, for the better of the two orders."""
    true = (CAMERA.project(BOARD.points_m @ T_CB[:3, :3].T + T_CB[:3, 3]) + 0.5) * scale - 0.5
    return min(np.abs(found - true).max(), np.abs(found[::-1] - true).max())


def test_corners_are_found_at_sub_pixel_precision():
    found = find_board(render_board(T_CB), BOARD)
    assert error_px(found) < 0.3


def test_a_large_color_image_is_searched_small_and_refined_in_full():
    large = cv2.resize(render_board(T_CB), None, fx=3, fy=3, interpolation=cv2.INTER_CUBIC)
    found = find_board(cv2.cvtColor(large, cv2.COLOR_GRAY2BGR), BOARD)
    assert error_px(found, scale=3) < 1.0


def test_an_image_without_the_board_has_no_corners():
    assert find_board(render_board(T_CB), Board(8, 6, 0.025)) is None
    assert find_board(np.full((120, 160), 128, np.uint8), BOARD) is None


def test_choosing_views_drops_repetitions_first():
    corners = [
        CAMERA.project(BOARD.points_m @ T[:3, :3].T + T[:3, 3]) for T in board_poses(6, seed=1)
    ]
    repeated = [c + noise for c in corners for noise in (0.0, 0.1, 0.2)]
    views = [BoardView(str(i), c) for i, c in enumerate(repeated)]
    chosen = choose_views(views, CAMERA.size, BOARD, limit=6)
    assert sorted(int(view.name) // 3 for view in chosen) == list(range(6))
    assert choose_views(views, CAMERA.size, BOARD, limit=100) == views


@pytest.mark.parametrize(
    ("size", "square", "message"),
    [
        ("9", 0.025, "--board 9 must be the number of inner corners"),
        ("9x2", 0.025, "at least 3x3"),
        ("9x6", 0.0, "--square 0"),
        ("9x6", float("nan"), "--square nan"),
    ],
)
def test_an_impossible_board_is_refused(size, square, message):
    with pytest.raises(ConfigError, match=message):
        Board.parse(size, square)

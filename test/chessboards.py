"""Rendered chessboards with known camera and poses."""

from functools import cache

import cv2
import numpy as np
from sequences import pixel_grid
from transforms3d.euler import euler2mat

from lgc_ros.calibration.chessboard import Board
from lgc_ros.geometry.camera import Camera

BOARD = Board(9, 6, 0.025)
CAMERA = Camera.from_K(
    [[420.0, 0, 331.5], [0, 424.0, 228.0], [0, 0, 1]], 640, 480, (-0.24, 0.06, 0.001, -0.0008)
)
SAMPLES = (-0.25, 0.25)  # of a pixel, in x and y: antialiasing


def board_poses(count, seed=0, reach=1.0):
    """Poses T_cb of the board in front of the camera: near and far, tilted, in all corners."""
    rng = np.random.default_rng(seed)
    center = BOARD.points_m.mean(axis=0)
    poses = []
    for _ in range(count):
        T_cb = np.eye(4)
        T_cb[:3, :3] = euler2mat(*rng.uniform(-0.5, 0.5, 2), rng.uniform(-0.4, 0.4))
        z = rng.uniform(0.25, 0.5)
        at = np.array([*(rng.uniform(-0.28, 0.28, 2) * (1, 0.6) * reach * z / 0.5), z])
        T_cb[:3, 3] = at - T_cb[:3, :3] @ center
        poses.append(T_cb)
    return poses


def render_board(T_cb, camera=CAMERA, noise=2.0, seed=0):
    """A gray image of the board, with a white margin of one square, on gray."""
    light = [_board_light(rays, np.linalg.inv(T_cb)) for rays in _rays(camera)]
    image = np.mean(light, axis=0).reshape(camera.height, camera.width)
    image = cv2.GaussianBlur(image, (0, 0), 0.7)
    image += np.random.default_rng(seed).normal(0, noise, image.shape)
    return np.clip(image, 0, 255).astype(np.uint8)


@cache
def _rays(camera):
    """Normalized coordinates (N, 2) of every pixel, once per sample."""
    samples = [(dx, dy) for dx in SAMPLES for dy in SAMPLES]
    return [camera.normalize(pixel_grid(camera) + sample) for sample in samples]


def _board_light(rays, T_bc):
    """Gray levels of rays (N, 2) in normalized coordinates."""
    directions = np.column_stack([rays, np.ones(len(rays))]) @ T_bc[:3, :3].T
    center = T_bc[:3, 3]
    points = center - directions * (center[2] / directions[:, 2])[:, None]
    squares = np.floor(np.nan_to_num(points[:, :2], nan=1e6) / BOARD.square_m)
    inside = np.all((squares >= -1) & (squares < (BOARD.columns, BOARD.rows)), axis=1)
    margin = np.all((squares >= -2) & (squares <= (BOARD.columns, BOARD.rows)), axis=1)
    dark = squares.sum(axis=1) % 2 == 0
    return np.where(inside, np.where(dark, 25.0, 225.0), np.where(margin, 225.0, 110.0))

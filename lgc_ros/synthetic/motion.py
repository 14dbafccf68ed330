"""Camera trajectories through a synthetic scene: a hand-held walk, a loop, a rotation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lgc_ros.synthetic.scene import Scene

EYE_HEIGHT_M = 1.5


class HandheldMotion:
    """The aisle of a scene and random sways of a hand-held camera, shared by all trajectories."""

    def __init__(self, scene: Scene, seed: int, duration_s: float, speed_mps: float):
        rng = np.random.default_rng((seed, 3))
        aisle, self.pitch = scene.aisle, scene.pitch
        self.duration_s = max(duration_s, 1e-9)
        self.speed_mps = speed_mps
        self.start = rng.random()
        self.direction = rng.choice([-1, 1])
        self._phases = rng.uniform(0, 2 * np.pi, 9)
        self._angles = np.linspace(0, 2 * np.pi, 2049)
        self._points = aisle * np.column_stack([np.cos(self._angles), np.sin(self._angles)])
        steps = np.linalg.norm(np.diff(self._points, axis=0), axis=1)
        self._arc_m = np.concatenate([[0], np.cumsum(steps)])
        self.length_m = self._arc_m[-1]
        self._aisle = aisle

    def sway(self, time_s: float, period_s: float, index: int) -> float:
        """A sine of the given period; each index has its own random phase."""
        return np.sin(2 * np.pi * time_s / period_s + self._phases[index])

    def along(self, distance_m: float) -> tuple[np.ndarray, float]:
        """Point (x, y) and heading (radians) after a distance along the aisle."""
        arc_m = (self.start * self.length_m + self.direction * distance_m) % self.length_m
        angle = np.interp(arc_m, self._arc_m, self._angles)
        c, s = np.cos(angle), np.sin(angle)
        tangent = self.direction * self._aisle * (-s, c)
        return self._aisle * (c, s), np.arctan2(tangent[1], tangent[0])


def walk(motion: HandheldMotion, time_s: float) -> np.ndarray:
    """A hand-held walk along the aisle at `speed_mps`, looking around."""
    return _stroll(motion, time_s, motion.speed_mps, lambda period_s: period_s)


def loop(motion: HandheldMotion, time_s: float) -> np.ndarray:
    """Once around the aisle; the last pose equals the first."""

    def fitting(period_s: float) -> float:
        return motion.duration_s / max(round(motion.duration_s / period_s), 1)

    return _stroll(motion, time_s, motion.length_m / motion.duration_s, fitting)


def rotation(motion: HandheldMotion, time_s: float) -> np.ndarray:
    """Pure rotation at 25 degrees per second about a fixed camera center."""
    (x, y), heading = motion.along(0.0)
    yaw = heading + motion.direction * np.radians(25) * time_s
    pitch = motion.pitch + 0.09 * motion.sway(time_s, 4.3, 0)
    return _pose((x, y, EYE_HEIGHT_M), yaw, pitch, 0.04 * motion.sway(time_s, 3.1, 1))


def standstill(motion: HandheldMotion, time_s: float) -> np.ndarray:
    """A camera at rest."""
    return rotation(motion, 0.0)


def _stroll(motion: HandheldMotion, t: float, speed_mps: float, period: Callable) -> np.ndarray:
    """A hand-held camera: steps bob it, and it looks around, mostly into the room."""
    (x, y), heading = motion.along(speed_mps * t)
    aside = 0.14 * motion.sway(t, period(7.3), 0) + 0.012 * motion.sway(t, period(1.1), 1)
    x, y = x - aside * np.sin(heading), y + aside * np.cos(heading)
    step = 0.015 * motion.sway(t, period(0.55), 3)
    z = EYE_HEIGHT_M + 0.06 * motion.sway(t, period(9.1), 2) + step
    gaze = 0.35 * motion.sway(t, period(6.1), 4) + 0.12 * motion.sway(t, period(2.7), 5)
    yaw = heading + motion.direction * 0.4 + gaze
    pitch = motion.pitch + 0.07 * motion.sway(t, period(4.3), 6) + 0.3 * step
    roll = 0.02 * motion.sway(t, period(3.7), 7) + 0.006 * motion.sway(t, period(1.1), 8)
    return _pose((x, y, z), yaw, pitch, roll)


def _pose(position, yaw: float, pitch: float, roll: float) -> np.ndarray:
    """T_wc of a camera; yaw from the x axis of the world, pitch upwards, roll about the view."""
    cy, sy, cp, sp = np.cos(yaw), np.sin(yaw), np.cos(pitch), np.sin(pitch)
    forward, right = np.array([cy * cp, sy * cp, sp]), np.array([sy, -cy, 0.0])
    down = np.cross(forward, right)
    c, s = np.cos(roll), np.sin(roll)
    T_wc = np.eye(4)
    T_wc[:3, :3] = np.column_stack([c * right + s * down, c * down - s * right, forward])
    T_wc[:3, 3] = position
    return T_wc


TRAJECTORIES: dict[str, Callable[[HandheldMotion, float], np.ndarray]] = {
    "walk": walk,
    "loop": loop,
    "rotation": rotation,
    "standstill": standstill,
}

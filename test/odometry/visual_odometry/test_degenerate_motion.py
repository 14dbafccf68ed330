"""Motions that two views cannot tell: pure rotation, standstill, a single plane."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
from walks import (
    CAMERA,
    OPTIONS,
    process,
    rotation_errors_deg,
    standing_still,
    statuses,
    tracked,
    truth,
)

from lgc_ros.evaluation.trajectory_metrics import evaluate_trajectory
from lgc_ros.features.base import Features
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import Frame
from lgc_ros.odometry.state import TRACKED
from lgc_ros.odometry.visual_odometry import VisualOdometry
from lgc_ros.sources.synthetic import SyntheticSource


def test_pure_rotation_is_reported_and_holds_translation(source):
    frames = list(
        SyntheticSource("rotation", 30, rate_hz=10.0, camera=CAMERA, noise=1.5, world=source.world)
    )
    states = process(frames)
    assert set(statuses(states[1:])) <= {"rotation_only", "no_motion"}
    assert statuses(states).count("rotation_only") > 25
    assert max(rotation_errors_deg(states, frames)) < 1.0
    for state in states:
        np.testing.assert_allclose(state.T_wc[:3, 3], 0, atol=1e-12)


def test_pure_rotation_after_a_walk_holds_translation(source, walk):
    pivot = walk[14].T_wc
    frames = walk[:15]
    for k in range(1, 13):
        turn = np.eye(4)
        angle = np.radians(1.5 * k)
        turn[:3, :3] = [
            [np.cos(angle), 0, np.sin(angle)],
            [0, 1, 0],
            [-np.sin(angle), 0, np.cos(angle)],
        ]
        T_wc = pivot @ turn
        image, depth = source.world.render(CAMERA, T_wc)
        stamp_ns = walk[14].stamp_ns + k * 100_000_000
        frames.append(replace(walk[14], stamp_ns=stamp_ns, image=image, depth=depth, T_wc=T_wc))
    states = process(frames)
    scale = evaluate_trajectory(tracked(states[:15]), truth(walk)).scale
    assert max(rotation_errors_deg(states, frames)) < 1.5
    assert set(statuses(states[15:])) <= set(TRACKED)
    moved_m = [scale * np.linalg.norm(s.T_wc[:3, 3] - states[14].T_wc[:3, 3]) for s in states[15:]]
    assert max(moved_m) < 0.03


def turn_before_a_walk(source, walk, degrees):
    """A camera that turns on the spot, 3 degrees per frame, until it looks where it walks."""
    frames, first = [], walk[0]
    for angle in np.radians(np.arange(degrees, 0, -3)):
        turn = np.eye(4)
        turn[:3, :3], _ = cv2.Rodrigues(np.array([0.0, angle, 0.0]))
        T_wc = first.T_wc @ turn
        image, depth = source.world.render(CAMERA, T_wc)
        stamp_ns = first.stamp_ns - round(np.degrees(angle) / 3) * 100_000_000
        frames.append(replace(first, stamp_ns=stamp_ns, image=image, depth=depth, T_wc=T_wc))
    return frames + walk


def test_a_turn_on_the_spot_before_a_walk_does_not_initialize_the_map(source, walk):
    """At its end, few matches with the first view are left, and many of them are wrong."""
    frames = turn_before_a_walk(source, walk[:12], degrees=60)
    states = process(frames)
    assert set(statuses(states[1:21])) <= {"rotation_only"}
    assert max(rotation_errors_deg(states, frames)) < 1.0
    assert set(statuses(states[24:])) == {"ok"}
    errors = evaluate_trajectory(tracked(states[24:]), truth(frames))
    assert errors.ate_rmse_m < 0.01 * truth(walk[:12]).length_m


def wall(count):
    """Views of nothing but a wall, one unit away; the camera passes along it and turns."""
    rng = np.random.default_rng(1)
    texture = cv2.GaussianBlur(rng.integers(0, 256, (480, 640), np.uint8), (0, 0), 1.5)
    texture = cv2.normalize(texture, None, 0, 255, cv2.NORM_MINMAX)
    large = np.array([[262.5, 0, 319.5], [0, 262.5, 239.5], [0, 0, 1]])
    frames = []
    for k in range(count):
        T_cw = np.eye(4)
        T_cw[:3, :3], _ = cv2.Rodrigues(np.array([0.0, -0.02 * k, 0.0]))
        T_cw[:3, 3] = -0.04 * k, 0.01 * k, 0.0
        plane = T_cw[:3, :3] + np.outer(T_cw[:3, 3], [0, 0, 1])
        image = cv2.warpPerspective(texture, CAMERA.K @ plane @ np.linalg.inv(large), CAMERA.size)
        frames.append(Frame(k, k * 100_000_000, image, CAMERA, np.linalg.inv(T_cw)))
    return frames


def test_a_wall_alone_is_degenerate_until_one_motion_explains_it():
    """Two views of a plane fit two motions; the views between tell them apart."""
    frames = wall(12)
    states = process(frames)
    begin = statuses(states).index("ok")
    assert "degenerate" in statuses(states[:begin])
    for state in states[:begin]:
        np.testing.assert_allclose(state.T_wc[:3, 3], 0, atol=1e-12)
    assert set(statuses(states[begin:])) == {"ok"}
    assert begin < 8
    errors = evaluate_trajectory(tracked(states[begin:]), truth(frames))
    assert errors.ate_rmse_m < 0.01 * truth(frames).length_m
    assert max(rotation_errors_deg(states, frames)[begin:]) < 0.5


def drive(points, count, step_m, noise_px=0.3):
    """A camera that drives ahead through points, each of which always looks the same."""
    camera = Camera.from_K([[460, 0, 399.5], [0, 460, 149.5], [0, 0, 1]], 800, 300)
    rng = np.random.default_rng(0)
    looks = rng.uniform(0, 255, (len(points), 32)).astype(np.float32)
    odometry, states, frames = VisualOdometry(OPTIONS), [], []
    for k in range(count):
        T_wc = np.eye(4)
        T_wc[2, 3] = k * step_m
        points_cam = points - T_wc[:3, 3]
        pixels = camera.project(points_cam) + rng.normal(0, noise_px, (len(points), 2))
        seen = (points_cam[:, 2] > 1) & (pixels > 0).all(1) & (pixels < camera.size).all(1)
        n = int(seen.sum())
        nothing = np.zeros(n, np.float32)
        features = Features(
            pixels[seen].astype(np.float32), looks[seen], nothing + 1, nothing, nothing, "sift"
        )
        image = np.zeros((300, 800), np.uint8)
        frames.append(Frame(k, k * 100_000_000, image, camera, T_wc))
        states.append(odometry.process(frames[-1], features=lambda features=features: features))
    return states, frames


def test_a_start_on_the_road_needs_no_parallax_of_far_points():
    """Most of what a car sees is far; the way while landmarks are awaited would be lost."""
    rng = np.random.default_rng(1)
    near = rng.uniform([-12, -4, 4], [12, 2, 40], (600, 3))
    far = rng.uniform([-300, -80, 400], [300, 60, 900], (400, 3))
    states, frames = drive(np.vstack([near, far]), count=10, step_m=1.2)
    assert set(statuses(states[4:])) == {"ok"}
    ratio = [s.T_wc[2, 3] / f.T_wc[2, 3] for s, f in zip(states[4:], frames[4:], strict=True)]
    np.testing.assert_allclose(ratio, ratio[-1], rtol=0.01)


@pytest.mark.slow
def test_standing_still_for_100_frames_does_not_move(walk):
    states = process(standing_still(walk[0], 100))
    assert set(statuses(states[1:])) == {"no_motion"}
    for state in states:
        np.testing.assert_array_equal(state.T_wc, np.eye(4))


def test_standing_still_after_a_walk_does_not_move(walk):
    still = standing_still(walk[14], 20)
    states = process(walk[:15] + still)
    assert statuses(states[15:]).count("no_motion") >= 18
    path = np.array([state.T_wc[:3, 3] for state in states])
    way = np.linalg.norm(np.diff(path[:15], axis=0), axis=1).sum()
    assert np.linalg.norm(path[15:] - path[-1], axis=1).max() < 0.005 * way


def test_a_repeated_image_is_no_motion(walk):
    """A driver that sends the same picture again, with a new stamp."""
    frames = [
        replace(frame, stamp_ns=frame.stamp_ns + late_ns)
        for frame in walk[:10]
        for late_ns in (0, 50_000_000)
    ]
    states = process(frames)
    for state, again in zip(states[10::2], states[11::2], strict=True):
        assert state.status == "ok"
        assert again.status == "no_motion"
        np.testing.assert_array_equal(again.T_wc, state.T_wc)

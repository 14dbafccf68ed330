"""Visual odometry on the synthetic world, whose truth is known, and on real sequences."""

import os
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest

from lgc_ros.errors import CameraError, FeatureError
from lgc_ros.evaluation.trajectory_metrics import evaluate_trajectory
from lgc_ros.features.base import Features
from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.epipolar import rotation_error_deg
from lgc_ros.geometry.trajectory import Trajectory
from lgc_ros.images.frame import Frame
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.scale import ScaleOptions
from lgc_ros.odometry.state import STATUSES, TRACKED
from lgc_ros.odometry.visual_odometry import VisualOdometry
from lgc_ros.sources import open_source
from lgc_ros.sources.synthetic import SyntheticSource

CAMERA = Camera.from_K([[262.5, 0, 159.5], [0, 262.5, 119.5], [0, 0, 1]], 320, 240)
# Baseline and small, so that these tests are about odometry and not about a network.
OPTIONS = OdometryOptions(method="poselib+ratio", max_keypoints=600, max_iterations=200)


@pytest.fixture(scope="module")
def source():
    """Three seconds of walking."""
    return SyntheticSource("walk", 30, rate_hz=10.0, camera=CAMERA, noise=1.5)


@pytest.fixture(scope="module")
def walk(source):
    """Its frames, rendered once for all tests."""
    return list(source)


def process(frames, options=OPTIONS):
    odometry = VisualOdometry(options)
    return [odometry.process(frame) for frame in frames]


def statuses(states):
    return [state.status for state in states]


def tracked(states):
    return Trajectory.from_poses((s.stamp_ns, s.T_wc) for s in states if s.tracked)


def truth(frames):
    return Trajectory.from_poses((frame.stamp_ns, frame.T_wc) for frame in frames)


def rotation_errors_deg(states, frames):
    """Of every state, against the truth in the first camera's frame."""
    R_0w = frames[0].T_wc[:3, :3].T
    return [
        rotation_error_deg(state.T_wc[:3, :3], R_0w @ frame.T_wc[:3, :3])
        for state, frame in zip(states, frames, strict=True)
    ]


def picture_of(frame, image):
    return replace(frame, image=image)


@pytest.fixture(scope="module")
def walked(walk):
    return process(walk)


def test_a_walk_is_followed_with_one_scale(walk, walked):
    assert set(statuses(walked)) <= set(STATUSES)
    assert walked[0].status == "initializing"
    assert set(statuses(walked[6:])) == {"ok"}
    errors = evaluate_trajectory(tracked(walked), truth(walk))
    assert errors.ate_rmse_m < 0.02 * truth(walk).length_m
    assert max(rotation_errors_deg(walked, walk)) < 1.5


def test_a_walk_is_followed_with_the_keypoints_of_an_extractor_file(walk, heads_model):
    model = heads_model(trackable=True, contrast=100.0)
    options = replace(OPTIONS, features="own", extractor_model=str(model))
    states = process(walk[:14], options)
    assert set(statuses(states[5:])) == {"ok"}
    errors = evaluate_trajectory(tracked(states), truth(walk[:14]))
    assert errors.ate_rmse_m < 0.05 * truth(walk[:14]).length_m


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"features": "xfeat"}, "xfeat needs an extractor model"),
        ({"features": "xfeat", "extractor_model": "no.onnx"}, r"no\.onnx does not exist"),
        ({"extractor_model": "no.onnx"}, "sift takes no extractor model"),
    ],
)
def test_an_extractor_file_that_does_not_fit_is_refused_before_the_first_frame(changes, complaint):
    with pytest.raises(FeatureError, match=complaint):
        VisualOdometry(replace(OPTIONS, **changes))


def xfeat_file(data_dir):
    path = data_dir / "weights" / "xfeat" / "xfeat_480x640_gray_heads.onnx"
    if not path.is_file():
        pytest.skip(f"{path} does not exist: no weights of XFeat")
    pytest.importorskip("onnxruntime")
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("tracking", ["flow", "match"])
def test_xfeat_and_its_filter_follow_a_real_drive(data_dir, tracking):
    frames = list(open_source(data_dir / "kitti_a", limit=20))
    model = xfeat_file(data_dir)
    options = OdometryOptions(features="xfeat", extractor_model=model, tracking=tracking)
    states = process(frames, options)
    assert set(statuses(states[4:])) == {"ok"}
    errors = evaluate_trajectory(tracked(states), truth(frames))
    assert errors.ate_rmse_m < 0.02 * truth(frames).length_m


def test_the_first_camera_is_the_world(walked):
    np.testing.assert_array_equal(walked[0].T_wc, np.eye(4))


def test_a_state_tells_what_its_pose_rests_on(walk, walked):
    state = walked[-1]
    assert len(state.points_cam) == len(state.points_px) == len(state.scores) > 30
    assert state.counts["features"] >= state.counts["matches"] >= state.counts["kept"]
    assert state.counts["inliers"] >= state.counts["landmarks"] == len(state.points_cam)
    offset = CAMERA.project(state.points_cam) - state.points_px
    assert np.median(np.linalg.norm(offset, axis=1)) < 1.5
    assert state.relative.pose is not None
    assert state.relative_stamp_ns in [frame.stamp_ns for frame in walk]
    assert state.tracking == "flow"
    assert "flow" in state.ms


def test_a_matched_state_tells_the_time_of_each_stage(walk):
    state = process(walk[:6], replace(OPTIONS, tracking="match"))[-1]
    assert state.tracking == "match"
    assert {"features", "match", "filter", "estimate", "track"} <= state.ms.keys()


def test_the_twist_is_the_motion_since_the_last_state(walked):
    last, state = walked[-2:]
    moved = np.linalg.inv(last.T_wc) @ state.T_wc
    seconds = (state.stamp_ns - last.stamp_ns) * 1e-9
    np.testing.assert_allclose(
        np.linalg.norm(state.twist[:3]), np.linalg.norm(moved[:3, 3]) / seconds
    )
    angle = np.radians(rotation_error_deg(moved[:3, :3], np.eye(3)))
    np.testing.assert_allclose(np.linalg.norm(state.twist[3:]), angle / seconds, rtol=1e-6)


def test_the_same_frames_give_the_same_states(walk, walked):
    again = process(walk[:15])
    for a, b in zip(walked, again, strict=False):
        np.testing.assert_array_equal(a.T_wc, b.T_wc)
        np.testing.assert_array_equal(a.covariance, b.covariance)


def test_reset_begins_a_new_world(walk, walked):
    odometry = VisualOdometry(OPTIONS)
    for frame in walk[:8]:
        odometry.process(frame)
    odometry.reset()
    states = [odometry.process(frame) for frame in walk[:8]]
    for a, b in zip(walked, states, strict=False):
        np.testing.assert_array_equal(a.T_wc, b.T_wc)


@pytest.mark.slow
def test_a_loop_ends_where_it_began(source):
    frames = list(
        SyntheticSource("loop", 90, rate_hz=10.0, camera=CAMERA, noise=1.5, world=source.world)
    )
    states = process(frames)
    assert set(statuses(states[6:])) == {"ok"}
    errors = evaluate_trajectory(tracked(states), truth(frames))
    length_m = truth(frames).length_m
    assert errors.ate_rmse_m < 0.02 * length_m
    ends = errors.aligned.T_wc[[0, -1], :3, 3]
    assert np.linalg.norm(ends[1] - ends[0]) < 0.04 * length_m
    assert rotation_errors_deg(states, frames)[-1] < 3.0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["poselib+ratio", "cn"])
def test_a_map_that_views_refute_is_made_anew(walk, method):
    """As after a wrong start: landmarks in places that are not theirs."""
    odometry = VisualOdometry(replace(OPTIONS, method=method, tracking="match"))
    frames = iter(walk)
    while odometry.process(next(frames)).status != "ok":
        pass
    odometry.map.points = np.random.default_rng(0).permutation(odometry.map.points)
    states = [odometry.process(frame) for frame in frames]
    assert states[0].status == "few_matches"
    assert "landmarks" in states[0].message
    again = statuses(states).index("ok")
    assert again < 8
    assert set(statuses(states[again:])) == {"ok"}
    errors = evaluate_trajectory(tracked(states[again:]), truth(walk))
    assert errors.ate_rmse_m < 0.02 * truth(walk).length_m


def make_uncertain(odometry):
    odometry.map.covariances = 1e6 * odometry.map.covariances


def draw_to_the_camera(odometry):
    centre = odometry.map.keyframes[-1].center
    odometry.map.points = centre + 1e-7 * (odometry.map.points - centre)


@pytest.mark.parametrize("spoil", [make_uncertain, draw_to_the_camera])
def test_landmarks_that_leave_the_pose_undetermined_do_not_count_as_tracking(walk, spoil):
    """The camera moves on; a variance that says nothing must not pass for no motion."""
    odometry = VisualOdometry(replace(OPTIONS, tracking="match"))
    frames = iter(walk)
    while odometry.process(next(frames)).status != "ok":
        pass
    spoil(odometry)
    states = [odometry.process(frame) for frame in frames]
    assert states[0].status == "few_matches"
    again = statuses(states).index("ok")
    assert again < 8
    assert set(statuses(states[again:])) == {"ok"}
    errors = evaluate_trajectory(tracked(states[again:]), truth(walk))
    assert errors.ate_rmse_m < 0.02 * truth(walk).length_m


@pytest.mark.slow
@pytest.mark.parametrize("room", [3, 4])
def test_a_map_begun_anew_elsewhere_goes_on_at_the_same_speed(walk, room):
    """Nothing is in common; by depth alone the unit would be 9 % too small, 16 % too large."""
    before, period_ns = walk[:16], walk[1].stamp_ns - walk[0].stamp_ns
    elsewhere = SyntheticSource("walk", 22, rate_hz=10.0, camera=CAMERA, noise=1.5, seed=room)
    after = [
        replace(frame, stamp_ns=before[-1].stamp_ns + (k + 1) * period_ns)
        for k, frame in enumerate(elsewhere)
    ]
    states = process(before + after)
    assert "lost" in statuses(states)
    assert set(statuses(states[-8:])) == {"ok"}

    def unit(states, frames):
        return tracked(states).length_m / truth(frames).length_m

    assert unit(states[-8:], after[-8:]) == pytest.approx(unit(states[6:16], before[6:]), rel=0.05)


def test_the_learned_filter_follows_the_walk(walk):
    states = process(walk[:14], replace(OPTIONS, method="cn"))
    assert set(statuses(states[6:])) == {"ok"}
    errors = evaluate_trajectory(tracked(states), truth(walk))
    assert errors.ate_rmse_m < 0.03 * truth(walk[:14]).length_m


def test_landmarks_that_explain_what_the_filter_kept_make_a_two_view_pose_needless(walk):
    states = process(walk[:14], replace(OPTIONS, method="cn"))
    by_stamp = {frame.stamp_ns: frame for frame in walk}
    needless = [state for state in states[6:] if "estimate" not in state.ms]
    assert len(needless) > 4
    for state in needless:
        T_wc0, T_wc1 = (
            by_stamp[stamp].T_wc for stamp in (state.relative_stamp_ns, state.stamp_ns)
        )
        T_10 = np.linalg.inv(T_wc1) @ T_wc0
        direction = T_10[:3, 3] / np.linalg.norm(T_10[:3, 3])
        assert rotation_error_deg(state.relative.pose.R_10, T_10[:3, :3]) < 0.5
        assert state.relative.pose.t_10 @ direction > np.cos(np.radians(5))
        assert state.relative.inliers.sum() > 0.8 * state.relative.kept.sum()


@pytest.mark.slow
def test_a_turn_makes_keyframes_before_the_view_is_gone(walk):
    def turns_between_keyframes_deg(limit_deg):
        states = process(walk, replace(OPTIONS, keyframe_turn_deg=limit_deg))
        rotations = [state.T_wc[:3, :3] for state in states[5:] if state.keyframe]
        return [rotation_error_deg(a, b) for a, b in pairwise(rotations)]

    often, seldom = turns_between_keyframes_deg(3.0), turns_between_keyframes_deg(90.0)
    assert len(often) > len(seldom)
    assert max(often) < max(seldom)


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


def standing_still(frame, count):
    """What a camera sees that does not move: the same, with other noise."""
    rng = np.random.default_rng(0)
    clean = frame.image.astype(np.float32)
    return [
        replace(
            frame,
            stamp_ns=frame.stamp_ns + k * 50_000_000,
            image=np.clip(clean + rng.normal(0, 1.5, clean.shape), 0, 255).astype(np.uint8),
        )
        for k in range(1, count + 1)
    ]


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


@pytest.mark.parametrize("level", [0, 128])
def test_blank_frames_hold_the_pose_and_it_recovers(walk, walked, level):
    blank = np.full_like(walk[0].image, level)
    frames = [picture_of(f, blank) if 12 <= i < 15 else f for i, f in enumerate(walk[:20])]
    states = process(frames)
    for state in states[12:15]:
        assert state.status == "few_matches"
        np.testing.assert_array_equal(state.T_wc, states[11].T_wc)
        assert np.trace(state.covariance) > np.trace(states[11].covariance)
    assert set(statuses(states[15:])) == {"ok"}
    assert np.linalg.norm(states[19].T_wc[:3, 3] - walked[19].T_wc[:3, 3]) < 0.05 * np.linalg.norm(
        walked[19].T_wc[:3, 3]
    )


def test_after_ten_lost_frames_it_recovers_when_the_view_returns(walk):
    black = np.zeros_like(walk[0].image)
    frames = [picture_of(f, black) if 10 <= i < 20 else f for i, f in enumerate(walk)]
    frames[20:] = [
        replace(walk[k], stamp_ns=frames[19].stamp_ns + (i + 1) * 100_000_000)
        for i, k in enumerate(range(9, -1, -1))
    ]
    states = process(frames)
    assert "lost" in statuses(states[10:20])
    assert set(statuses(states[20:24])) <= set(TRACKED)
    back, there = states[20].T_wc[:3, 3], states[9].T_wc[:3, 3]
    assert np.linalg.norm(back - there) < 0.02 * np.linalg.norm(there)


def test_lost_for_long_it_begins_anew_where_it_was(source, walk):
    black = np.zeros_like(walk[0].image)
    other = list(
        SyntheticSource(
            "walk", 12, rate_hz=10.0, camera=CAMERA, noise=1.5, seed=5, world=source.world
        )
    )
    frames = walk[:10] + [picture_of(f, black) for f in walk[10:16]]
    start_ns = frames[-1].stamp_ns + 3_000_000_000
    frames += [replace(f, stamp_ns=start_ns + i * 100_000_000) for i, f in enumerate(other)]
    states = process(frames)
    assert statuses(states)[-1] == "ok"
    new = next(i for i in range(16, 28) if states[i].status in ("initializing", "ok"))
    np.testing.assert_allclose(states[new].T_wc, states[9].T_wc)


@pytest.mark.slow
@pytest.mark.parametrize("moving", [False, True])
def test_a_view_covered_for_long_is_found_again(source, walk, moving):
    """What covers it is full of keypoints, so odometry begins anew on that meanwhile."""
    cover = SyntheticSource("walk", 12, rate_hz=10.0, camera=CAMERA, kind="street", seed=7)
    covered = [picture_of(walk[10], cover[i if moving else 0].image) for i in range(12)]
    frames = walk[:10] + covered + walk[10:13]
    frames = [replace(f, stamp_ns=i * 100_000_000) for i, f in enumerate(frames)]
    states = process(frames)
    again = next(i for i in range(14, 22) if states[i].status not in ("few_matches", "lost"))
    assert states[again].keyframe
    np.testing.assert_allclose(states[again].T_wc, states[9].T_wc)
    assert set(statuses(states[-3:])) == {"ok"}
    steps = np.diff([s.T_wc[:3, 3] for s in (states[8], states[9], states[22])], axis=0)
    before, after = np.linalg.norm(steps, axis=1)
    assert after < 2 * before


@pytest.mark.parametrize("memory", [{}, {"max_keyframes": 3, "window": 2}], ids=["all", "short"])
def test_coming_back_meets_the_way_out(walk, memory):
    back = [
        replace(walk[k], stamp_ns=walk[14].stamp_ns + (14 - k) * 100_000_000)
        for k in range(13, -1, -1)
    ]
    states = process(walk[:15] + back, replace(OPTIONS, **memory))
    assert set(statuses(states[6:])) <= set(TRACKED)
    out, returned = (np.array([s.T_wc[:3, 3] for s in part]) for part in (states, states[::-1]))
    way = np.linalg.norm(np.diff(out[:15], axis=0), axis=1).sum()
    assert np.linalg.norm(out[6:15] - returned[6:15], axis=1).max() < 0.05 * way


def test_a_repeated_frame_changes_nothing(walk, walked):
    odometry = VisualOdometry(OPTIONS)
    doubled = [odometry.process(frame) for frame in walk[:10] for _ in range(2)]
    for once, state, repeated in zip(walked, doubled[::2], doubled[1::2], strict=False):
        np.testing.assert_array_equal(state.T_wc, once.T_wc)
        np.testing.assert_array_equal(repeated.T_wc, once.T_wc)
        assert "stamp" in repeated.message


def test_a_doubled_image_is_no_motion(walk):
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


def test_a_frame_out_of_order_is_refused_and_changes_nothing(walk, walked):
    odometry = VisualOdometry(OPTIONS)
    states = [odometry.process(frame) for frame in walk[:8]]
    late = odometry.process(walk[3])
    assert late.status == "lost"
    assert "older" in late.message
    assert not late.tracked
    np.testing.assert_array_equal(odometry.process(walk[8]).T_wc, walked[8].T_wc)
    assert states[-1].tracked


def test_a_camera_that_changes_to_another_resolution_is_followed(walk):
    large = Camera.from_K([[525, 0, 319.5], [0, 525, 239.5], [0, 0, 1]], 640, 480)
    enlarged = [
        replace(frame, image=cv2.resize(frame.image, (640, 480)), camera=large, depth=None)
        for frame in walk[10:14]
    ]
    states = process(walk[:10] + enlarged)
    assert set(statuses(states[10:])) == {"ok"}
    errors = evaluate_trajectory(tracked(states), truth(walk))
    assert errors.ate_rmse_m < 0.02 * truth(walk[:14]).length_m


def test_an_image_that_does_not_fit_its_camera_is_lost_and_named(walk):
    frames = [*walk[:6], picture_of(walk[6], walk[6].image[:100]), *walk[7:9]]
    states = process(frames)
    assert not states[6].tracked
    assert "320x240" in states[6].message
    assert states[7].status == "ok"


def test_a_frame_without_a_camera_is_an_error(walk):
    with pytest.raises(CameraError, match="--camera"):
        VisualOdometry(OPTIONS).process(replace(walk[0], camera=None))


def test_blank_frames_from_the_start_wait_for_something_to_see(walk):
    blank = np.full_like(walk[0].image, 90)
    states = process([picture_of(f, blank) for f in walk[:3]] + walk[3:12])
    assert not any(state.tracked for state in states[:3])
    assert states[-1].status == "ok"


def in_metres(source, **options):
    return replace(OPTIONS, scale=ScaleOptions(source, **options))


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [(in_metres("depth"), 0.02), (in_metres("constant_speed", speed_mps=0.8), 0.1)],
    ids=["depth", "constant_speed"],
)
def test_a_scale_source_gives_metres(walk, options, tolerance):
    states = process(walk[:20], options)
    with_landmarks = states[statuses(states).index("ok") :]
    errors = evaluate_trajectory(tracked(with_landmarks), truth(walk))
    assert errors.scale == pytest.approx(1.0, abs=tolerance)


def test_wheel_odometry_gives_metres(walk):
    odometry = VisualOdometry(in_metres("odom"))
    states = [odometry.process(frame, frame.T_wc) for frame in walk[:20]]
    errors = evaluate_trajectory(tracked(states), truth(walk))
    assert errors.scale == pytest.approx(1.0, abs=0.03)


def test_without_a_scale_source_the_covariance_is_large_along_the_way(walked):
    state = walked[-1]
    position = state.T_wc[:3, 3]
    along = position / np.linalg.norm(position)
    across = np.cross(along, [0, 1, 0])
    across /= np.linalg.norm(across)
    C = state.covariance[:3, :3]
    assert np.sqrt(along @ C @ along) > 0.5 * np.linalg.norm(position)
    assert np.sqrt(across @ C @ across) < 0.1 * np.sqrt(along @ C @ along)


def test_covariances_are_symmetric_and_positive(walked):
    for state in walked[6:]:
        np.testing.assert_allclose(state.covariance, state.covariance.T, atol=1e-12)
        assert np.linalg.eigvalsh(state.covariance).min() > 0


def squared_errors(states, frames):
    """Normalized estimation errors squared of six numbers: 6 on average if all were well."""
    T_0w = np.linalg.inv(frames[0].T_wc)
    squares = []
    for state, frame in zip(states, frames, strict=True):
        if not state.tracked:
            continue
        T_true = T_0w @ frame.T_wc
        R_error = T_true[:3, :3] @ state.T_wc[:3, :3].T
        turn = (R_error - R_error.T)[[2, 0, 1], [1, 2, 0]] / 2
        error = np.concatenate([T_true[:3, 3] - state.T_wc[:3, 3], turn])
        squares.append(error @ np.linalg.solve(state.covariance, error))
    return np.array(squares)


@pytest.mark.slow
def test_the_covariance_is_of_the_size_of_the_errors(source, walk):
    """Ten walks in this room had means from 0.9 to 4.9, 2.8 together; these four have 3.5.

    Deviations assumed half or twice as large as they are would leave the bounds.
    """
    others = (
        SyntheticSource(
            "walk", 30, rate_hz=10.0, camera=CAMERA, noise=1.5, seed=seed, world=source.world
        )
        for seed in (5, 6, 7)
    )
    squares = []
    for frames in (walk, *map(list, others)):
        states = process(frames, in_metres("depth"))
        squares.append(squared_errors(states, frames).mean())
    assert 2 < np.mean(squares) < 12


def position_errors_m(states, frames):
    """Of every state, against the truth in the first camera's frame."""
    T_0w = np.linalg.inv(frames[0].T_wc)
    return np.array(
        [
            np.linalg.norm(state.T_wc[:3, 3] - (T_0w @ frame.T_wc)[:3, 3])
            for state, frame in zip(states, frames, strict=True)
        ]
    )


def in_metres_from_the_first_step(states, frames):
    """Whether nothing but the origin and true positions was published, and the robot set out."""
    moved = np.array([np.linalg.norm(state.T_wc[:3, 3]) for state in states])
    errors = position_errors_m(states, frames)
    sigmas = np.sqrt([np.trace(state.covariance[:3, :3]) for state in states])
    return (
        moved[-1] > 0
        and (errors[moved > 0] < 0.02 * truth(frames).length_m).all()
        and (errors <= 3 * sigmas).all()
    )


def test_wheel_odometry_that_starts_late_gives_metres_from_the_first_step(walk):
    odometry = VisualOdometry(in_metres("odom"))
    states = [odometry.process(f, None if f in walk[:8] else f.T_wc) for f in walk]
    assert in_metres_from_the_first_step(states, walk)
    held = states[7]
    assert held.status == "initializing"
    assert "wheel odometry" in held.message


def test_wheel_odometry_that_always_arrives_late_gives_metres_from_the_first_step(walk):
    """Three frames after its image; only the latest poses are remembered."""
    odometry, states = VisualOdometry(in_metres("odom")), []

    def wheels(index):
        age = len(states) - index
        return walk[index].T_wc if 3 <= age < 8 else None

    for index, frame in enumerate(walk):
        states.append(odometry.process(frame, partial(wheels, index)))
    assert in_metres_from_the_first_step(states, walk)
    assert odometry.scale_warning() == ""
    assert states[-1].scale_sigma < 0.1


@pytest.mark.parametrize("missing", [3, 12])
def test_depth_that_starts_late_gives_metres_from_the_first_step(walk, missing):
    frames = [replace(frame, depth=None) for frame in walk[:missing]] + walk[missing:]
    states = process(frames, in_metres("depth"))
    assert in_metres_from_the_first_step(states, walk)


@pytest.mark.slow
@pytest.mark.parametrize("measured", ["odom", "depth"])
def test_without_a_measurement_the_position_is_held_for_a_while_then_in_units(walk, measured):
    frames = [replace(frame, depth=None) for frame in walk]
    options = in_metres(measured, wait_s=0.5)
    states = process(frames, options)
    free = statuses(states).index("ok")
    landmarks = next(i for i, state in enumerate(states) if state.counts.get("landmarks"))
    waited_s = (walk[free].stamp_ns - walk[landmarks].stamp_ns) * 1e-9
    assert waited_s == pytest.approx(0.5, abs=0.11)
    for state in states[landmarks:free]:
        assert state.status == "initializing"
        assert f"no metric scale from {measured}" in state.message
        np.testing.assert_array_equal(state.T_wc[:3, 3], 0)
        assert (np.diag(state.covariance)[:3] > 10**2).all()
    assert set(statuses(states[free:])) == {"ok"}
    unscaled = process(frames)
    for state, expected in zip(states[free:], unscaled[free:], strict=True):
        np.testing.assert_allclose(state.T_wc, expected.T_wc, atol=1e-9)
        position = state.T_wc[:3, 3]
        assert np.trace(state.covariance[:3, :3]) > position @ position


@pytest.mark.slow
def test_a_robot_that_stands_still_does_not_use_up_the_waiting_time(walk):
    set_out = next(i for i, state in enumerate(process(walk)) if state.status == "ok") + 1
    standing = standing_still(walk[set_out], 20)
    shift_ns = standing[-1].stamp_ns - walk[set_out].stamp_ns
    on = [replace(frame, stamp_ns=frame.stamp_ns + shift_ns) for frame in walk[set_out + 1 :]]
    odometry = VisualOdometry(in_metres("odom", wait_s=1.0))
    for frame in walk[:set_out] + standing:
        assert odometry.process(frame).status != "ok"
    states = [odometry.process(frame, frame.T_wc) for frame in on]
    assert states[-1].status == "ok"
    end_m = (np.linalg.inv(walk[0].T_wc) @ on[-1].T_wc)[:3, 3]
    np.testing.assert_allclose(states[-1].T_wc[:3, 3], end_m, atol=0.05)


def test_the_first_pose_has_a_covariance_that_a_filter_can_use(walked):
    for state in walked:
        np.testing.assert_array_equal(state.covariance, state.covariance.T)
        np.linalg.cholesky(state.covariance)
    sigmas = np.sqrt(np.diag(walked[0].covariance))
    assert (sigmas[:3] <= 0.01).all()
    assert (sigmas[3:] <= 0.01).all()


def test_the_velocity_is_in_the_scale_of_now_when_that_is_corrected(walk):
    """Metres that come after the waiting time correct the map by a factor of several."""
    frames = [replace(frame, depth=None) for frame in walk[:12]] + walk[12:]
    states = process(frames, in_metres("depth", wait_s=0.0))
    known = next(i for i, state in enumerate(states) if state.scale_sigma < 0.1)
    before, now = (np.linalg.norm(states[i].twist[:3]) for i in (known - 1, known))
    assert before > 2 * now
    assert now == pytest.approx(0.8, rel=0.3)


def test_metres_that_come_too_late_leave_the_way_before_uncertain(walk):
    frames = [replace(frame, depth=None) for frame in walk[:12]] + walk[12:]
    states = process(frames, in_metres("depth", wait_s=0.0))
    position, true = states[-1].T_wc[:3, 3], (np.linalg.inv(walk[0].T_wc) @ walk[-1].T_wc)[:3, 3]
    assert np.linalg.norm(position - true) > 0.1
    C = states[-1].covariance[:3, :3]
    assert (position - true) @ np.linalg.solve(C, position - true) < 20


def data(name):
    folder = os.environ.get("LGC_DATA_DIR")
    if not folder or not (Path(folder) / name).exists():
        pytest.skip(f"LGC_DATA_DIR is not set to a folder with {name}")
    return Path(folder) / name


@pytest.mark.parametrize(("name", "frames", "every"), [("kitti_a", 15, 1), ("fr1_xyz", 20, 4)])
def test_real_sequences_are_followed(name, frames, every):
    from lgc_ros.sources import open_source

    source = list(open_source(data(name), every=every, limit=frames))
    states = process(source, replace(OPTIONS, max_keypoints=1000))
    assert set(statuses(states[6:])) == {"ok"}
    known = [frame for frame in source if frame.T_wc is not None]
    errors = evaluate_trajectory(tracked(states), truth(known))
    assert errors.ate_rmse_m < 0.03 * truth(known).length_m


@pytest.mark.slow
def test_a_sequence_with_strong_blur_keeps_its_scale():
    """Few landmarks and few matches agree on wrong poses there; no map must be made from them."""
    from lgc_ros.sources import open_source

    source = list(open_source(data("fr1_desk"), every=2))
    states = process(source, OdometryOptions())
    assert len(tracked(states)) > 0.95 * len(source)
    known = [frame for frame in source if frame.T_wc is not None]
    errors = evaluate_trajectory(tracked(states), truth(known))
    assert errors.ate_rmse_m < 0.01 * truth(known).length_m

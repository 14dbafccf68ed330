"""Tracking by optical flow: most frames need no keypoints, and the result is as precise."""

import threading
import time
from dataclasses import replace

import cv2
import numpy as np
import pytest

from lgc_ros.evaluation.runner import run_odometry
from lgc_ros.evaluation.trajectory_metrics import evaluate_trajectory
from lgc_ros.features.base import make_extractor
from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.trajectory import Trajectory
from lgc_ros.odometry.flow_tracking import PointFollower
from lgc_ros.odometry.keyframe_policy import few_points_left
from lgc_ros.odometry.map import make_view
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.visual_odometry import VisualOdometry
from lgc_ros.sources.synthetic import SyntheticSource

CAMERA = Camera.from_K([[262.5, 0, 159.5], [0, 262.5, 119.5], [0, 0, 1]], 320, 240)
OPTIONS = OdometryOptions(method="poselib+ratio", max_keypoints=600, max_iterations=200)


@pytest.fixture(scope="module")
def walk():
    """Three seconds of walking, seen by a camera of 20 Hz."""
    return list(SyntheticSource("walk", 60, rate_hz=20.0, camera=CAMERA, noise=1.5))


class CountingExtractor:
    """An extractor that counts its calls, and can be held up."""

    def __init__(self, seconds=0.0):
        self._extract, self._seconds = make_extractor("sift", 600), seconds
        self.calls, self.threads = 0, set()

    def __call__(self, image):
        self.calls += 1
        self.threads.add(threading.current_thread().name)
        time.sleep(self._seconds)
        return self._extract(image)


def error_m(states, frames):
    """ATE of the tracked frames."""
    found = Trajectory.from_poses((s.stamp_ns, s.T_wc) for s in states if s.tracked)
    return evaluate_trajectory(
        found, Trajectory.from_poses((f.stamp_ns, f.T_wc) for f in frames)
    ).ate_rmse_m


def test_keypoints_are_extracted_on_keyframes_only(walk):
    extract = CountingExtractor()
    odometry = VisualOdometry(OPTIONS, extract)
    states = [odometry.process(frame) for frame in walk]
    by_flow = [state for state in states if state.tracking == "flow"]
    assert len(by_flow) > 0.7 * len(walk)
    assert extract.calls == len(walk) - len(by_flow)
    assert not any(state.keyframe for state in by_flow)


def test_flow_is_as_precise_as_matching_every_frame(walk):
    flow, match = (
        [odometry.process(frame) for frame in walk]
        for odometry in (VisualOdometry(replace(OPTIONS, tracking=t)) for t in ("flow", "match"))
    )
    assert {state.tracking for state in match} == {"match"}
    assert error_m(flow, walk) < 1.2 * error_m(match, walk) + 0.005


@pytest.mark.slow
def test_a_camera_that_moves_backwards_gets_keyframes():
    """It loses no point of its keyframe, but what enters at the sides has no landmarks."""
    source = SyntheticSource("walk", 20, rate_hz=10.0, camera=CAMERA, seed=1, kind="street")
    T_wc = np.eye(4)
    T_wc[:3, :3] = [[0, 0, 1], [-1, 0, 0], [0, -1, 0]]
    frames = []
    for k, frame in enumerate(source):
        T_wc[:3, 3] = 8.0 - 0.6 * k, 0.2 * np.sin(k / 3), 1.5 + 0.1 * np.cos(k / 3)
        image, _ = source.world.render(CAMERA, T_wc)
        frames.append(replace(frame, image=image, T_wc=T_wc.copy()))
    odometry = VisualOdometry(OPTIONS)
    states = [odometry.process(frame) for frame in frames]
    keyframes = [k for k, state in enumerate(states) if state.keyframe]
    assert max(np.diff(keyframes)) <= 8  # 9 if only points that leave the image counted
    assert error_m(states, frames) < 0.0025 * 0.6 * len(frames)


def test_only_landmarks_that_stay_hidden_are_lost(walk):
    """Those that blur hides for a moment come back; too few that are left ask for a keyframe."""
    odometry = VisualOdometry(OPTIONS)
    for frame in walk[:30]:
        odometry.process(frame)
    keyframe, follower = odometry.map.keyframes[-1], PointFollower()
    follower.follow_landmarks_of(keyframe, odometry.map)
    hidden = keyframe.view.gray.copy()
    hidden[:, :160] = np.random.default_rng(0).integers(0, 256, (240, 160), np.uint8)

    def share_left(after_s, gray):
        stamp_ns = keyframe.view.stamp_ns + round(after_s * 1e9)
        view = make_view(stamp_ns, CAMERA, gray=gray)
        assert follower.follow(view, keyframe, initialized=True) is not None
        return follower.share_left

    assert share_left(0.1, keyframe.view.gray) > 0.95
    assert share_left(0.4, hidden) > 0.95
    assert share_left(0.5, hidden) < 0.7
    assert share_left(0.6, keyframe.view.gray) > 0.95
    assert few_points_left(1.0, 0.69, OPTIONS)
    assert not few_points_left(1.0, 0.71, OPTIONS)


def test_a_frame_after_a_gap_is_matched(walk):
    """Half a second is missing: too far for optical flow."""
    odometry = VisualOdometry(OPTIONS)
    for frame in walk[:30]:
        odometry.process(frame)
    state = odometry.process(walk[40])
    assert state.tracked
    assert state.tracking == "match"


def test_a_darker_image_is_followed(walk):
    """As when the exposure is adjusted."""
    odometry = VisualOdometry(OPTIONS)
    for frame in walk[:30]:
        odometry.process(frame)
    usual, darker = (
        walk[30],
        replace(walk[30], image=cv2.convertScaleAbs(walk[30].image, alpha=0.7)),
    )
    state = odometry.process(darker)
    assert state.tracking == "flow"
    expected = VisualOdometry(OPTIONS)
    for frame in walk[:30]:
        expected.process(frame)
    np.testing.assert_allclose(state.T_wc, expected.process(usual).T_wc, atol=0.01)


def test_a_blank_image_has_no_pose_and_tracking_recovers(walk):
    odometry = VisualOdometry(OPTIONS)
    for frame in walk[:30]:
        odometry.process(frame)
    blank = replace(walk[30], image=np.full_like(walk[30].image, 128))
    assert odometry.process(blank).status == "few_matches"
    assert odometry.process(walk[31]).tracked


def test_the_relative_pose_is_that_of_keyframe_and_frame(walk):
    odometry = VisualOdometry(OPTIONS)
    states = [odometry.process(frame) for frame in walk]
    by_stamp = {frame.stamp_ns: frame for frame in walk}
    for state in states[-20:]:
        first, second = by_stamp[state.relative_stamp_ns], by_stamp[state.stamp_ns]
        T_10 = np.linalg.inv(second.T_wc) @ first.T_wc
        pose = state.relative.pose
        if np.linalg.norm(T_10[:3, 3]) > 0.1:
            assert pose.t_10 @ T_10[:3, 3] / np.linalg.norm(T_10[:3, 3]) > 0.98
        np.testing.assert_allclose(pose.R_10, T_10[:3, :3], atol=0.02)


def test_frames_before_the_first_landmarks_get_their_poses_afterwards(walk):
    odometry = VisualOdometry(OPTIONS)
    revised, live = [], []
    for frame in walk[:20]:
        live.append(odometry.process(frame))
        revised += odometry.take_revised()
    held = [s for s in live[1:] if s.status == "initializing"]
    assert held
    assert {s.stamp_ns for s in held} <= {s.stamp_ns for s in revised}
    assert all(s.tracked and s.T_wc[:3, 3].any() for s in revised)
    assert odometry.take_revised() == []
    run = run_odometry(walk[:20], OPTIONS)
    assert all(state.tracked for state in run.states[1:])
    assert error_m(run.states, walk) < 0.01


def test_mapping_in_the_background_gives_the_same_trajectory_up_to_noise(walk):
    extract = CountingExtractor()
    odometry = VisualOdometry(OPTIONS, extract, background=True)
    states = []
    for frame in walk:
        states.append(odometry.process(frame))
        time.sleep(0.02)
    odometry.close()
    assert any(name.startswith("mapping") for name in extract.threads)
    assert sum(state.keyframe for state in states) >= 3
    assert all(state.tracked for state in states[10:])
    assert error_m(states, walk) < 0.03


def test_a_mapper_slower_than_the_keyframes_come_does_not_stop_tracking(walk):
    odometry = VisualOdometry(OPTIONS, CountingExtractor(seconds=0.3), background=True)
    states = [odometry.process(frame) for frame in walk]
    odometry.close()
    assert all(state.tracked for state in states[10:])
    assert error_m(states, walk) < 0.05


def test_the_background_leaves_no_thread_behind(walk):
    before = threading.active_count()
    for _ in range(3):
        odometry = VisualOdometry(OPTIONS, background=True)
        for frame in walk[:30]:
            odometry.process(frame)
        odometry.reset()
        for frame in walk[:30]:
            odometry.process(frame)
        odometry.close()
    assert threading.active_count() == before


def test_an_unknown_tracking_mode_is_an_error():
    with pytest.raises(Exception, match="tracking is 'magic': use flow or match"):
        OdometryOptions(tracking="magic")

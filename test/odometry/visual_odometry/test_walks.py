"""A walk through the synthetic world, and real sequences, followed by visual odometry."""

import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest
from walks import CAMERA, OPTIONS, process, rotation_errors_deg, statuses, tracked, truth

from lgc_ros.errors import FeatureError
from lgc_ros.evaluation.trajectory_metrics import evaluate_trajectory
from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.epipolar import rotation_error_deg
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.state import STATUSES, TRACKED
from lgc_ros.odometry.visual_odometry import VisualOdometry
from lgc_ros.sources import open_source
from lgc_ros.sources.synthetic import SyntheticSource


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


def test_a_state_reports_the_support_of_its_pose(walk, walked):
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


def test_a_matched_state_reports_the_time_of_each_stage(walk):
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


def test_the_learned_filter_follows_the_walk(walk):
    states = process(walk[:14], replace(OPTIONS, method="cn"))
    assert set(statuses(states[6:])) == {"ok"}
    errors = evaluate_trajectory(tracked(states), truth(walk))
    assert errors.ate_rmse_m < 0.03 * truth(walk[:14]).length_m


def test_no_two_view_pose_is_estimated_if_landmarks_explain_the_kept_matches(walk):
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


@pytest.mark.parametrize("memory", [{}, {"max_keyframes": 3, "window": 2}], ids=["all", "short"])
def test_returning_to_the_start_closes_with_the_outbound_trajectory(walk, memory):
    back = [
        replace(walk[k], stamp_ns=walk[14].stamp_ns + (14 - k) * 100_000_000)
        for k in range(13, -1, -1)
    ]
    states = process(walk[:15] + back, replace(OPTIONS, **memory))
    assert set(statuses(states[6:])) <= set(TRACKED)
    out, returned = (np.array([s.T_wc[:3, 3] for s in part]) for part in (states, states[::-1]))
    way = np.linalg.norm(np.diff(out[:15], axis=0), axis=1).sum()
    assert np.linalg.norm(out[6:15] - returned[6:15], axis=1).max() < 0.05 * way


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

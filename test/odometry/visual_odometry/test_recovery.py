"""What odometry does with wrong maps, lost views and unusable frames."""

from dataclasses import replace

import numpy as np
import pytest
from walks import CAMERA, OPTIONS, picture_of, process, statuses, tracked, truth

from lgc_ros.errors import CameraError
from lgc_ros.evaluation.trajectory_metrics import evaluate_trajectory
from lgc_ros.odometry.state import TRACKED
from lgc_ros.odometry.visual_odometry import VisualOdometry
from lgc_ros.sources.synthetic import SyntheticSource


@pytest.mark.slow
@pytest.mark.parametrize("method", ["poselib+ratio", "cn"])
def test_a_map_that_views_refute_is_reinitialized(walk, method):
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
    center = odometry.map.keyframes[-1].center
    odometry.map.points = center + 1e-7 * (odometry.map.points - center)


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
def test_a_map_reinitialized_elsewhere_keeps_the_speed(walk, room):
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


def test_lost_for_long_it_reinitializes_at_the_last_pose(source, walk):
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
    """What covers it is full of keypoints, so odometry re-initializes on it meanwhile."""
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


def test_a_repeated_frame_changes_nothing(walk, walked):
    odometry = VisualOdometry(OPTIONS)
    doubled = [odometry.process(frame) for frame in walk[:10] for _ in range(2)]
    for once, state, repeated in zip(walked, doubled[::2], doubled[1::2], strict=False):
        np.testing.assert_array_equal(state.T_wc, once.T_wc)
        np.testing.assert_array_equal(repeated.T_wc, once.T_wc)
        assert "stamp" in repeated.message


def test_a_frame_out_of_order_is_refused_and_changes_nothing(walk, walked):
    odometry = VisualOdometry(OPTIONS)
    states = [odometry.process(frame) for frame in walk[:8]]
    late = odometry.process(walk[3])
    assert late.status == "lost"
    assert "older" in late.message
    assert not late.tracked
    np.testing.assert_array_equal(odometry.process(walk[8]).T_wc, walked[8].T_wc)
    assert states[-1].tracked


def test_an_image_that_does_not_fit_its_camera_is_lost_and_named(walk):
    frames = [*walk[:6], picture_of(walk[6], walk[6].image[:100]), *walk[7:9]]
    states = process(frames)
    assert not states[6].tracked
    assert "320x240" in states[6].message
    assert states[7].status == "ok"


def test_a_frame_without_a_camera_is_an_error(walk):
    with pytest.raises(CameraError, match="--camera"):
        VisualOdometry(OPTIONS).process(replace(walk[0], camera=None))


def test_initialization_waits_for_the_first_frame_with_texture(walk):
    blank = np.full_like(walk[0].image, 90)
    states = process([picture_of(f, blank) for f in walk[:3]] + walk[3:12])
    assert not any(state.tracked for state in states[:3])
    assert states[-1].status == "ok"

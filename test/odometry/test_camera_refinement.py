"""What a calibration leaves of radial distortion is found and corrected while the map grows."""

from dataclasses import replace

import numpy as np
import pytest
from walks import CAMERA, OPTIONS, tracked, truth

from lgc_ros.evaluation.trajectory_metrics import evaluate_trajectory
from lgc_ros.geometry.camera import Camera
from lgc_ros.odometry.camera_refinement import Estimate, combined, estimate_correction
from lgc_ros.odometry.map import NONE
from lgc_ros.odometry.visual_odometry import VisualOdometry
from lgc_ros.sources.synthetic import SyntheticSource


def estimates(values, sigma=0.001):
    return [Estimate(value, sigma) for value in values]


def test_estimates_that_agree_are_used_almost_in_full():
    assert combined(estimates([-0.018, -0.017, -0.019] * 3)) == pytest.approx(-0.018, rel=0.1)


def test_the_first_estimate_counts_in_part():
    assert 0 < combined(estimates([0.02])) < 0.02


@pytest.mark.parametrize("values", [[], [0.001], [0.01, -0.012, 0.008, -0.002], [0.004, 0.011]])
def test_estimates_within_their_error_change_nothing(values):
    assert combined(estimates(values)) == 0.0


def test_uncertain_estimates_count_less():
    values = [Estimate(0.02, 0.001), Estimate(0.02, 0.001), Estimate(0.05, 0.1)]
    assert combined(values) == pytest.approx(combined(values[:2]), rel=0.1)


def test_keyframes_without_common_landmarks_tell_nothing(frames):
    odometry, _ = followed(frames[:30], frames[0].camera)
    landmarks = odometry.map
    first, *_, last = landmarks.latest_with_landmarks(1)
    first.landmark_ids[np.isin(first.landmark_ids, last.landmark_ids)] = NONE
    assert estimate_correction(landmarks, [last, first]).sigma == np.inf


@pytest.fixture(scope="module")
def frames():
    """A walk with a wide lens that bends lines a little."""
    K = [[180.0, 0, 159.5], [0, 180.0, 119.5], [0, 0, 1]]
    lens = Camera.from_K(K, CAMERA.width, CAMERA.height, [-0.04, 0, 0, 0])
    return list(SyntheticSource("walk", 80, rate_hz=10.0, camera=lens, noise=1.5))


def followed(frames, camera, **options):
    odometry = VisualOdometry(replace(OPTIONS, **options))
    states = [odometry.process(replace(frame, camera=camera)) for frame in frames]
    return odometry, states


def test_distortion_that_the_calibration_misses_is_found_and_corrected(frames):
    claimed = Camera.from_K(frames[0].camera.K, *CAMERA.size)
    refined, with_it = followed(frames, claimed)
    _, without = followed(frames, claimed, refine_camera=False)
    radial = refined.map.keyframes[-1].view.camera.radial
    assert radial == pytest.approx(0.04, abs=0.01)
    errors = [
        evaluate_trajectory(tracked(s), truth(frames)).ate_rmse_m for s in (with_it, without)
    ]
    assert errors[0] < 0.7 * errors[1]


def test_a_good_calibration_stays_as_it_is(frames):
    refined, _ = followed(frames, frames[0].camera)
    assert abs(refined.map.keyframes[-1].view.camera.radial) < 0.003


def test_a_reset_forgets_the_correction(frames):
    claimed = Camera.from_K(frames[0].camera.K, *CAMERA.size)
    refined, _ = followed(frames, claimed)
    refined.reset()
    again = refined.process(replace(frames[0], camera=claimed))
    assert again.keyframe
    assert refined.map.keyframes[0].view.camera.radial == 0.0


def test_mapping_in_the_background_corrects_as_well(frames):
    claimed = Camera.from_K(frames[0].camera.K, *CAMERA.size)
    odometry = VisualOdometry(OPTIONS, background=True)
    states = [odometry.process(replace(frame, camera=claimed)) for frame in frames]
    odometry.close()
    assert all(np.isfinite(state.T_wc).all() for state in states)
    cameras = {keyframe.view.camera.radial for keyframe in odometry.map.keyframes}
    assert len(cameras) == 1

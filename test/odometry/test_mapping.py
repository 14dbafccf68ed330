"""A new keyframe finds the landmarks of those before it where they should be seen."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from lgc_ros.geometry.camera import Camera
from lgc_ros.odometry.keyframe_matching import KeyframeMatcher
from lgc_ros.odometry.map import NONE, Keyframe, motion_between
from lgc_ros.odometry.mapping import connect, insert_keyframe
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.visual_odometry import VisualOdometry
from lgc_ros.runtime.stage_timer import StageTimer
from lgc_ros.sources.synthetic import SyntheticSource

OPTIONS = OdometryOptions(
    method="poselib+ratio", max_keypoints=600, max_iterations=200, tracking="match"
)


@pytest.fixture(scope="module")
def map_of_a_walk():
    """The map after a walk of two seconds."""
    camera = Camera.from_K(np.array([[300.0, 0, 160], [0, 300, 120], [0, 0, 1]]), 320, 240)
    odometry = VisualOdometry(OPTIONS)
    for frame in SyntheticSource("walk", 20, rate_hz=10.0, camera=camera, noise=1.5):
        odometry.process(frame)
    return odometry.map


@pytest.fixture
def walked(map_of_a_walk):
    """A copy of that map to change."""
    return deepcopy(map_of_a_walk)


def seen_again(walked, hidden):
    """The newest keyframe, inserted once more without some of its landmarks."""
    *_, reference, newest = walked.keyframes
    walked.keyframes.remove(newest)
    view = newest.view
    track = KeyframeMatcher(OPTIONS)(view, reference, walked, StageTimer())
    again = Keyframe(view, track.pose.R_cw, track.pose.t_cw)
    again.landmark_ids[:] = np.where(hidden, NONE, newest.landmark_ids)
    walked.add_keyframe(again)
    connect(walked, again, track, OPTIONS.threshold_px)
    return newest.landmark_ids, again


def test_landmarks_are_found_where_they_should_be(walked):
    newest = walked.keyframes[-1]
    known = newest.landmark_ids != NONE
    hidden = known & (np.arange(len(known)) % 2 == 0)
    before, again = seen_again(walked, hidden)
    found = hidden & (again.landmark_ids != NONE) & (again.landmark_ids < before.max() + 1)
    assert found.sum() > 0.6 * hidden.sum()
    assert (again.landmark_ids[found] == before[found]).mean() > 0.95
    ids = again.landmark_ids[again.landmark_ids != NONE]
    assert len(np.unique(ids)) == len(ids)


def test_known_landmarks_are_kept(walked):
    known = walked.keyframes[-1].landmark_ids != NONE
    before, again = seen_again(walked, np.zeros(len(known), bool))
    assert np.array_equal(again.landmark_ids[known], before[known])


def test_keypoints_without_a_landmark_become_landmarks(walked):
    nothing = len(walked.points)
    before, again = seen_again(walked, np.zeros(len(walked.keyframes[-1].landmark_ids), bool))
    new = again.landmark_ids >= nothing
    assert new.any()
    assert (before[new] == NONE).all()
    for point, x in zip(walked.points[again.landmark_ids[new]], again.view.x[new], strict=True):
        seen = again.R_cw @ point + again.t_cw
        assert np.linalg.norm(seen[:2] / seen[2] - x) < 2 / 300


def test_motion_between_cameras_maps_points_of_one_into_the_other(walked):
    first, *_, last = walked.keyframes
    R_10, t_10 = motion_between(first, last)
    point = np.array([0.3, -0.2, 4.0])
    np.testing.assert_allclose(
        R_10 @ (first.R_cw @ point + first.t_cw) + t_10, last.R_cw @ point + last.t_cw
    )


def inserted_covariance(walked, noise_ratio):
    """Covariance of the newest keyframe, inserted once more with keypoints this much blurred."""
    *_, reference, newest = walked.keyframes
    walked.keyframes.remove(newest)
    sharpness = np.diag([1 / np.sqrt(noise_ratio), np.sqrt(noise_ratio)])
    view = replace(newest.view, features=replace(newest.view.features, sharpness=sharpness))
    track = KeyframeMatcher(OPTIONS)(newest.view, reference, walked, StageTimer())
    return insert_keyframe(walked, view, track, track.pose, OPTIONS).covariance


def test_the_variance_of_a_keyframe_grows_faster_than_that_of_its_blurred_keypoints(map_of_a_walk):
    """Errors along the blur are shared by all keypoints, so that their number does not help."""
    sharp, textured, blurred, very_blurred = (
        inserted_covariance(deepcopy(map_of_a_walk), ratio) for ratio in (1.0, 1.9, 4.0, 8.0)
    )
    np.testing.assert_allclose(textured, sharp, rtol=1e-3)
    growth = (4**3 - 1) / (2**3 - 1)
    np.testing.assert_allclose(very_blurred - sharp, growth * (blurred - sharp), rtol=0.1)


def test_a_pose_inherits_the_mean_error_of_the_keyframes_that_see_its_landmarks(walked):
    first, second, *others, reference = walked.keyframes
    for keyframe in (*others, reference):
        keyframe.landmark_ids[:] = NONE
    first.covariance, second.covariance = np.eye(6), 5 * np.eye(6)
    shared = np.intersect1d(first.landmark_ids, second.landmark_ids)
    shared = shared[shared != NONE][:10]
    assert len(shared) == 10
    only_second = np.setdiff1d(second.landmark_ids, first.landmark_ids)[:20]
    assert len(only_second) == 20

    def inherited(ids):
        return walked.covariance_of_observers(ids, reference)

    np.testing.assert_allclose(inherited(shared), 3 * np.eye(6))
    both = np.concatenate([shared, only_second])
    np.testing.assert_allclose(inherited(both), (10 * 1 + 30 * 5) / 40 * np.eye(6))
    np.testing.assert_array_equal(inherited(np.empty(0, int)), reference.covariance)

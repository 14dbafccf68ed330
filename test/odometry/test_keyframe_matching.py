"""How much is asked of two views before there are landmarks."""

import numpy as np
import pytest

from lgc_ros.features.base import make_extractor
from lgc_ros.geometry.epipolar import rotation_error_deg
from lgc_ros.matching.correspondences import correspond, match
from lgc_ros.odometry.keyframe_matching import ROUGH_PARALLAX, KeyframeMatcher
from lgc_ros.odometry.map import NONE, Keyframe, LandmarkMap, View
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.runtime.stage_timer import StageTimer

OPTIONS = OdometryOptions(init_parallax_deg=3.0, max_keypoints=1000, device="cpu")


@pytest.fixture(scope="module")
def tracked(walk):
    """Tracks a frame of the walk against another one; with both estimates, and the true turn."""
    tracker = KeyframeMatcher(OPTIONS)
    extract = make_extractor("sift", OPTIONS.max_keypoints)

    def view(k):
        camera, features = walk[k].camera, extract(walk[k].image)
        return View(walk[k].stamp_ns, camera, features, camera.normalize(features.points))

    def track(first, second, landmark=NONE):
        old, new = view(first), view(second)
        reference = Keyframe(old, np.eye(3), np.zeros(3))
        reference.landmark_ids[0] = landmark
        nothing = LandmarkMap(OPTIONS.sigma_px, OPTIONS.max_keyframes)
        result = tracker(new, reference, nothing, StageTimer()).result
        matches = match(old.features, new.features)
        rejected = tracker.solver.reject_outliers(
            correspond(old.features, new.features, matches, old.camera, new.camera)
        )
        estimates = {rough: tracker.solver.estimate(rejected, rough) for rough in (True, False)}
        T_10 = np.linalg.inv(walk[second].T_wc) @ walk[first].T_wc
        return result, estimates, T_10[:3, :3]

    return track


def same(result, other):
    return np.array_equal(result.pose.E_10, other.pose.E_10)


def test_a_rough_pose_suffices_while_parallax_is_far_too_small(tracked):
    result, estimates, R_true = tracked(20, 21)
    assert result.parallax_deg < ROUGH_PARALLAX * OPTIONS.init_parallax_deg
    assert same(result, estimates[True])
    assert not same(result, estimates[False])
    assert rotation_error_deg(result.pose.R_10, R_true) < 0.5
    assert result.inliers.sum() > 0.9 * estimates[False].inliers.sum()


def test_a_map_begins_with_a_thorough_pose(tracked):
    result, estimates, R_true = tracked(20, 32)
    assert result.parallax_deg > ROUGH_PARALLAX * OPTIONS.init_parallax_deg
    assert same(result, estimates[False])
    assert rotation_error_deg(result.pose.R_10, R_true) < 0.5


def test_with_landmarks_the_two_view_pose_is_thorough(tracked):
    result, estimates, _ = tracked(20, 21, landmark=0)
    assert same(result, estimates[False])

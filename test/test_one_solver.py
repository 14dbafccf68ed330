"""`cn` is one solver: match, odometry and training's validation get the same pose."""

import numpy as np
import pytest

from lgc_ros.estimation.estimators import MAX_ITERATIONS
from lgc_ros.estimation.methods import FILTER_ESTIMATOR
from lgc_ros.estimation.two_view import (
    FILTERED_THRESHOLD_PX,
    LABEL_THRESHOLD,
    RelativePoseSolver,
    TwoViewPipeline,
)
from lgc_ros.evaluation.pair_metrics import score_result
from lgc_ros.features.base import make_extractor
from lgc_ros.filter.checkpoint import load_checkpoint
from lgc_ros.geometry.epipolar import rotation_error_deg, translation_error_deg
from lgc_ros.matching.correspondences import correspond, match
from lgc_ros.odometry.keyframe_matching import KeyframeMatcher
from lgc_ros.odometry.options import OdometryOptions

KEYPOINTS = 1000
FRAMES = (20, 34)


@pytest.fixture(scope="module")
def pair(walk):
    """Two frames of a walk, their features and the true relative pose."""
    frames = [walk[index] for index in FRAMES]
    extract = make_extractor("sift", KEYPOINTS)
    T_10 = np.linalg.inv(frames[1].T_wc) @ frames[0].T_wc
    return frames, [extract(frame.image) for frame in frames], (T_10[:3, :3], T_10[:3, 3])


@pytest.fixture(scope="module")
def matched(pair):
    """What `lgc match` computes."""
    (frame0, frame1), _, _ = pair
    pipeline = TwoViewPipeline("cn", max_keypoints=KEYPOINTS, device="cpu")
    return pipeline(frame0.image, frame1.image, frame0.camera, frame1.camera)


def odometry_result(pair, **settings):
    (frame0, frame1), (features0, features1), _ = pair
    options = OdometryOptions(max_keypoints=KEYPOINTS, device="cpu", **settings)
    matches = match(features0, features1)
    correspondences = correspond(features0, features1, matches, frame0.camera, frame1.camera)
    return KeyframeMatcher(options).solver(correspondences)


def test_odometry_with_the_limits_of_match_gives_the_same_pose(pair, matched):
    limits = {
        "threshold_px": FILTERED_THRESHOLD_PX,
        "max_iterations": MAX_ITERATIONS[FILTER_ESTIMATOR],
    }
    result = odometry_result(pair, **limits)
    np.testing.assert_array_equal(result.kept, matched.kept)
    np.testing.assert_array_equal(result.inliers, matched.inliers)
    np.testing.assert_array_equal(result.pose.E_10, matched.pose.E_10)


def test_the_tighter_limits_of_odometry_hardly_change_the_pose(pair, matched):
    result = odometry_result(pair)
    np.testing.assert_array_equal(result.kept, matched.kept)
    assert rotation_error_deg(result.pose.R_10, matched.pose.R_10) < 0.1
    assert translation_error_deg(result.pose.t_10, matched.pose.t_10) < 0.5


def test_validation_scores_the_pose_of_match(pair, matched, tmp_path):
    pytest.importorskip("h5py", reason="training needs the extra `training`")
    from training.data.dump import Dump, write_dump
    from training.data.labels import label_pair
    from training.validation import to_correspondences, validate

    frames, features, true_pose = pair
    cameras = [frame.camera for frame in frames]
    write_dump(tmp_path / "pair.hdf5", [label_pair(*features, *cameras, *true_pose)])
    dump = Dump(tmp_path / "pair.hdf5")
    network, info = load_checkpoint("sift")
    found = validate(network, dump, info, LABEL_THRESHOLD, 1)
    for method, errors in (("cn", found.robust), ("cn-8pt-plain", found.eight_point)):
        solver = RelativePoseSolver(method, device="cpu")
        matches = to_correspondences(dump[0])
        error_deg = score_result(solver(matches), *true_pose).error_deg
        np.testing.assert_allclose(errors, [error_deg], atol=1e-4)
        by_filter = score_result(solver.reject_outliers(matches), *true_pose)
        assert found.precision == pytest.approx(by_filter.precision, abs=1e-6)
    expected = score_result(matched, *true_pose)
    assert found.robust[0] == pytest.approx(expected.error_deg, abs=1e-3)

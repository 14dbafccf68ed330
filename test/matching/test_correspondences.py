"""Matches equal those of OpenCV's brute-force matcher; correspondences carry side information."""

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lgc_ros.errors import MatchError
from lgc_ros.features.base import Features, make_extractor
from lgc_ros.geometry.camera import Camera
from lgc_ros.matching import nearest_neighbor
from lgc_ros.matching.correspondences import (
    Correspondences,
    Matches,
    correspond,
    match,
    nearest_per_keypoint,
    one_to_one,
    ratio_test,
)
from lgc_ros.sources.synthetic import SyntheticSource

K = np.array([[500.0, 0, 320], [0, 500, 240], [0, 0, 1]])


def features_of(descriptors, kind="sift", points=None):
    count = len(descriptors)
    if points is None:
        points = np.random.default_rng(1).uniform((0, 0), (639, 479), (count, 2))
    zeros = np.zeros(count, np.float32)
    return Features(np.float32(points), descriptors, zeros, zeros, zeros, kind)


def sift_like(count, rng):
    """Random integer descriptors with a norm of 512, as OpenCV's SIFT has."""
    d = rng.gamma(0.4, size=(count, 128))
    return np.minimum(np.round(512 * d / np.linalg.norm(d, axis=1, keepdims=True)), 255).astype(
        np.float32
    )


def unit_float(count, rng):
    d = rng.normal(size=(count, 64)).astype(np.float32)
    return d / np.linalg.norm(d, axis=1, keepdims=True)


def binary(count, rng):
    return rng.integers(0, 256, (count, 32), np.uint8)


def norm_of(descriptors):
    return cv2.NORM_HAMMING if descriptors.dtype == np.uint8 else cv2.NORM_L2


MAKERS = {"sift": sift_like, "learned": unit_float, "orb": binary}


@pytest.fixture(params=MAKERS)
def pair(request):
    rng = np.random.default_rng(5)
    make = MAKERS[request.param]
    a, b = make(150, rng), make(120, rng)
    b[:40] = a[20:60]  # exact matches
    return features_of(a, request.param), features_of(b, request.param)


def test_neighbor_distance_and_ratio_agree_with_opencv(pair):
    a, b = pair
    matches = match(a, b)
    expected = cv2.BFMatcher(norm_of(a.descriptors)).knnMatch(a.descriptors, b.descriptors, k=2)
    first, second = (np.array([two[i].distance for two in expected]) for i in (0, 1))
    np.testing.assert_array_equal(matches.index0, np.arange(len(a)))
    np.testing.assert_array_equal(matches.index1, [two[0].trainIdx for two in expected])
    np.testing.assert_allclose(matches.distance, first, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(matches.ratio, first / second, rtol=1e-5, atol=1e-6)


def test_mutual_matches_agree_with_opencv_where_there_are_no_ties():
    rng = np.random.default_rng(5)
    a, b = features_of(unit_float(150, rng)), features_of(unit_float(120, rng))
    matches = match(a, b)
    crossed = cv2.BFMatcher(cv2.NORM_L2, crossCheck=True).match(a.descriptors, b.descriptors)
    found = zip(matches.index0[matches.mutual], matches.index1[matches.mutual], strict=True)
    assert set(found) == {(m.queryIdx, m.trainIdx) for m in crossed}
    assert 0 < matches.mutual.sum() < len(matches)


def test_mutual_matches_are_nearest_in_both_directions_and_one_to_one(pair):
    a, b = pair
    matches = match(a, b)
    norm = norm_of(a.descriptors)
    nearest = cv2.BFMatcher(norm).match(b.descriptors, a.descriptors)
    limit = np.array([m.distance for m in nearest])
    mutual = matches.mutual
    np.testing.assert_allclose(
        matches.distance[mutual], limit[matches.index1[mutual]], rtol=1e-5, atol=1e-6
    )
    assert len(np.unique(matches.index1[mutual])) == mutual.sum()


def test_identical_descriptors_have_one_mutual_match():
    same = np.full((3, 32), 7, np.uint8)
    matches = match(features_of(same, "orb"), features_of(same, "orb"))
    np.testing.assert_array_equal(matches.index1, 0)
    np.testing.assert_array_equal(matches.mutual, [True, False, False])
    np.testing.assert_array_equal(matches.ratio, 1)


def test_result_does_not_depend_on_the_block_size(pair, monkeypatch):
    whole = match(*pair)
    monkeypatch.setattr(nearest_neighbor, "BLOCK_ENTRIES", 7 * len(pair[1]))
    assert_same_matches(match(*pair), whole)


def test_byte_products_find_the_same_matches_as_floats(pair, monkeypatch):
    def matches(with_bytes):
        monkeypatch.setattr(nearest_neighbor, "bytes_are_faster", lambda: with_bytes)
        return match(*pair)

    if not hasattr(torch, "_int_mm"):
        pytest.skip("this torch has no product of bytes")
    assert_same_matches(matches(with_bytes=True), matches(with_bytes=False))


def assert_same_matches(first, second):
    np.testing.assert_array_equal(first.index1, second.index1)
    np.testing.assert_array_equal(first.mutual, second.mutual)
    np.testing.assert_array_equal(first.ratio, second.ratio)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_single_candidate_has_ratio_one(kind):
    rng = np.random.default_rng(0)
    matches = match(
        features_of(MAKERS[kind](5, rng), kind), features_of(MAKERS[kind](1, rng), kind)
    )
    np.testing.assert_array_equal(matches.index1, 0)
    np.testing.assert_array_equal(matches.ratio, 1)
    assert matches.mutual.sum() == 1


@pytest.mark.parametrize("counts", [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize("kind", MAKERS)
def test_no_features_give_no_matches(kind, counts):
    rng = np.random.default_rng(0)
    a, b = (features_of(MAKERS[kind](count, rng), kind) for count in counts)
    matches = match(a, b)
    assert len(matches) == 0
    camera = Camera.from_K(K, 640, 480, (-0.3, 0.1, 0, 0))
    assert len(correspond(a, b, matches, camera, camera)) == 0


def test_features_of_different_kinds_are_rejected():
    rng = np.random.default_rng(0)
    sift, orb = features_of(sift_like(3, rng), "sift"), features_of(binary(3, rng), "orb")
    with pytest.raises(MatchError, match=r"sift .*with orb .*same extractor"):
        match(sift, orb)
    with pytest.raises(MatchError, match=r"128 x float32.*64 x float32"):
        match(sift, features_of(unit_float(3, rng), "sift"))
    with pytest.raises(MatchError, match=r"rootsift"):
        match(sift, features_of(sift_like(3, rng), "rootsift"))


def test_correspondences_are_undistorted_and_keep_ratio_and_mutual():
    rng = np.random.default_rng(0)
    a, b = features_of(sift_like(30, rng)), features_of(sift_like(20, rng))
    matches = match(a, b)
    camera0 = Camera.from_K(K, 640, 480, (-0.3, 0.1, 1e-3, 0))
    camera1 = Camera.from_K(np.diag([2.0, 2.0, 1]) @ K, 1280, 960)
    found = correspond(a, b, matches, camera0, camera1)
    assert len(found) == len(matches)
    np.testing.assert_array_equal(found.p0, a.points[matches.index0])
    np.testing.assert_array_equal(found.p1, b.points[matches.index1])
    np.testing.assert_array_equal(found.x0, camera0.normalize(found.p0))
    np.testing.assert_array_equal(found.x1, camera1.normalize(found.p1))
    assert (found.size0, found.size1, found.focal) == ((640, 480), (1280, 960), 750)
    np.testing.assert_array_equal(found.ratio, matches.ratio)
    np.testing.assert_array_equal(found.mutual, matches.mutual)
    assert found.scores is None


@pytest.mark.parametrize("kind", ["sift", "orb"])
def test_roll_and_zoom_measure_the_rotation_and_scaling_of_an_image(kind, world):
    image = SyntheticSource("walk", 2, world=world)[0].image
    turn_deg, zoom = 30.0, 1.4
    height, width = image.shape[:2]
    # OpenCV's matrix rotates the other way round, as if the y axis pointed up.
    warp = cv2.getRotationMatrix2D((width / 2, height / 2), -turn_deg, zoom)
    extract = make_extractor(kind, 1000)
    a, b = extract(image), extract(cv2.warpAffine(image, warp, (width, height)))
    near = Camera.from_K(K, width, height)
    found = correspond(a, b, match(a, b), near, near)
    moved = np.hstack([found.p0, np.ones((len(found), 1))]) @ warp.T
    inliers = found.subset(np.linalg.norm(moved - found.p1, axis=1) < 2)
    assert len(inliers) > 50
    roll_error = np.angle(np.exp(1j * (inliers.roll - np.radians(turn_deg))))
    assert np.degrees(np.median(np.abs(roll_error))) < 5
    assert np.median(inliers.zoom) == pytest.approx(np.log2(zoom), abs=0.1)
    # With twice the focal length the same keypoints have half the angular size.
    far = Camera.from_K(np.diag([2.0, 2.0, 1]) @ K, width, height)
    closer = correspond(a, b, match(a, b), near, far)
    np.testing.assert_allclose(closer.zoom, found.zoom - 1, atol=1e-5)


@pytest.mark.parametrize(("kind", "norm"), [("sift", cv2.NORM_L2), ("orb", cv2.NORM_HAMMING)])
def test_descriptor_distance_is_about_1_between_unrelated_keypoints(kind, norm, world):
    features = make_extractor(kind, 500)(SyntheticSource("walk", 1, world=world)[0].image)
    others = np.random.default_rng(0).permutation(len(features))
    pairs = zip(features.descriptors, features.descriptors[others], strict=True)
    distance = np.float32([cv2.norm(a, b, norm) for a, b in pairs])
    unrelated = Matches(np.arange(len(others)), others, distance, *np.ones((2, len(others))))
    camera = Camera.from_K(K, 640, 480)
    found = correspond(features, features, unrelated, camera, camera)
    assert np.median(found.descriptor_distance) == pytest.approx(1.0, abs=0.25)
    same = correspond(features, features, match(features, features), camera, camera)
    np.testing.assert_array_equal(same.descriptor_distance, 0)


def test_points_that_cannot_be_undistorted_are_left_out():
    points = [[320, 240], [1e5, 1e5]]
    a = features_of(np.eye(2, 8, dtype=np.float32), points=points)
    camera = Camera.from_K(K, 640, 480, (-0.3, 0, 0, 0))
    found = correspond(a, a, match(a, a), camera, camera)
    np.testing.assert_array_equal(found.p0, [[320, 240]])
    assert len(found.ratio) == len(found.mutual) == 1


@pytest.mark.parametrize("selection", [np.array([False, True, True]), np.array([2, 1])])
def test_subset_selects_from_every_array_and_keeps_the_rest(selection):
    a = features_of(np.eye(3, 8, dtype=np.float32))
    camera = Camera.from_K(K, 640, 480)
    whole = correspond(a, a, match(a, a), camera, camera)
    part = whole.subset(selection)
    names = ("x0", "x1", "p0", "p1", "ratio", "mutual", "zoom", "roll", "descriptor_distance")
    for name in names:
        np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[selection])
    assert (part.size0, part.focal, part.scores) == (whole.size0, whole.focal, None)


def test_ratio_test_keeps_matches_below_the_threshold():
    ratio = np.float32([0.1, 0.79, 0.81, 1.0])
    index = np.arange(4)
    matches = Matches(index, index, ratio, ratio, np.ones(4, bool))
    np.testing.assert_array_equal(ratio_test(matches), [True, True, False, False])
    np.testing.assert_array_equal(ratio_test(matches, 0.5), [True, False, False, False])


def test_one_to_one_keeps_the_best_match_of_each_point():
    p0 = np.array([[0.0, 0], [1, 0], [2, 0], [3, 0], [3, 0]])
    p1 = np.array([[5.0, 5], [5, 5], [5, 5], [8, 5], [9, 5]])
    none = np.empty(5)
    c = Correspondences(p0, p1, p0, p1, (10, 10), (10, 10), 1.0, none, none)
    mask = one_to_one(c, np.array([0.1, 0.9, 0.3, 0.2, 0.4]))
    assert mask.tolist() == [False, True, False, False, True]


@given(st.integers(0, 10_000))
def test_one_to_one_matches_share_no_point(seed):
    rng = np.random.default_rng(seed)
    p0, p1 = rng.integers(0, 6, (2, 30, 2)).astype(np.float64)
    c = Correspondences(p0, p1, p0, p1, (10, 10), (10, 10), 1.0, p0[:, 0], p0[:, 0])
    chosen = c.subset(one_to_one(c, rng.random(30)))
    for points in (chosen.p0, chosen.p1):
        assert len(np.unique(points, axis=0)) == len(points)


@given(st.integers(0, 10_000))
def test_nearest_per_keypoint_keeps_the_nearest_chosen_match(seed):
    rng = np.random.default_rng(seed)
    index1, distance = rng.integers(0, 8, 20), rng.integers(0, 5, 20).astype(np.float32)
    matches = Matches(np.arange(20), index1, distance, distance, np.ones(20, bool))
    chosen = rng.random(20) < 0.7
    rows = nearest_per_keypoint(matches, chosen)
    expected = [
        min(np.flatnonzero(chosen & (index1 == j)), key=lambda row: distance[row])
        for j in np.unique(index1[chosen])
    ]
    np.testing.assert_array_equal(rows, np.sort(expected))

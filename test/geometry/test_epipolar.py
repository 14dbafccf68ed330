"""Two-view geometry agrees with its definitions, with OpenCV and with PoseLib."""

import cv2
import numpy as np
import poselib
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import FOCAL_PX, random_scene
from transforms3d.axangles import axangle2mat

from lgc_ros.geometry import epipolar as g

seeds = st.integers(0, 10_000)


@given(seeds)
def test_exact_matches_satisfy_the_epipolar_constraint(seed):
    scene = random_scene(seed)
    residual = g.epipolar_rows(scene.x0, scene.x1) @ scene.E_10.ravel()
    assert np.abs(residual).max() < 1e-12


@given(seeds)
def test_eight_point_recovers_the_pose_of_exact_matches(seed):
    scene = random_scene(seed)
    E = g.project_to_essential(g.weighted_eight_point(scene.x0, scene.x1))
    R, t, in_front = g.recover_pose(E, scene.x0, scene.x1)
    assert g.rotation_error_deg(R, scene.R_10) < 1e-4
    assert g.translation_error_deg(t, scene.t_10, signed=True) < 1e-4
    assert in_front.all()


@given(seeds)
def test_conditioned_eight_point_agrees_with_opencv(seed):
    scene = random_scene(seed, noise_px=0.5)
    E = g.weighted_eight_point(scene.x0, scene.x1, conditioned=True)
    F, _ = cv2.findFundamentalMat(scene.x0, scene.x1, cv2.FM_8POINT)
    # OpenCV scales by the mean distance, not the mean square, and returns a rank-2 matrix.
    U, s, Vt = np.linalg.svd(E)
    rank2 = U @ np.diag([s[0], s[1], 0]) @ Vt
    similarity = np.sum(rank2 * F) / np.linalg.norm(E) / np.linalg.norm(F)
    assert abs(similarity) > 0.999


@given(seeds)
def test_conditioning_does_not_change_exact_solutions(seed):
    scene = random_scene(seed)
    weights = np.random.default_rng(seed).uniform(0.1, 1, len(scene.x0))
    plain = g.weighted_eight_point(scene.x0, scene.x1, weights)
    conditioned = g.weighted_eight_point(scene.x0, scene.x1, weights, conditioned=True)
    assert abs(np.sum(plain * conditioned)) == pytest.approx(1, abs=1e-9)


@given(seeds)
def test_integer_weights_equal_repetition(seed):
    scene = random_scene(seed, noise_px=1.0)
    counts = np.random.default_rng(seed).integers(1, 4, len(scene.x0))
    weighted = g.weighted_eight_point(scene.x0, scene.x1, counts.astype(float))
    repeated = g.weighted_eight_point(
        np.repeat(scene.x0, counts, axis=0), np.repeat(scene.x1, counts, axis=0)
    )
    assert abs(abs(np.sum(weighted * repeated)) - 1) < 1e-9


@pytest.mark.parametrize("garbage", [1e6, np.nan, np.inf])
def test_matches_of_weight_zero_have_no_influence(garbage):
    scene = random_scene(3, noise_px=1.0)
    weights = np.ones(len(scene.x0))
    expected = g.weighted_eight_point(scene.x0, scene.x1, weights)
    x0 = np.vstack([scene.x0, [[garbage, garbage]]])
    x1 = np.vstack([scene.x1, [[garbage, -garbage]]])
    assert np.array_equal(g.weighted_eight_point(x0, x1, np.append(weights, 0.0)), expected)


def test_fewer_than_eight_weighted_matches_are_rejected():
    scene = random_scene(0)
    weights = np.zeros(len(scene.x0))
    weights[:7] = 1
    with pytest.raises(ValueError, match="8 correspondences, got 7"):
        g.weighted_eight_point(scene.x0, scene.x1, weights)


def test_projection_to_essential_has_two_equal_singular_values_and_keeps_essential_matrices():
    noisy = np.random.default_rng(0).standard_normal((3, 3))
    assert np.linalg.svd(g.project_to_essential(noisy))[1] == pytest.approx([1, 1, 0], abs=1e-12)
    E = random_scene(0).E_10
    assert g.project_to_essential(3 * E) == pytest.approx(E)


@given(seeds)
def test_decomposition_agrees_with_opencv(seed):
    E = random_scene(seed).E_10
    ours = g.decompose_essential(E)
    R_a, R_b, t = cv2.decomposeEssentialMat(E)
    for R in ours[:2]:
        assert np.linalg.det(R) == pytest.approx(1)
        assert min(g.rotation_error_deg(R, R_a), g.rotation_error_deg(R, R_b)) < 1e-5
    assert g.translation_error_deg(ours[2], t) < 1e-5


@given(seeds)
def test_pose_recovery_agrees_with_opencv(seed):
    scene = random_scene(seed, noise_px=0.5)
    R, t, _ = g.recover_pose(scene.E_10, scene.x0, scene.x1)
    _, R_cv, t_cv, _ = cv2.recoverPose(scene.E_10, scene.x0, scene.x1, np.eye(3))
    assert g.rotation_error_deg(R, R_cv) < 1e-5
    assert g.translation_error_deg(t, t_cv, signed=True) < 1e-5


@given(seeds)
def test_pose_recovery_tolerates_a_minority_behind_the_camera(seed):
    scene = random_scene(seed)
    wrong = len(scene.x0) // 3
    x1 = scene.x1.copy()
    x1[:wrong] = np.roll(x1[:wrong], 1, axis=0)
    R, t, _ = g.recover_pose(scene.E_10, scene.x0, x1)
    assert g.rotation_error_deg(R, scene.R_10) < 1e-5
    assert g.translation_error_deg(t, scene.t_10, signed=True) < 1e-5


@given(seeds)
def test_ray_depths_equal_the_depths_of_the_points(seed):
    scene = random_scene(seed)
    depth0, depth1 = g.ray_depths(scene.R_10, scene.t_10, scene.x0, scene.x1)
    assert depth0 == pytest.approx(scene.X0[:, 2])
    assert depth1 == pytest.approx((scene.X0 @ scene.R_10.T + scene.t_10)[:, 2])


@given(seeds)
def test_triangulation_of_exact_matches_returns_the_points(seed):
    scene = random_scene(seed)
    points = g.triangulate_angular(scene.R_10, 3.0 * scene.t_10, scene.x0, scene.x1)
    assert points == pytest.approx(3.0 * scene.X0, rel=1e-5)


@given(seeds)
def test_angular_triangulation_rotates_the_rays_less_than_opencvs_linear_one(seed):
    scene = random_scene(seed, noise_px=2.0)

    def angular_cost(X0):
        X1 = X0 @ scene.R_10.T + scene.t_10
        sines = []
        for X, x in ((X0, scene.x0), (X1, scene.x1)):
            ray = g.homogeneous(x)
            cross = np.linalg.norm(np.cross(X, ray), axis=1)
            sines.append(cross / np.linalg.norm(X, axis=1) / np.linalg.norm(ray, axis=1))
        return sines[0] ** 2 + sines[1] ** 2

    pose = scene.R_10, scene.t_10, scene.x0, scene.x1
    P0, P1 = np.eye(3, 4), np.column_stack([scene.R_10, scene.t_10])
    H = cv2.triangulatePoints(P0, P1, scene.x0.T, scene.x1.T)
    angular, linear = g.triangulate_angular(*pose), (H[:3] / H[3]).T
    assert (angular_cost(angular) <= angular_cost(linear) * (1 + 1e-6) + 1e-18).all()


@given(seeds)
def test_symmetric_distance_is_the_sum_of_squared_point_to_line_distances(seed):
    scene = random_scene(seed, noise_px=3.0)
    lines1 = cv2.computeCorrespondEpilines(scene.x0, 1, scene.E_10).reshape(-1, 3)
    lines0 = cv2.computeCorrespondEpilines(scene.x1, 2, scene.E_10).reshape(-1, 3)
    expected = (lines1 * g.homogeneous(scene.x1)).sum(1) ** 2
    expected += (lines0 * g.homogeneous(scene.x0)).sum(1) ** 2
    distance = g.symmetric_epipolar_distance(scene.E_10, scene.x0, scene.x1)
    assert distance == pytest.approx(expected, rel=1e-6, abs=1e-12)


@given(seeds)
def test_distances_with_a_fundamental_matrix_are_in_pixels(seed):
    scene = random_scene(seed, noise_px=3.0)
    K = np.array([[FOCAL_PX, 0, 320], [0, FOCAL_PX, 240], [0, 0, 1.0]])
    F = np.linalg.inv(K).T @ scene.E_10 @ np.linalg.inv(K)
    p0, p1 = (x * FOCAL_PX + [320, 240] for x in (scene.x0, scene.x1))
    normalized = g.symmetric_epipolar_distance(scene.E_10, scene.x0, scene.x1)
    assert g.symmetric_epipolar_distance(F, p0, p1) == pytest.approx(
        FOCAL_PX**2 * normalized, rel=1e-6
    )


@given(seeds)
def test_sampson_distance_agrees_with_opencv(seed):
    scene = random_scene(seed, noise_px=3.0)
    h0, h1 = g.homogeneous(scene.x0), g.homogeneous(scene.x1)
    expected = [cv2.sampsonDistance(a, b, scene.E_10) for a, b in zip(h0, h1, strict=True)]
    assert g.sampson_distance(scene.E_10, scene.x0, scene.x1) == pytest.approx(expected, rel=1e-6)


@given(seeds)
def test_pose_of_noisy_matches_is_close_to_that_of_poselib(seed):
    scene = random_scene(seed, points=200, noise_px=0.3)
    E = g.project_to_essential(g.weighted_eight_point(scene.x0, scene.x1))
    R, t, _ = g.recover_pose(E, scene.x0, scene.x1)
    camera = {"model": "SIMPLE_PINHOLE", "width": 640, "height": 480, "params": [500, 0, 0]}
    pose, _ = poselib.estimate_relative_pose(
        scene.x0 * FOCAL_PX, scene.x1 * FOCAL_PX, camera, camera, {"max_epipolar_error": 3.0}
    )
    assert g.rotation_error_deg(R, pose.R) < 1.5
    assert g.translation_error_deg(t, pose.t) < 6


@pytest.mark.parametrize("angle_deg", [0.0, 1e-5, 0.1, 30.0, 179.9])
def test_rotation_error_is_the_angle_between_rotations(angle_deg):
    base = axangle2mat([1, 2, 3], 0.7)
    rotated = base @ axangle2mat([3, -1, 2], np.radians(angle_deg))
    assert g.rotation_error_deg(rotated, base) == pytest.approx(angle_deg, rel=1e-4, abs=1e-6)


def test_translation_error_ignores_length_and_by_default_sign():
    t = np.array([1.0, 0.2, -0.3])
    assert g.translation_error_deg(5 * t, t) == pytest.approx(0, abs=1e-6)
    assert g.translation_error_deg(-t, t) == pytest.approx(0, abs=1e-6)
    assert g.translation_error_deg(-t, t, signed=True) == pytest.approx(180)
    assert g.translation_error_deg([1, 0, 0], [0, 1, 0]) == pytest.approx(90)


def test_relative_pose_chains_world_to_camera_poses():
    rng = np.random.default_rng(0)
    R0, R1 = axangle2mat([1, 0, 2], 0.3), axangle2mat([0, 1, 1], -0.8)
    t0, t1, X = rng.standard_normal((3, 3))
    R_10, t_10 = g.relative_pose(R0, t0, R1, t1)
    assert R_10 @ (R0 @ X + t0) + t_10 == pytest.approx(R1 @ X + t1)


@given(seeds)
def test_parallax_is_zero_without_translation_and_grows_with_it(seed):
    scene = random_scene(seed)
    rotated = g.homogeneous(scene.x0) @ scene.R_10.T
    still = g.parallax_deg(scene.R_10, scene.x0, rotated[:, :2] / rotated[:, 2:])
    assert np.abs(still).max() < 1e-5
    assert np.median(g.parallax_deg(scene.R_10, scene.x0, scene.x1)) > 1

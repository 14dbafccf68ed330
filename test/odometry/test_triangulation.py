"""Points from two views, with as much parallax as there is."""

from dataclasses import replace

import numpy as np
import pytest

from lgc_ros.odometry.pose_optimization import project, rotation_from_vector
from lgc_ros.odometry.triangulation import TwoViews, place_points, triangulate_precise

SIGMA = 0.3 / 500
SCENE_DEPTH = 10.0


def turn_on_the_spot(moved, seed=0):
    """Matches of points 5 to 20 away after a turn of 10 degrees, and their true depths."""
    rng = np.random.default_rng(seed)
    x0 = rng.uniform([-0.3, -0.4], [0.6, 0.4], (2000, 2))
    depths = 1 / rng.uniform(1 / 20, 1 / 5, len(x0))
    R_10 = rotation_from_vector(np.array([0.0, np.radians(-10), 0.0]))
    t_10 = np.array([-moved, 0.0, 0.0])
    points0 = depths[:, None] * np.column_stack([x0, np.ones(len(x0))])
    x1, _ = project(points0 @ R_10.T + t_10)
    seen0, seen1 = (x + rng.normal(0, SIGMA, x.shape) for x in (x0, x1))
    whitening = np.eye(2) / SIGMA
    return TwoViews(R_10, t_10, seen0, seen1, whitening, whitening), depths


@pytest.mark.parametrize("moved", [0.005, 0.02, 0.08])
def test_little_parallax_gives_depths_as_uncertain_as_stated(moved):
    views, depths = turn_on_the_spot(moved)
    good, points0, covariances0 = place_points(views, SCENE_DEPTH)
    assert good.mean() > 0.97
    assert (points0[good, 2] > 0).all()
    inverse = 1 / points0[good, 2]
    sigma = np.sqrt(covariances0[good, 2, 2]) * inverse**2
    errors = (inverse - 1 / depths[good]) / sigma
    assert abs(np.median(errors)) < 0.3
    assert 0.3 < np.sqrt(np.mean(errors**2)) < 1.3


def test_points_of_little_parallax_keep_the_depth_of_the_scene():
    """To select those that seem precise would bring the scene nearer."""
    views, depths = turn_on_the_spot(0.01)
    precise, points0, _ = triangulate_precise(views)
    assert precise.sum() > 10
    assert np.median(points0[precise, 2] / depths[precise]) < 0.7
    good, points0, _ = place_points(views, SCENE_DEPTH)
    assert np.median(points0[good, 2] / depths[good]) == pytest.approx(1.0, abs=0.1)


def test_without_parallax_points_are_as_far_as_the_scene_and_as_uncertain():
    views, _ = turn_on_the_spot(0.0)
    good, points0, covariances0 = place_points(views, SCENE_DEPTH)
    assert good.mean() > 0.97
    np.testing.assert_allclose(points0[:, 2], SCENE_DEPTH, rtol=0.01)
    assert (np.sqrt(covariances0[good, 2, 2]) > 0.9 * SCENE_DEPTH).all()


def test_matches_that_fit_no_depth_are_refused():
    views, _ = turn_on_the_spot(0.02)
    aside = views.x1 + np.array([0.0, 15 * SIGMA])
    good, _, _ = place_points(replace(views, x1=aside), SCENE_DEPTH)
    assert not good.any()
    nearer = views.x1 - np.array([0.05, 0.0])
    good, _, _ = place_points(replace(views, x1=nearer), SCENE_DEPTH)
    assert not good.any()

"""Sources of metric scale, each on evidence whose scale is known."""

import numpy as np
import pytest

from lgc_ros.errors import ConfigError
from lgc_ros.odometry.metric_scale import ScaleEstimator
from lgc_ros.odometry.scale import ScaleEvidence, ScaleOptions

UNIT_M = 2.5  # meters that one unit of the map is
HEIGHT_M = 1.5


def evidence(points_cam=(), depths_m=None, odom_distance_m=None, motion_m=(0, 0, 0.4)):
    return ScaleEvidence(
        elapsed_s=0.5,
        motion_cam=np.array(motion_m) / UNIT_M,
        odom_distance_m=odom_distance_m,
        points_cam=np.reshape(points_cam, (-1, 3)) / UNIT_M,
        depths_m=depths_m,
    )


def plane(rng, count, height_m, pitch_deg=0.0):
    """Points of a level surface below a camera that looks down by a pitch, in its frame."""
    x, z = rng.uniform(-3, 3, count), rng.uniform(2.0, 9, count)
    points = np.column_stack([x, height_m + rng.normal(0, 0.01, count), z])
    p = np.radians(pitch_deg)
    turn = np.array([[1, 0, 0], [0, np.cos(p), -np.sin(p)], [0, np.sin(p), np.cos(p)]])
    return points @ turn.T


def walls(rng, count):
    return rng.uniform([-4, -2, 3], [4, 1.2, 12], (count, 3))


def height_options(**settings):
    return ScaleOptions("camera_height", camera_height_m=HEIGHT_M, **settings)


def scale_of(options, known):
    return ScaleEstimator(options).correction(known)


def test_the_ground_gives_metric_scale():
    rng = np.random.default_rng(3)
    points = np.vstack([plane(rng, 80, HEIGHT_M), walls(rng, 120)])
    assert scale_of(height_options(), evidence(points)) == pytest.approx(UNIT_M, rel=0.05)


def test_a_few_points_are_not_taken_for_the_ground():
    rng = np.random.default_rng(3)
    estimator = ScaleEstimator(height_options())
    assert estimator.correction(evidence(plane(rng, 10, HEIGHT_M))) == 1.0
    assert (estimator.asked, estimator.answered) == (1, 0)


def test_a_table_above_the_ground_is_not_taken_for_it():
    rng = np.random.default_rng(4)
    points = np.vstack([plane(rng, 60, HEIGHT_M), plane(rng, 90, HEIGHT_M / 2), walls(rng, 60)])
    assert scale_of(height_options(), evidence(points)) == pytest.approx(UNIT_M, rel=0.05)


def test_a_mounting_that_looks_down_is_allowed_for():
    rng = np.random.default_rng(5)
    points = plane(rng, 80, HEIGHT_M, pitch_deg=25)
    options = height_options(camera_pitch_deg=25.0)
    aside = evidence(points, motion_m=(0.4, 0, 0))
    assert scale_of(options, aside) == pytest.approx(UNIT_M, rel=0.05)


@pytest.mark.parametrize("pitch_deg", [-2.0, 3.0, 12.0])
def test_the_pitch_follows_from_driving_along_the_ground(pitch_deg):
    rng = np.random.default_rng(8)
    p = np.radians(pitch_deg)
    ahead = 0.4 * np.array([0, -np.sin(p), np.cos(p)])
    known = evidence(plane(rng, 80, HEIGHT_M, pitch_deg), motion_m=ahead)
    assert scale_of(height_options(), known) == pytest.approx(UNIT_M, rel=0.03)


def test_a_climbing_camera_measures_no_height():
    rng = np.random.default_rng(9)
    climbing = evidence(plane(rng, 80, HEIGHT_M), motion_m=(0, -0.4, 0.1))
    assert scale_of(height_options(), climbing) == 1.0


def test_without_ground_nothing_is_corrected():
    rng = np.random.default_rng(6)
    above = rng.uniform([-4, -3, 3], [4, 0, 12], (100, 3))
    assert scale_of(height_options(), evidence(above)) == 1.0
    assert scale_of(height_options(), evidence()) == 1.0


def test_depth_wheels_and_speed_give_the_same_scale():
    rng = np.random.default_rng(7)
    points = rng.uniform([-2, -2, 2], [2, 2, 8], (50, 3))
    depths_m = points[:, 2].copy()
    depths_m[::5] = 0.0
    depths_m[1] = np.nan
    assert scale_of(ScaleOptions("depth"), evidence(points, depths_m)) == pytest.approx(UNIT_M)
    wheels = evidence(odom_distance_m=0.4)
    assert scale_of(ScaleOptions("odom"), wheels) == pytest.approx(UNIT_M)
    speed = ScaleOptions("constant_speed", speed_mps=0.8)
    assert scale_of(speed, evidence()) == pytest.approx(UNIT_M)


def test_one_bad_measurement_changes_nothing():
    estimator = ScaleEstimator(ScaleOptions("odom"))
    for _ in range(5):
        factor = estimator.correction(evidence(odom_distance_m=0.4 / UNIT_M))
    assert factor == pytest.approx(1.0)
    assert estimator.correction(evidence(odom_distance_m=40.0)) == pytest.approx(1.0)


@pytest.mark.parametrize("options", [{"source": "camera_height"}, {"source": "stars"}])
def test_unknown_sources_and_missing_numbers_are_refused(options):
    with pytest.raises(ConfigError):
        ScaleOptions(**options)

"""Synthetic sequences: images, depth, poses, stamps and intrinsics agree with one another."""

import cv2
import numpy as np
import pytest
from sequences import pixel_grid

from lgc_ros.errors import ConfigError
from lgc_ros.features.base import make_extractor
from lgc_ros.geometry.epipolar import essential_from_pose, sampson_distance
from lgc_ros.matching.correspondences import match
from lgc_ros.sources.synthetic import START_NS, SyntheticSource, default_camera

BARREL = (-0.28, 0.09, 0.0005, -0.0003, 0.0)
LENSES = {"pinhole": (), "barrel": BARREL}


@pytest.fixture(scope="module", params=LENSES)
def pair(request, world):
    """Two frames of a walk, 0.2 s apart."""
    source = SyntheticSource("walk", 40, distortion=LENSES[request.param], world=world)
    return source[20], source[24]


def test_depth_and_poses_map_pixels_between_frames(pair):
    first, second = pair
    camera, xy = first.camera, pixel_grid(first.camera)
    z = first.depth.reshape(-1, 1).astype(float)
    points = np.column_stack([camera.normalize(xy) * z, z])
    T_10 = np.linalg.inv(second.T_wc) @ first.T_wc
    moved = points @ T_10[:3, :3].T + T_10[:3, 3]
    where = camera.project(moved)
    width, height = camera.size
    inside = (moved[:, 2] > 0.1) & (where > 1).all(1) & (where < (width - 2, height - 2)).all(1)
    where, moved = where[inside].astype(np.float32)[:, None], moved[inside]
    depth = cv2.remap(second.depth, where[:30000], None, cv2.INTER_NEAREST).ravel()
    seen = np.abs(depth / moved[:30000, 2] - 1) < 0.02
    assert seen.mean() > 0.9
    colors = cv2.remap(second.image, where[:30000], None, cv2.INTER_LINEAR)[:, 0]
    difference = np.abs(colors - first.image.reshape(-1, 3)[inside][:30000].astype(float))
    assert np.median(difference[seen]) < 4
    assert np.median(np.abs(depth / moved[:30000, 2] - 1)[seen]) < 2e-3


def test_sift_matches_agree_with_the_true_epipolar_geometry(pair):
    first, second = pair
    extract = make_extractor("sift", max_keypoints=2000)
    features = [extract(frame.image) for frame in pair]
    matches = match(*features)
    x0, x1 = (
        frame.camera.normalize(f.points[index].astype(float))
        for frame, f, index in zip(pair, features, (matches.index0, matches.index1), strict=True)
    )
    T_10 = np.linalg.inv(second.T_wc) @ first.T_wc
    E = essential_from_pose(T_10[:3, :3], T_10[:3, 3])
    distance_px = np.sqrt(sampson_distance(E, x0, x1)) * first.camera.focal
    sure = matches.mutual & (matches.ratio < 0.8)
    assert sure.sum() > 300
    assert np.median(distance_px[sure]) < 0.25
    # The filter needs outliers to reject.
    assert 0.2 < (distance_px < 1).mean() < 0.95


def test_frames_have_enough_keypoints(world):
    source = SyntheticSource("loop", 9, world=world)
    counts = [len(cv2.SIFT_create().detect(frame.image)) for frame in source]
    assert np.median(counts) > 1000
    assert min(counts) > 500


def test_a_frame_does_not_depend_on_the_frames_before_it(world, small_camera):
    options = {"camera": small_camera, "world": world, "noise": 4.0, "blur": 0.5, "exposure": 0.2}
    forwards = list(SyntheticSource("walk", 4, **options))
    alone = SyntheticSource("walk", 4, **options)[-1]
    assert alone.index == 3
    assert alone.image.tobytes() == forwards[3].image.tobytes()
    assert alone.depth.tobytes() == forwards[3].depth.tobytes()
    assert (alone.image != forwards[2].image).any()


def test_frames_are_indexed_like_a_list(world, small_camera):
    source = SyntheticSource("standstill", 3, camera=small_camera, world=world)
    assert len(source) == 3
    assert [frame.index for frame in source] == [0, 1, 2]
    assert source[-1].index == 2
    with pytest.raises(IndexError):
        source[3]


def test_stamps_are_whole_nanoseconds_at_the_given_rate(world, small_camera):
    source = SyntheticSource("standstill", 4, rate_hz=30, camera=small_camera, world=world)
    stamps = [frame.stamp_ns - START_NS for frame in source]
    assert stamps == [0, 33_333_333, 66_666_667, 100_000_000]


def test_noise_has_the_given_standard_deviation_at_mid_gray(world, small_camera):
    clean = SyntheticSource("standstill", 1, camera=small_camera, world=world)[0].image
    noisy = SyntheticSource("standstill", 1, camera=small_camera, world=world, noise=5.0)[0].image
    gray = (clean > 118) & (clean < 138)
    assert (noisy[gray] - clean[gray].astype(float)).std() == pytest.approx(5, rel=0.15)


def sharpness(image):
    return cv2.Laplacian(image, cv2.CV_64F).std()


def test_blur_of_a_fast_turn_is_continuous(world, small_camera):
    """Too few images would leave sharp copies beside each other along the motion."""
    options = {"camera": small_camera, "world": world, "rate_hz": 2}
    image = cv2.cvtColor(
        SyntheticSource("rotation", 3, blur=1.0, **options)[1].image, cv2.COLOR_BGR2GRAY
    ).astype(float)
    along, across = (np.diff(image, axis=axis).std() for axis in (1, 0))
    assert along < 0.6 * across


@pytest.mark.parametrize("option", [{"blur": 1.0}, {"defocus_px": 1.5}])
def test_blur_removes_detail(world, small_camera, option):
    options = {"camera": small_camera, "world": world, "rate_hz": 5}
    sharp = SyntheticSource("rotation", 3, **options)[1].image
    blurred = SyntheticSource("rotation", 3, **options, **option)[1].image
    assert sharpness(blurred) < 0.8 * sharpness(sharp)
    assert blurred.mean() == pytest.approx(sharp.mean(), rel=0.03)


def test_exposure_drifts_and_corners_darken(world, small_camera):
    options = {"camera": small_camera, "world": world}
    plain = SyntheticSource("standstill", 60, **options)[0].image.astype(float)
    drifting = SyntheticSource("standstill", 60, exposure=0.3, **options)
    means = [drifting[k].image.mean() for k in range(0, 60, 10)]
    assert max(means) > 1.1 * min(means)
    dark = SyntheticSource("standstill", 60, vignetting=0.5, **options)[0].image
    assert dark[:2, :2].mean() == pytest.approx(0.5 * plain[:2, :2].mean(), rel=0.1)
    assert dark[55:65, 75:85].mean() == pytest.approx(plain[55:65, 75:85].mean(), abs=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trajectory": "fly"}, "use one of walk, loop, rotation, standstill"),
        ({"kind": "moon"}, "use one of room, street"),
        ({"frames": 0}, "at least one frame"),
        ({"rate_hz": 0.0}, "positive rate"),
        ({"seed": -1}, "not be negative"),
        ({"camera": default_camera(), "distortion": BARREL}, "in the camera"),
    ],
)
def test_invalid_options_are_rejected(options, message):
    with pytest.raises(ConfigError, match=message):
        SyntheticSource(**options)

"""The synthetic world tells the truth: images, depth, poses, stamps and intrinsics agree."""

from itertools import pairwise

import cv2
import numpy as np
import pytest
from transforms3d.quaternions import quat2mat

from lgc_ros.errors import ConfigError, SourceError
from lgc_ros.features.base import make_extractor
from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.epipolar import essential_from_pose, sampson_distance
from lgc_ros.images.frame import Frame, read_image
from lgc_ros.matching.correspondences import match
from lgc_ros.sources.synthetic import (
    START_NS,
    TRAJECTORIES,
    Motion,
    SyntheticSource,
    default_camera,
)
from lgc_ros.sources.tum import write_tum
from lgc_ros.synthetic import World, build_scene
from lgc_ros.synthetic.renderer import ALIGN, Rays, Renderer

BARREL = (-0.28, 0.09, 0.0005, -0.0003, 0.0)
LENSES = {"pinhole": (), "barrel": BARREL}


@pytest.fixture(scope="module")
def world():
    return World(seed=0)


@pytest.fixture(scope="module")
def small_camera():
    return Camera.from_K(np.array([[131.0, 0, 79.5], [0, 131.0, 59.5], [0, 0, 1]]), 160, 120)


@pytest.fixture(scope="module", params=LENSES)
def pair(request, world):
    """Two frames of a walk, 0.2 s apart."""
    source = SyntheticSource("walk", 40, distortion=LENSES[request.param], world=world)
    return source[20], source[24]


def checkerboard(width, height, square=16):
    y, x = np.mgrid[:height, :width] // square
    return np.repeat(((x + y) % 2 * 200 + 20).astype(np.uint8)[..., None], 3, axis=2)


def pixels(camera):
    width, height = camera.size
    return np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1).reshape(-1, 2) * 1.0


@pytest.mark.parametrize("lens", LENSES)
def test_depth_of_a_slanted_plane_is_the_intersection_of_ray_and_plane(lens):
    camera = default_camera(LENSES[lens])
    origin, u, v = np.array([-4.0, -3, 2]), np.array([8.0, 0, 3]), np.array([0, 6.0, 0])
    texture = checkerboard(8 * ALIGN, 6 * ALIGN)
    renderer = Renderer(np.column_stack([u, v, origin])[None], [texture])
    _, depth = renderer.render(Rays.of(camera), np.eye(4))
    rays = np.column_stack([camera.normalize(pixels(camera)), np.ones(depth.size)])
    normal = np.cross(u, v)
    expected = (origin @ normal) / (rays @ normal)
    inside = depth.ravel() > 0
    assert inside.mean() > 0.8
    np.testing.assert_allclose(depth.ravel()[inside], expected[inside], rtol=2e-6)


def test_texture_appears_where_it_projects(small_camera):
    """The corner of a black and white square lies at the projection of its world point."""
    origin, u, v = np.array([-1.0, -1, 2]), np.array([2.0, 0, 0.7]), np.array([0, 2.0, 0.2])
    texture = checkerboard(512, 512, 256)
    renderer = Renderer(np.column_stack([u, v, origin])[None], [texture])
    image, _ = renderer.render(Rays.of(small_camera), np.eye(4))
    expected = small_camera.project((origin + 0.5 * u + 0.5 * v)[None])
    found = cv2.cornerSubPix(
        cv2.cvtColor(image, cv2.COLOR_BGR2GRAY),
        np.round(expected).astype(np.float32)[None],
        (5, 5),
        (-1, -1),
        (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 50, 1e-4),
    )
    np.testing.assert_allclose(found.reshape(2), expected.reshape(2), atol=0.05)


def test_nearer_surfaces_hide_farther_ones_and_backs_are_not_seen(small_camera):
    def facing(z, size):
        return np.column_stack([[size, 0, 0], [0, size, 0], [-size / 2, -size / 2, z]])

    back = facing(0.5, 1.0) * [-1, 1, 1] + [[0, 0, 1], [0, 0, 0], [0, 0, 0]]
    textures = [np.full((ALIGN, ALIGN, 3), value, np.uint8) for value in (50, 150, 250)]
    renderer = Renderer(np.stack([facing(4.0, 8.0), facing(2.0, 0.5), back]), textures)
    image, depth = renderer.render(Rays.of(small_camera), np.eye(4))
    assert (image[60, 80] == 150).all()
    assert depth[60, 80] == pytest.approx(2.0)
    assert (image[5, 5] == 50).all()
    assert depth[5, 5] == pytest.approx(4.0)
    assert set(np.unique(depth.round(3))) == {2.0, 4.0}


def test_depth_and_poses_carry_pixels_from_one_frame_to_the_other(pair):
    first, second = pair
    camera, xy = first.camera, pixels(first.camera)
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
    colours = cv2.remap(second.image, where[:30000], None, cv2.INTER_LINEAR)[:, 0]
    difference = np.abs(colours - first.image.reshape(-1, 3)[inside][:30000].astype(float))
    assert np.median(difference[seen]) < 4
    assert np.median(np.abs(depth / moved[:30000, 2] - 1)[seen]) < 2e-3


def test_sift_matches_obey_the_true_epipolar_geometry(pair):
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
    # Wrong matches are what the filter is for: there have to be some.
    assert 0.2 < (distance_px < 1).mean() < 0.95


def test_frames_are_full_of_keypoints(world):
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


def test_the_seed_makes_the_world(world, small_camera):
    options = {"camera": small_camera, "seed": 1}
    first, again = (
        SyntheticSource("walk", 1, world=World(1, detail=0.2), **options)[0] for _ in range(2)
    )
    other = SyntheticSource("walk", 1, world=world, **options)[0]
    assert first.image.tobytes() == again.image.tobytes()
    assert (first.depth == again.depth).all()
    assert np.abs(first.depth - other.depth).mean() > 0.1


def test_indices_behave_like_those_of_a_list(world, small_camera):
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


def poses(world, trajectory, frames=60, **options):
    source = SyntheticSource(trajectory, frames, world=world, **options)
    return np.stack([source.T_wc(k) for k in range(frames)])


@pytest.mark.parametrize("trajectory", TRAJECTORIES)
def test_poses_are_rigid_and_smooth(world, trajectory):
    T = poses(world, trajectory, frames=200)
    R, centre = T[:, :3, :3], T[:, :3, 3]
    np.testing.assert_allclose(
        R @ R.transpose(0, 2, 1), np.broadcast_to(np.eye(3), R.shape), atol=1e-12
    )
    assert np.linalg.det(R).min() > 0
    steps = np.linalg.norm(np.diff(centre, axis=0), axis=1)
    turns = np.degrees([np.linalg.norm(cv2.Rodrigues(a.T @ b)[0]) for a, b in pairwise(R)])
    assert steps.max() < 0.15
    assert turns.max() < 5


def test_walking_covers_ground_at_about_the_given_speed(world):
    centre = poses(world, "walk", frames=101, rate_hz=20, speed_mps=0.8)[:, :3, 3]
    way = np.linalg.norm(np.diff(centre, axis=0), axis=1).sum()
    assert way == pytest.approx(5 * 0.8, rel=0.15)


def test_a_loop_ends_where_it_starts_after_going_around(world):
    T = poses(world, "loop")
    np.testing.assert_allclose(T[0], T[-1], atol=1e-9)
    assert np.linalg.norm(T[:, :2, 3] - T[0, :2, 3], axis=1).max() > 2


def test_pure_rotation_keeps_the_camera_centre(world):
    T = poses(world, "rotation")
    assert (T[:, :3, 3] == T[0, :3, 3]).all()
    turned = np.degrees(np.linalg.norm(cv2.Rodrigues(T[0, :3, :3].T @ T[-1, :3, :3])[0]))
    assert turned > 45


def test_standing_still_gives_the_same_image_again(world, small_camera):
    first, *_, last = SyntheticSource("standstill", 5, camera=small_camera, world=world)
    assert (first.T_wc == last.T_wc).all()
    assert first.image.tobytes() == last.image.tobytes()


@pytest.mark.parametrize("kind", ["room", "street"])
@pytest.mark.parametrize("seed", range(5))
def test_the_camera_stays_in_free_space(kind, seed):
    scene = build_scene(seed, kind, detail=0.05)
    motion = Motion(scene, seed, duration_s=60, speed_mps=0.8)
    for pose in TRAJECTORIES.values():
        centres = np.stack([pose(motion, t)[:3, 3] for t in np.linspace(0, 60, 200)])
        assert scene.clearance(centres).min() > 0.2


def test_detail_changes_textures_but_moves_nothing():
    coarse, fine = (build_scene(3, detail=detail) for detail in (0.05, 0.1))
    assert len(coarse.quads) == len(fine.quads)
    for a, b in zip(coarse.quads, fine.quads, strict=True):
        np.testing.assert_array_equal(a.origin, b.origin)
    assert sum(q.albedo.size for q in coarse.quads) < sum(q.albedo.size for q in fine.quads)


def test_noise_has_the_given_deviation_at_mid_grey(world, small_camera):
    clean = SyntheticSource("standstill", 1, camera=small_camera, world=world)[0].image
    noisy = SyntheticSource("standstill", 1, camera=small_camera, world=world, noise=5.0)[0].image
    grey = (clean > 118) & (clean < 138)
    assert (noisy[grey] - clean[grey].astype(float)).std() == pytest.approx(5, rel=0.15)


def sharpness(image):
    return cv2.Laplacian(image, cv2.CV_64F).std()


@pytest.mark.parametrize("option", [{"blur": 1.0}, {"defocus_px": 1.5}])
def test_blur_takes_away_detail(world, small_camera, option):
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


def read_list(path):
    lines = [line.split() for line in path.read_text().splitlines() if not line.startswith("#")]
    stamps = [int(s) * 10**9 + int(ns.ljust(9, "0")) for s, ns in (x[0].split(".") for x in lines)]
    return stamps, [line[1:] for line in lines]


def test_tum_folder_gives_back_what_was_written(world, small_camera, tmp_path):
    source = SyntheticSource("walk", 3, rate_hz=30, camera=small_camera, world=world)
    frames = list(source)
    shown = []
    write_tum(source, tmp_path / "out", progress=lambda s: (shown.append(f.index) or f for f in s))
    assert shown == [0, 1, 2]
    for name in ("rgb", "depth", "groundtruth"):
        assert read_list(tmp_path / "out" / f"{name}.txt")[0] == [f.stamp_ns for f in frames]
    for frame, (name,) in zip(frames, read_list(tmp_path / "out/rgb.txt")[1], strict=True):
        np.testing.assert_array_equal(read_image(tmp_path / "out" / name), frame.image)
    for frame, (name,) in zip(frames, read_list(tmp_path / "out/depth.txt")[1], strict=True):
        stored = cv2.imread(str(tmp_path / "out" / name), cv2.IMREAD_UNCHANGED)
        assert stored.dtype == np.uint16
        np.testing.assert_allclose(stored / 5000, frame.depth, atol=1.01e-4)
    for frame, row in zip(frames, read_list(tmp_path / "out/groundtruth.txt")[1], strict=True):
        x, y, z, qx, qy, qz, qw = map(float, row)
        np.testing.assert_allclose((x, y, z), frame.T_wc[:3, 3], atol=1e-8)
        np.testing.assert_allclose(quat2mat((qw, qx, qy, qz)), frame.T_wc[:3, :3], atol=1e-8)
    camera = Camera.from_yaml(tmp_path / "out/camera.yaml")
    np.testing.assert_allclose(camera.K, small_camera.K)
    assert camera.size == small_camera.size


def test_tum_folder_of_bare_images_claims_neither_depth_nor_ground_truth(tmp_path):
    write_tum([Frame(0, 5, np.zeros((8, 8), np.uint8))], tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rgb", "rgb.txt"]
    assert read_list(tmp_path / "rgb.txt")[0] == [5]


def test_tum_writer_refuses_a_folder_with_something_in_it(tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(SourceError, match="name a new one"):
        write_tum([], tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trajectory": "fly"}, "known are walk, loop, rotation, standstill"),
        ({"kind": "moon"}, "known are room, street"),
        ({"frames": 0}, "at least one frame"),
        ({"rate_hz": 0.0}, "positive rate"),
        ({"seed": -1}, "not be negative"),
        ({"camera": default_camera(), "distortion": BARREL}, "with the camera"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ConfigError, match=message):
        SyntheticSource(**options)

"""Original SUN3D sequences."""

from dataclasses import replace

import cv2
import numpy as np
import pytest

from lgc_ros.errors import DatasetError
from training.data.scene import usable_pairs
from training.data.sun3d import read_sun3d, read_sun3d_depth

WALL_M = 5.0


def encode(millimeters):
    millimeters = np.asarray(millimeters, np.uint16)
    return (millimeters << 3) | (millimeters >> 13)


def plane_depth(world, index):
    """Depth in millimeters of the wall z = WALL_M in the world."""
    width, height = world.size
    u, v = np.meshgrid(np.arange(width), np.arange(height))
    rays = (
        np.stack([u, v, np.ones_like(u)], axis=-1) @ np.linalg.inv(world.K).T @ world.R_cw[index]
    )
    depth = (WALL_M - world.center(index)[2]) / rays[..., 2]
    return np.rint(1000 * depth).astype(np.uint16)


@pytest.fixture
def world(world):
    """The world seen in images large enough for a grid of depths."""
    return replace(world, K=np.diag([5, 5, 1]) @ world.K, size=(320, 240))


@pytest.fixture
def sequence(tmp_path, world):
    """The world as a SUN3D sequence; depth frames are 12 ms late."""
    folder = tmp_path / "hotel"
    for name in ("image", "depth", "extrinsics"):
        (folder / name).mkdir(parents=True)
    poses = []
    for i in range(len(world)):
        image_path = folder / "image" / f"{i + 1:07d}-{100_000 * i:012d}.jpg"
        cv2.imwrite(str(image_path), np.zeros(world.size[::-1], np.uint8))
        stamp = 100_000 * i + 12_000
        cv2.imwrite(
            str(folder / "depth" / f"{i + 1:07d}-{stamp:012d}.png"), encode(plane_depth(world, i))
        )
        poses.append(np.column_stack([world.R_cw[i].T, world.center(i)]))
    np.savetxt(folder / "extrinsics" / "20130512130736.txt", np.vstack(poses), fmt="%.12f")
    np.savetxt(folder / "extrinsics" / "20120101000000.txt", np.zeros((15, 4)))
    np.savetxt(folder / "intrinsics.txt", world.K)
    return folder


def test_depth_bits_are_rotated_back(tmp_path):
    millimeters = [[0, 1, 7], [8191, 8192, 65535]]
    cv2.imwrite(str(tmp_path / "d.png"), encode(millimeters))
    np.testing.assert_allclose(read_sun3d_depth(tmp_path / "d.png") * 1000, millimeters, rtol=1e-6)


def test_poses_come_from_the_newest_file_and_map_world_to_camera(sequence, world):
    scene = read_sun3d(sequence, every=1, visibility_above=0.0)
    assert scene.name == "hotel"
    for i, image in enumerate(scene.images):
        np.testing.assert_allclose(image.R_cw, world.R_cw[i], atol=1e-9)
        np.testing.assert_allclose(image.t_cw, world.t_cw[i], atol=1e-9)
    world.check(scene, [image.camera.project(world.points @ image.R_cw.T + image.t_cw)
                        for image in scene.images])  # fmt: skip


def test_neighbors_see_more_of_each_other_than_distant_views(sequence):
    close = read_sun3d(sequence, every=1, visibility_above=0.6)
    pairs = {(int(i), int(j)) for i, j in close.pairs}
    assert {(0, 1), (1, 0), (1, 2), (2, 1)} <= pairs
    assert (0, 4) not in pairs


def test_something_in_front_hides_what_is_behind(sequence, world):
    before = {tuple(pair) for pair in read_sun3d(sequence, 1, 0.5).pairs.tolist()}
    nearest = sorted((sequence / "depth").iterdir())[1]
    cv2.imwrite(str(nearest), encode(np.full(world.size[::-1], 1000)))
    after = {tuple(pair) for pair in read_sun3d(sequence, 1, 0.5).pairs.tolist()}
    assert (0, 1) in before
    assert after == {pair for pair in before if 1 not in pair}


def test_the_video_is_subsampled(sequence):
    names = [image.name for image in read_sun3d(sequence, every=2, visibility_above=0.0).images]
    assert [name[6:13] for name in names] == ["0000001", "0000003", "0000005"]


def test_an_image_without_depth_at_its_time_is_left_out(sequence):
    sorted((sequence / "depth").iterdir())[2].unlink()
    names = [image.name for image in read_sun3d(sequence, every=1, visibility_above=0.0).images]
    assert [name[6:13] for name in names] == ["0000001", "0000002", "0000004", "0000005"]


@pytest.mark.parametrize("content", [b"no", None])
def test_unreadable_depth_is_named(sequence, content):
    path = sorted((sequence / "depth").iterdir())[3]
    if content is None:
        cv2.imwrite(str(path), np.zeros((48, 64), np.uint8))
    else:
        path.write_bytes(content)
    with pytest.raises(DatasetError, match=rf"{path.name} is not a readable 16-bit depth image"):
        read_sun3d(sequence, every=1)


def test_poses_that_do_not_fit_the_images_are_named(sequence):
    path = sequence / "extrinsics" / "20130512130736.txt"
    path.write_text("\n".join(path.read_text().splitlines()[:-3]))
    with pytest.raises(DatasetError, match=r"20130512130736\.txt holds 48 numbers.*each of 5"):
        read_sun3d(sequence)


def test_a_folder_of_something_else_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="image is missing: give a SUN3D sequence"):
        read_sun3d(tmp_path)


def test_real_rgbd_frames_agree_with_their_poses(data_dir, agreement):
    scene = read_sun3d(data_dir / "sun3d_like" / "fr1_xyz", every=2, visibility_above=0.6)
    assert len(scene.images) == 40
    # Between distant frames the noise of motion capture outweighs the tolerance of a label.
    neighbors = [(i, j) for i, j in usable_pairs(scene) if j == i + 1][:6]
    shares = [agreement(scene.images[i], scene.images[j]) for i, j in neighbors]
    assert len(shares) == 6
    assert np.median(shares) > 0.8

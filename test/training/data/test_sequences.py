"""Sequences with a trajectory: KITTI, TUM, a bag of one's own; and Strecha's image sets."""

import numpy as np
import pytest
from transforms3d.quaternions import mat2quat

from lgc_ros.errors import ConfigError, DatasetError, SourceError
from lgc_ros.geometry.camera import Camera
from training.data.kitti import read_kitti
from training.data.rosbag import read_rosbag
from training.data.scene import usable_pairs
from training.data.strecha import read_strecha
from training.data.tum import read_tum

START_NS = 1_600_000_000_123_456_789


def camera_to_world(world, index):
    return np.column_stack([world.R_cw[index].T, world.center(index)])


def tum_line(stamp_ns, pose_wc):
    w, x, y, z = mat2quat(pose_wc[:, :3])
    numbers = [*pose_wc[:, 3], x, y, z, w]
    return f"{stamp_ns // 10**9}.{stamp_ns % 10**9:09d} {' '.join(map(repr, map(float, numbers)))}"


def projections(world, scene):
    return [scene.images[0].camera.project(world.points @ world.R_cw[i].T + world.t_cw[i])
            for i in range(len(world))]  # fmt: skip


@pytest.fixture
def kitti(tmp_path, world, write_image):
    folder = tmp_path / "sequences" / "07"
    for i in range(len(world)):
        write_image(folder / "image_0" / f"{i:06d}.png")
        write_image(folder / "image_1" / f"{i:06d}.png")
    poses = [camera_to_world(world, i).ravel() for i in range(len(world))]
    np.savetxt(folder / "poses.txt", poses, fmt="%.15g")
    P0 = np.column_stack([world.K, np.zeros(3)])
    P1 = world.K @ np.column_stack([np.eye(3), [-0.5, 0, 0]])
    lines = [
        f"P{n}: " + " ".join(map(repr, map(float, P.ravel()))) for n, P in enumerate([P0, P1])
    ]
    (folder / "calib.txt").write_text("\n".join(lines) + "\n")
    return folder


def test_kitti_poses_and_gaps(kitti, world):
    scene = read_kitti(kitti, min_gap=2, max_gap=3)
    assert {abs(int(i - j)) for i, j in scene.pairs} == {2, 3}
    assert len(scene.pairs) == 2 * (3 + 2)
    world.check(scene, projections(world, scene))


def test_the_right_kitti_camera_is_offset_by_the_baseline(kitti, world):
    scene = read_kitti(kitti, camera=1)
    pixels = [
        scene.images[0].camera.project(world.points @ R.T + t + [-0.5, 0, 0])
        for R, t in zip(world.R_cw, world.t_cw, strict=True)
    ]
    world.check(scene, pixels)


def test_kitti_poses_beside_the_sequences(kitti):
    (kitti.parent.parent / "poses").mkdir()
    (kitti / "poses.txt").rename(kitti.parent.parent / "poses" / "07.txt")
    assert len(read_kitti(kitti).images) == 5


def test_kitti_errors_name_the_file(kitti):
    (kitti / "image_1").rename(kitti / "image_2")
    with pytest.raises(DatasetError, match=r"calib\.txt has no line 'P2:'"):
        read_kitti(kitti, camera=2)
    (kitti / "image_0" / "000004.png").rename(kitti / "image_0" / "000005.png")
    (kitti / "image_0" / "000000.png").unlink()
    with pytest.raises(SourceError, match=r"poses\.txt contains 5 poses for 4 images"):
        read_kitti(kitti)
    (kitti / "poses.txt").unlink()
    with pytest.raises(DatasetError, match=r"07 has no poses\.txt: give a KITTI"):
        read_kitti(kitti)


def test_real_kitti_frames_agree_with_their_poses(data_dir, agreement):
    scene = read_kitti(data_dir / "kitti_a", min_gap=2, max_gap=4)
    assert len(scene.images) == 51
    shares = [
        agreement(scene.images[i], scene.images[j]) for i, j in usable_pairs(scene, 4, seed=0)
    ]
    assert np.median(shares) > 0.9


@pytest.fixture
def tum(tmp_path, world, write_image):
    """Frames 100 ms apart; the ground truth brackets each of them but frame 2."""
    folder = tmp_path / "desk"
    Camera.from_K(world.K, *world.size, (0.05, -0.02, 0.001, 0.002, 0.0)).to_yaml(
        _made(folder) / "camera.yaml"
    )
    rgb, poses = ["# color images"], []
    for i in range(len(world)):
        stamp_ns = START_NS + i * 10**8
        rgb.append(f"{stamp_ns // 10**9}.{stamp_ns % 10**9:09d} rgb/{i}.png")
        write_image(folder / "rgb" / f"{i}.png")
        if i != 2:
            poses += [tum_line(stamp_ns + d, camera_to_world(world, i)) for d in (-(10**7), 10**7)]
    (folder / "rgb.txt").write_text("\n".join(rgb))
    (folder / "groundtruth.txt").write_text("\n".join(poses))
    return folder


def _made(folder):
    folder.mkdir(parents=True)
    return folder


def test_tum_images_get_the_pose_at_their_stamp_and_keep_their_frame_number(tum, world):
    scene = read_tum(tum, min_gap=2, max_gap=2)
    assert [image.name for image in scene.images] == [f"rgb/{i}.png" for i in (0, 1, 3, 4)]
    # Frames two apart, of which one is frame 2, are gone: only 1 and 3 remain.
    assert scene.pairs.tolist() == [[1, 2], [2, 1]]
    pixels = projections(world, scene)
    world.check(scene, [pixels[i] for i in (0, 1, 3, 4)])


def test_tum_errors_name_the_file(tum):
    with pytest.raises(DatasetError, match=r"none of 5 images lies between two poses 0\.001 s"):
        read_tum(tum, max_pose_gap_s=0.001)
    (tum / "rgb" / "3.png").unlink()
    with pytest.raises(DatasetError, match=r"rgb/3\.png is missing.*rgb\.txt"):
        read_tum(tum)
    (tum / "rgb.txt").write_text("one a.png\n")
    with pytest.raises(SourceError, match=r"rgb\.txt: 'one a\.png' is not 'stamp file'"):
        read_tum(tum)


def test_real_tum_frames_agree_with_their_poses(data_dir, agreement):
    scene = read_tum(data_dir / "fr1_xyz", min_gap=10, max_gap=15)
    assert 780 < len(scene.images) < 798  # the ground truth has a few gaps
    shares = [
        agreement(scene.images[i], scene.images[j]) for i, j in usable_pairs(scene, 5, seed=0)
    ]
    assert np.median(shares) > 0.8


@pytest.fixture
def bag(tmp_path, world):
    """A rosbag2 with raw, compressed and CameraInfo messages, and the trajectory of a robot.

    The camera looks to the robot's front: T_body_camera is the usual optical rotation.
    """
    rosbag2 = pytest.importorskip("rosbags.rosbag2")
    import cv2
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_JAZZY)
    types = store.types
    path = tmp_path / "drive"
    width, height = world.size
    with rosbag2.Writer(path, version=9) as writer:
        topics = {
            name: writer.add_connection(f"/cam/{name}", f"sensor_msgs/msg/{kind}", typestore=store)
            for name, kind in {
                "image": "Image", "compressed": "CompressedImage", "info": "CameraInfo"
            }.items()
        }  # fmt: skip
        for i in range(len(world)):
            stamp_ns = START_NS + i * 10**8
            stamp = types["builtin_interfaces/msg/Time"](stamp_ns // 10**9, stamp_ns % 10**9)
            header = types["std_msgs/msg/Header"](stamp, "camera")
            rgb = np.full((height, width, 3), (250, 10 * i, 0), np.uint8)
            padded = np.pad(rgb.reshape(height, -1), ((0, 0), (0, 5))).ravel()
            image = types["sensor_msgs/msg/Image"](
                header, height, width, "rgb8", 0, 3 * width + 5, padded
            )
            png = cv2.imencode(".png", rgb[..., ::-1])[1].ravel()
            compressed = types["sensor_msgs/msg/CompressedImage"](header, "png", png)
            roi = types["sensor_msgs/msg/RegionOfInterest"](0, 0, 0, 0, False)
            info = types["sensor_msgs/msg/CameraInfo"](
                header, height, width, "plumb_bob", np.zeros(5), world.K.ravel(),
                np.eye(3).ravel(), np.column_stack([world.K, np.zeros(3)]).ravel(), 0, 0, roi,
            )  # fmt: skip
            for name, message in {"image": image, "compressed": compressed, "info": info}.items():
                data = store.serialize_cdr(message, message.__msgtype__)
                writer.write(topics[name], stamp_ns + 3_000_000, data)  # logged 3 ms later
    T_body_camera = np.array([[0, 0, 1, 0.3], [-1, 0, 0, 0], [0, -1, 0, 0.1], [0, 0, 0, 1.0]])
    lines = []
    for i in range(len(world)):
        T_wc = np.vstack([camera_to_world(world, i), [0, 0, 0, 1]])
        T_wb = T_wc @ np.linalg.inv(T_body_camera)
        lines.append(tum_line(START_NS + i * 10**8, T_wb[:3]))
    (tmp_path / "robot.txt").write_text("\n".join(lines))
    return path, T_body_camera.ravel().tolist()


@pytest.mark.parametrize("topic", ["image", "compressed"])
def test_bag_images_follow_the_robot(bag, world, topic):
    path, T_body_camera = bag
    scene = read_rosbag(
        path,
        "robot.txt",
        f"/cam/{topic}",
        camera_info_topic="/cam/info",
        T_body_camera=T_body_camera,
        max_gap=2,
    )
    assert len(scene.images) == 5
    world.check(scene, projections(world, scene))
    for i, image in enumerate(scene.images):
        assert image.load()[0, 0].tolist() == [0, 10 * i, 250]


def test_bag_can_be_thinned(bag):
    path, _ = bag
    (path.parent / "robot.txt").rename(path.parent / "drive.txt")
    scene = read_rosbag(path, "{sequence}.txt", "/cam/image", "/cam/info", every=2)
    assert [image.load()[0, 0, 1] for image in scene.images] == [0, 20, 40]


def test_bag_errors_name_topics_and_files(bag, tmp_path):
    path, _ = bag
    with pytest.raises(SourceError, match=r"topic /image does not exist; .*/cam/compressed"):
        read_rosbag(path, "robot.txt", "/image", "/cam/info")
    with pytest.raises(ConfigError, match=r"'camera' \(YAML file\) or 'camera_info_topic'"):
        read_rosbag(path, "robot.txt", "/cam/image")
    with pytest.raises(ConfigError, match="T_body_camera has 3 numbers"):
        read_rosbag(path, "robot.txt", "/cam/image", "/cam/info", T_body_camera=[1, 2, 3])
    with pytest.raises(SourceError, match=r"walk\.txt is missing"):
        read_rosbag(path, "walk.txt", "/cam/image", "/cam/info")
    with pytest.raises(SourceError, match=r"nothing does not exist; check the path"):
        read_rosbag(tmp_path / "nothing", "robot.txt", "/cam/image", "/cam/info")
    with pytest.raises(SourceError, match=r"robot\.txt is not a bag: give a rosbag2 folder"):
        read_rosbag(tmp_path / "robot.txt", "robot.txt", "/cam/image", "/cam/info")


@pytest.fixture
def strecha(tmp_path, world, write_image):
    folder = tmp_path / "fountain"
    (folder / "gt_dense_cameras").mkdir(parents=True)
    for i in range(len(world)):
        write_image(folder / "images" / f"{i:04d}.jpg")
        blocks = [world.K, np.zeros((1, 3)), world.R_cw[i].T, world.center(i)[None]]
        text = "\n".join(" ".join(map(repr, map(float, row))) for row in np.vstack(blocks))
        (folder / "gt_dense_cameras" / f"{i:04d}.jpg.camera").write_text(
            f"{text}\n{world.size[0]} {world.size[1]}\n"
        )
    return folder


def test_strecha_cameras(strecha, world):
    scene = read_strecha(strecha)
    assert scene.name == "fountain"
    assert len(scene.pairs) == 20
    world.check(scene, projections(world, scene))


def test_strecha_pairs_have_similar_viewing_directions(strecha, world):
    limit = 8.0
    axes = world.R_cw[:, 2]
    expected = np.degrees(np.arccos(np.clip(axes @ axes.T, -1, 1))) < limit
    np.fill_diagonal(expected, False)
    assert 0 < expected.sum() < 20
    assert (
        read_strecha(strecha, max_angle_deg=limit).pairs.tolist() == np.argwhere(expected).tolist()
    )


def test_strecha_errors_name_the_file(strecha, tmp_path):
    path = strecha / "gt_dense_cameras" / "0002.jpg.camera"
    path.write_text("1 0 0\n")
    with pytest.raises(DatasetError, match=r"0002\.jpg\.camera holds 3 numbers.*it must hold K"):
        read_strecha(strecha)
    path.unlink()
    with pytest.raises(DatasetError, match=r"0002\.jpg\.camera is missing"):
        read_strecha(strecha)
    with pytest.raises(DatasetError, match="images is missing: give a scene folder"):
        read_strecha(tmp_path)

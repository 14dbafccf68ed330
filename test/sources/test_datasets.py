"""KITTI, TUM and EuRoC in their published layouts."""

import numpy as np
import pytest
import yaml
from sequences import START_NS, STEP_NS, pose
from transforms3d.quaternions import mat2quat

from lgc_ros.errors import CameraError, SourceError
from lgc_ros.images.frame import Frame
from lgc_ros.sources import open_source
from lgc_ros.sources.tum import write_tum

COUNT = 6


def row(numbers):
    return " ".join(f"{number:.12e}" for number in np.ravel(numbers))


@pytest.fixture
def kitti(tmp_path, camera, write_images):
    """Sequence 03 with cameras 0 and 2; camera 2 is 6 cm to the left."""
    folder = tmp_path / "sequences" / "03"
    for name in ("image_0", "image_2"):
        write_images(folder / name, [f"{i:06d}.png" for i in range(COUNT)])
    P0 = np.column_stack([camera.K, np.zeros(3)])
    P2 = np.column_stack([camera.K, camera.K @ [0.06, 0, 0]])
    (folder / "calib.txt").write_text(f"P0: {row(P0)}\nP2: {row(P2)}\nTr: {row(np.eye(3, 4))}\n")
    (folder / "times.txt").write_text("".join(f"{i * 0.1037:e}\n" for i in range(COUNT)))
    (tmp_path / "poses").mkdir()
    (tmp_path / "poses" / "03.txt").write_text(
        "".join(f"{row(pose(i)[:3])}\n" for i in range(COUNT))
    )
    return folder


def test_kitti_has_camera_times_and_poses(kitti, camera, levels):
    source = open_source(kitti)
    assert (source.name, len(source), levels(source)) == ("03", COUNT, list(range(COUNT)))
    np.testing.assert_allclose(source.camera.K, camera.K)
    assert (source.camera.size, source.camera.has_distortion) == ((64, 48), False)
    frame = list(source)[3]
    assert (frame.index, frame.stamp_ns) == (3, 311_100_000)
    assert frame.name == "image_0/000003.png"
    np.testing.assert_allclose(frame.T_wc, pose(3), atol=1e-11)


def test_kitti_poses_are_transformed_to_the_selected_camera(kitti):
    point_0 = np.array([0.5, -0.2, 4.0])  # seen 6 cm further right by the camera on the left
    frame = next(iter(open_source(kitti, image_folder="image_2")))
    point_w = pose(0) @ [*point_0, 1]
    np.testing.assert_allclose(np.linalg.inv(frame.T_wc) @ point_w, [0.56, -0.2, 4, 1], atol=1e-11)


def test_kitti_runs_without_times_and_poses(kitti, tmp_path, caplog):
    (kitti / "times.txt").unlink()
    (tmp_path / "poses" / "03.txt").unlink()
    last = list(open_source(kitti))[-1]
    assert (last.stamp_ns, last.T_wc) == (500_000_000, None)
    assert "times.txt is missing: assuming 10 frames per second" in caplog.text


def test_kitti_prefers_poses_in_the_sequence_folder(kitti):
    (kitti / "poses.txt").write_text(f"{row(np.eye(3, 4))}\n" * COUNT)
    np.testing.assert_array_equal(list(open_source(kitti))[5].T_wc, np.eye(4))


def test_kitti_sequence_with_removed_images_keeps_times_and_poses_of_the_others(kitti, levels):
    for i in (0, 3):
        (kitti / "image_0" / f"{i:06d}.png").unlink()
    source = open_source(kitti)
    assert levels(source) == [1, 2, 4, 5]
    for frame, i in zip(source, (1, 2, 4, 5), strict=True):
        assert frame.stamp_ns == 103_700_000 * i
        np.testing.assert_allclose(frame.T_wc, pose(i), atol=1e-11)


def test_kitti_images_that_are_not_line_numbers_are_matched_by_order(kitti):
    for i in range(COUNT):
        (kitti / "image_0" / f"{i:06d}.png").rename(kitti / "image_0" / f"{i + 700:06d}.png")
    assert [frame.stamp_ns for frame in open_source(kitti)][3] == 311_100_000


def test_kitti_errors_name_file_and_remedy(kitti, camera, tmp_path):
    with pytest.raises(SourceError, match=r"folder .*image_1 does not exist"):
        open_source(kitti, image_folder="image_1")
    (kitti / "times.txt").write_text("0\n1\n")
    with pytest.raises(SourceError, match=r"times\.txt contains 2 stamps for 6 images"):
        open_source(kitti)
    (kitti / "times.txt").unlink()
    (tmp_path / "poses" / "03.txt").write_text("1 2 3\n" * COUNT)
    with pytest.raises(SourceError, match=r"03\.txt: '1 2 3' is not 12 finite numbers"):
        open_source(kitti)
    (tmp_path / "poses" / "03.txt").unlink()
    (kitti / "calib.txt").unlink()
    with pytest.raises(CameraError, match=r"calib\.txt is missing.*--camera CAM\.yaml"):
        open_source(kitti)
    assert open_source(kitti, camera).camera is camera


@pytest.fixture
def tum(tmp_path, frames):
    """Every second frame has depth; ground truth has twice the rate of the images."""
    folder = tmp_path / "freiburg9_desk"
    depth = [np.full((48, 64), 0.5 + f.index, np.float32) for f in frames]
    write_tum(
        (
            Frame(f.index, f.stamp_ns, f.image, f.camera, None, None if f.index % 2 else d)
            for f, d in zip(frames, depth, strict=True)
        ),
        folder,
    )
    lines = []
    for i in np.arange(-0.5, 9, 0.5):
        w, x, y, z = mat2quat(pose(i)[:3, :3])
        stamp_ns = START_NS + round(i * STEP_NS)
        stamp = f"{stamp_ns // 10**9}.{stamp_ns % 10**9:09d}"
        lines.append(f"{stamp} {row(pose(i)[:3, 3])} {row([x, y, z, w])}\n")
    (folder / "groundtruth.txt").write_text("# timestamp tx ty tz qx qy qz qw\n" + "".join(lines))
    return folder


def test_tum_has_camera_ground_truth_and_depth(tum, camera, frames, levels):
    source = open_source(tum)
    assert (source.name, len(source), levels(source)) == ("freiburg9_desk", 10, list(range(10)))
    np.testing.assert_allclose(source.camera.K, camera.K)
    np.testing.assert_allclose(source.camera.D[:4], camera.D[:4])
    for frame, written in zip(source, frames, strict=True):
        assert frame.stamp_ns == written.stamp_ns
        np.testing.assert_array_equal(frame.image, written.image)
        if frame.index < 9:
            np.testing.assert_allclose(frame.T_wc, written.T_wc, atol=1e-9)
        else:  # after the end of the ground truth
            assert frame.T_wc is None
        if frame.index % 2:
            assert frame.depth is None
        else:
            assert frame.depth.dtype == np.float32
            np.testing.assert_allclose(frame.depth, 0.5 + frame.index, atol=1e-4)
    assert all(frame.depth is None for frame in open_source(tum, depth=False))


def test_tum_depth_has_the_nearest_stamp_within_20_ms(tum):
    line = (tum / "depth.txt").read_text().splitlines()[1]
    name = line.split()[1]
    stamps_ms = [21, -15]  # around the first image
    stamps = [START_NS + ms * 10**6 for ms in stamps_ms]
    (tum / "depth.txt").write_text(
        "".join(f"{ns // 10**9}.{ns % 10**9:09d} {name}\n" for ns in stamps)
    )
    depths = [frame.depth is not None for frame in open_source(tum)]
    assert depths == [True] + [False] * 9


def test_tum_frame_with_damaged_depth_is_read_without_depth(tum, caplog):
    name = (tum / "depth.txt").read_text().splitlines()[1].split()[1]
    (tum / name).write_bytes(b"damaged")
    frames = list(open_source(tum))
    assert len(frames) == 10
    assert frames[0].depth is None
    assert "not a readable 16-bit depth image" in caplog.text


def test_tum_errors_name_file_and_remedy(tum, camera):
    (tum / "camera.yaml").unlink()
    with pytest.raises(CameraError, match=r"camera\.yaml does not exist; .*--camera CAM\.yaml"):
        open_source(tum)
    (tum / "rgb.txt").write_text("# nothing\n")
    with pytest.raises(SourceError, match=r"rgb\.txt lists no images"):
        open_source(tum, camera)
    (tum / "rgb.txt").write_text("1.0\n")
    with pytest.raises(SourceError, match=r"rgb\.txt: '1\.0' is not 'stamp file'"):
        open_source(tum, camera)


@pytest.fixture
def euroc(tmp_path, camera, write_images):
    """A body with a camera that is offset and rotated."""
    folder = tmp_path / "MH_01_easy" / "mav0"
    stamps_ns = [START_NS + i * STEP_NS for i in range(COUNT)]
    names = [f"{stamp_ns}.png" for stamp_ns in stamps_ns]
    write_images(folder / "cam0" / "data", names)
    index = "".join(f"{ns},{name}\r\n" for ns, name in zip(stamps_ns, names, strict=True))
    (folder / "cam0" / "data.csv").write_text(f"#timestamp [ns],filename\r\n{index}")
    T_BS = pose(7)
    K = camera.K
    sensor = {
        "sensor_type": "camera",
        "T_BS": {"cols": 4, "rows": 4, "data": T_BS.ravel().tolist()},
        "rate_hz": 20,
        "resolution": [64, 48],
        "camera_model": "pinhole",
        "intrinsics": K[[0, 1, 0, 1], [0, 1, 2, 2]].tolist(),
        "distortion_model": "radial-tangential",
        "distortion_coefficients": camera.D[:4].tolist(),
    }
    (folder / "cam0" / "sensor.yaml").write_text(yaml.safe_dump(sensor))
    lines = ["#timestamp, p_RS_R_x [m], p_RS_R_y [m], p_RS_R_z [m], q_RS_w [], q_RS_x [], ..."]
    for i in np.arange(0.5, COUNT, 0.5):
        T_WB = pose(i) @ np.linalg.inv(T_BS)
        numbers = (*T_WB[:3, 3], *mat2quat(T_WB[:3, :3]), *np.zeros(9))
        stamp_ns = START_NS + round(i * STEP_NS)
        lines.append(f"{stamp_ns}," + ",".join(f"{number:.12f}" for number in numbers))
    ground_truth = folder / "state_groundtruth_estimate0"
    ground_truth.mkdir()
    (ground_truth / "data.csv").write_text("\n".join(lines) + "\n")
    return folder.parent


def test_euroc_ground_truth_is_transformed_from_body_to_camera(euroc, camera, levels):
    for path in (euroc, euroc / "mav0"):
        source = open_source(path)
        assert (source.name, len(source)) == ("MH_01_easy", COUNT)
    assert levels(source) == list(range(COUNT))
    np.testing.assert_allclose(source.camera.K, camera.K)
    np.testing.assert_allclose(source.camera.D, camera.D)
    for frame in source:
        assert frame.stamp_ns == START_NS + frame.index * STEP_NS
        if frame.index == 0:  # before the start of the ground truth
            assert frame.T_wc is None
        else:
            np.testing.assert_allclose(frame.T_wc, pose(frame.index), atol=1e-9)


def test_euroc_errors_name_file_and_remedy(euroc, camera):
    sensor_file = euroc / "mav0" / "cam0" / "sensor.yaml"
    sensor = yaml.safe_load(sensor_file.read_text())
    sensor_file.write_text(yaml.safe_dump({**sensor, "distortion_model": "omni"}))
    with pytest.raises(CameraError, match=r"sensor\.yaml: .*omni.*--camera CAM\.yaml"):
        open_source(euroc)
    assert open_source(euroc, camera).camera is camera
    sensor_file.write_text(yaml.safe_dump({**sensor, "T_BS": 5}))
    with pytest.raises(SourceError, match=r"sensor\.yaml: T_BS is missing"):
        open_source(euroc)
    sensor_file.unlink()
    with pytest.raises(CameraError, match=r"sensor\.yaml: the file does not exist"):
        open_source(euroc)
    (euroc / "mav0" / "cam0" / "data.csv").write_text("12.5,a.png\n")
    with pytest.raises(SourceError, match=r"'12\.5,a\.png' is not 'stamp in ns,file name'"):
        open_source(euroc, camera)


def test_real_kitti_sequence(data_dir):
    source = open_source(data_dir / "kitti_a")
    assert (len(source), source.camera.size) == (51, (1226, 370))
    first, second = list(source.select(limit=2))
    assert second.stamp_ns - first.stamp_ns == 100_000_000
    np.testing.assert_allclose(first.T_wc, np.eye(4), atol=1e-6)
    assert second.T_wc[2, 3] == pytest.approx(1.199, abs=1e-3)  # driving forwards


def test_real_tum_sequence(data_dir):
    source = open_source(data_dir / "fr1_xyz")
    assert (len(source), source.camera.size) == (798, (640, 480))
    frames = list(source.select(every=100))
    assert frames[0].stamp_ns == 1305031102175304000
    assert [frame.index for frame in frames] == list(range(0, 798, 100))
    assert sum(frame.T_wc is not None for frame in frames) >= 7
    assert source.errors == []

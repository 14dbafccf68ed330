"""Opening sources: recognition, selection of frames, damaged frames, error messages."""

import cv2
import numpy as np
import pytest
from sequences import picture

from lgc_ros.errors import CameraError, ConfigError, SourceError
from lgc_ros.sources import open_source
from lgc_ros.sources.synthetic import SyntheticSource, default_camera
from lgc_ros.sources.tum import write_tum
from lgc_ros.synthetic import World


@pytest.fixture
def folder(tmp_path, camera, write_images):
    path = tmp_path / "images"
    write_images(path, [f"frame{i}.png" for i in range(12)])
    camera.to_yaml(path / "camera.yaml")
    return path


def test_images_are_in_natural_order_of_their_names(folder, levels):
    assert levels(open_source(folder)) == list(range(12))


def test_stamps_follow_from_the_rate(folder, caplog):
    stamps_ns = [frame.stamp_ns for frame in open_source(folder, rate_hz=15)]
    assert stamps_ns[:4] == [0, 66_666_667, 133_333_333, 200_000_000]
    assert not caplog.records
    assert list(open_source(folder))[3].stamp_ns == 100_000_000
    assert "no stamps, assuming 30 images per second" in caplog.text
    with pytest.raises(ConfigError, match="the rate must be positive"):
        open_source(folder, rate_hz=0)


@pytest.mark.parametrize(
    ("names", "stamps_ns"),
    [
        (
            ["1403636579763555584.png", "1403636579813555456.png"],
            [1403636579763555584, 1403636579813555456],
        ),
        (
            ["1305031102.175304.png", "1305031102.2113.png"],
            [1305031102175304000, 1305031102211300000],
        ),
        (["20240101120000.png", "20240101120001.png"], [0, 33_333_333]),
    ],
)
def test_stamps_are_read_from_file_names(tmp_path, camera, write_images, names, stamps_ns):
    write_images(tmp_path / "images", names)
    source = open_source(tmp_path / "images", camera)
    assert [frame.stamp_ns for frame in source] == stamps_ns


def test_the_camera_is_found_in_the_parent_folder_or_given(folder, tmp_path, camera):
    (folder / "camera.yaml").rename(tmp_path / "camera.yaml")
    np.testing.assert_allclose(open_source(folder).camera.K, camera.K)
    (tmp_path / "camera.yaml").rename(tmp_path / "other.yaml")
    with pytest.raises(CameraError, match=r"no camera: .*--camera CAM\.yaml"):
        open_source(folder)
    np.testing.assert_allclose(open_source(folder, tmp_path / "other.yaml").camera.K, camera.K)
    assert open_source(folder, camera).camera is camera


def test_a_camera_with_another_image_size_is_refused_at_the_first_frame(folder):
    with pytest.raises(CameraError, match=r"frame0\.png is 64x48 .* calibrated for 640x480"):
        next(iter(open_source(folder, default_camera())))


def test_ground_truth_can_be_given_for_a_folder(folder, tmp_path):
    (tmp_path / "gt.txt").write_text("0.0 0 0 0 0 0 0 1\n0.1 3 0 0 0 0 0 1\n")
    poses = [frame.T_wc for frame in open_source(folder, rate_hz=30, gt=tmp_path / "gt.txt")]
    np.testing.assert_allclose([T[0, 3] for T in poses[:3]], [0, 1, 2], atol=1e-6)
    assert poses[4] is None


def test_given_ground_truth_replaces_that_of_the_source(tmp_path, frames):
    write_tum(frames, tmp_path / "tum")
    stamps = [frame.stamp_ns / 1e9 for frame in frames]
    lines = [f"{stamp:.9f} 5 0 0 0 0 0 1" for stamp in (stamps[0] - 1e-6, stamps[-1] + 1e-6)]
    (tmp_path / "gt.txt").write_text("\n".join(lines))
    source = open_source(tmp_path / "tum", gt=tmp_path / "gt.txt")
    assert source.ground_truth.where == str(tmp_path / "gt.txt")
    assert [frame.T_wc[0, 3] for frame in source] == [5.0] * len(frames)
    own = open_source(tmp_path / "tum")
    assert own.ground_truth.where.endswith("groundtruth.txt")
    np.testing.assert_allclose(next(iter(own)).T_wc, frames[0].T_wc, atol=1e-6)


def test_ground_truth_can_be_given_for_a_synthetic_sequence(tmp_path, world):
    (tmp_path / "gt.txt").write_text("1700000000 7 0 0 0 0 0 1\n")
    options = {"frames": 2, "world": world}
    first, second = open_source("synthetic:walk", gt=tmp_path / "gt.txt", **options)
    assert first.T_wc[0, 3] == 7
    assert second.T_wc is None  # after the end of the ground truth


def test_selected_frames_keep_their_index_and_other_frames_are_not_decoded(folder, levels):
    for path in folder.glob("frame[1245]*.png"):
        path.write_bytes(b"damaged")
    source = open_source(folder, every=3, limit=3)
    assert len(source) == 3
    assert [frame.index for frame in source] == [0, 3, 6]
    assert source.errors == []
    assert len(open_source(folder, every=5)) == 3
    with pytest.raises(ConfigError, match=r"every \(0\)"):
        open_source(folder, every=0)


def test_a_damaged_frame_is_reported_and_skipped(folder, levels, caplog):
    (folder / "frame3.png").write_bytes(b"damaged")
    (folder / "frame7.png").write_bytes((folder / "frame7.png").read_bytes()[:60])
    source = open_source(folder)
    for _ in range(2):  # a source can be read again
        assert levels(source) == [0, 1, 2, 4, 5, 6, 8, 9, 10, 11]
        assert len(source.errors) == 2
        assert "frame3.png" in source.errors[0]
    assert [frame.index for frame in source][3] == 4
    assert "skipped a frame" in caplog.text
    assert "frame7.png is not a readable image" in caplog.text


def test_a_frame_skipped_in_every_pass_is_reported_once(folder, caplog):
    (folder / "frame3.png").write_bytes(b"damaged")
    source = open_source(folder)
    for _ in range(3):  # as in a comparison of methods
        list(source)
        assert source.skipped == 1
    assert caplog.text.count("frame3.png") == 1


def test_a_source_without_readable_frames_raises_an_error(folder):
    for path in folder.glob("*.png"):
        path.write_bytes(b"damaged")
    with pytest.raises(SourceError, match=r"images has no readable frame: .*frame0\.png"):
        list(open_source(folder))


def test_frames_are_read_lazily(folder):
    frames = iter(open_source(folder))
    next(frames)
    (folder / "frame1.png").write_bytes(cv2.imencode(".png", picture(9))[1].tobytes())
    assert np.median(next(frames).image) == 180


def test_the_synthetic_world_is_a_source():
    options = {"frames": 5, "seed": 2, "world": World(seed=2)}
    source = open_source("synthetic:loop", every=2, **options)
    assert (source.name, len(source)) == ("synthetic-loop-2", 3)
    frames = list(source)
    assert [frame.index for frame in frames] == [0, 2, 4]
    expected = SyntheticSource("loop", **options)[4]
    np.testing.assert_array_equal(frames[2].image, expected.image)
    np.testing.assert_array_equal(frames[2].T_wc, expected.T_wc)
    with pytest.raises(ConfigError, match="unknown trajectory 'fly': use one of walk"):
        open_source("synthetic:fly")
    with pytest.raises(ConfigError, match="kind synthetic has no option --image-topic"):
        open_source("synthetic", image_topic="/image")


def test_options_of_another_kind_are_refused_unless_they_are_none(folder):
    with pytest.raises(ConfigError, match="kind folder has no option --image-topic"):
        open_source(folder, image_topic="/image")
    assert len(open_source(folder, image_topic=None)) == 12


def test_the_error_for_an_unknown_source_lists_what_was_found_and_expected(tmp_path, write_images):
    with pytest.raises(SourceError, match=r"nowhere does not exist; check the path"):
        open_source(tmp_path / "nowhere")
    with pytest.raises(SourceError, match="found an empty folder; expected kitti"):
        open_source(tmp_path)
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "pictures").mkdir()
    (tmp_path / "film.mp4").write_bytes(b"")
    with pytest.raises(SourceError) as raised:
        open_source(tmp_path)
    message = str(raised.value)
    for part in ("pictures/", "1 .txt", "1 .mp4", "rgb.txt", "mav0/cam0/data.csv", ".mcap"):
        assert part in message
    with pytest.raises(SourceError, match=r"found a file ending in '\.txt'"):
        open_source(tmp_path / "notes.txt")
    write_images(tmp_path, ["one.png"])
    with pytest.raises(SourceError, match="found a single image"):
        open_source(tmp_path / "one.png")


def test_a_folder_that_matches_two_kinds_needs_an_explicit_kind(tmp_path, frames, write_images):
    folder = tmp_path / "both"
    write_tum(frames, folder)
    write_images(folder, ["picture.png"])  # ignored, because rgb.txt exists
    assert len(open_source(folder)) == 10
    write_images(folder / "image_0", ["000000.png"])
    with pytest.raises(
        SourceError, match=r"kitti and tum \(found .*image_0/.*choose one with --kind"
    ):
        open_source(folder)
    assert len(open_source(folder, kind="tum")) == 10
    for kind in ("tum", "kitti", "rosbag", "folder", "video"):
        with pytest.raises(SourceError, match=r"nowhere does not exist; check the path"):
            open_source(tmp_path / "nowhere", kind=kind)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(SourceError, match=r"folder .*image_0 does not exist"):
        open_source(tmp_path / "nothing", kind="kitti")
    with pytest.raises(SourceError, match=r"rgb\.txt is not a folder"):
        open_source(folder / "rgb.txt", kind="folder")
    with pytest.raises(ConfigError, match="unknown kind of source 'avi'; use one of kitti"):
        open_source(folder, kind="avi")


def test_mixed_image_formats_need_a_pattern(folder, write_images, levels):
    write_images(folder, ["0.jpg", "1.jpg"])
    with pytest.raises(SourceError, match=r"mixes .*\(2 \.jpg, 12 \.png\).*pattern"):
        open_source(folder)
    assert levels(open_source(folder, pattern="*.jpg")) == [0, 1]
    with pytest.raises(SourceError, match=r"contains no images that match '\*\.bmp'"):
        open_source(folder, pattern="*.bmp")

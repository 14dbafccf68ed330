"""Missing, damaged and truncated bags are read as far as possible, or refused."""

from functools import partial

import numpy as np
import pytest
from bag_messages import image_message, info_message
from sequences import START_NS, STEP_NS

from lgc_ros.errors import SourceError
from lgc_ros.sources import open_source
from lgc_ros.sources.bag_poses import read_poses
from lgc_ros.sources.synthetic import default_camera


def test_a_missing_bag_is_reported():
    for read in (partial(open_source, kind="rosbag"), partial(read_poses, topic="/odom")):
        with pytest.raises(SourceError, match=r"nowhere\.mcap does not exist; check the path"):
            read("nowhere.mcap")


@pytest.fixture
def large(record, camera):
    """A bag of several megabytes, so that losing some leaves some."""
    noise = np.random.default_rng(0).integers(0, 255, (480, 640, 3), np.uint8)

    def large(storage):
        info = ("/cam/camera_info", START_NS, info_message(camera))
        images = []
        for i in range(6):
            noise[0, 0] = i
            stamp_ns = START_NS + i * STEP_NS
            images.append(("/cam/image", stamp_ns, image_message(noise.copy(), stamp_ns=stamp_ns)))
        return record([info, *images], storage, f"large_{storage}".lower())

    return large


@pytest.fixture
def vga():
    return default_camera()


@pytest.mark.parametrize("whole", [True, False], ids=["folder", "file"])
def test_the_complete_part_of_a_truncated_mcap_file_is_read(large, vga, whole, caplog):
    bag = large("MCAP")
    file = bag / f"{bag.name}.mcap"
    size = file.stat().st_size
    with file.open("r+b") as cut:
        cut.truncate(size // 2)
    source = open_source(bag if whole else file, vga)
    frames = list(source)
    assert 2 <= len(frames) == len(source) < 6
    assert [int(frame.image[0, 0, 0]) for frame in frames] == list(range(len(frames)))
    assert caplog.text.count("the recording was cut off") == 1
    with file.open("r+b") as cut:
        cut.truncate(50)
    with pytest.raises(SourceError, match=r"large_mcap.*no message was recorded before"):
        open_source(file, vga)


def test_a_bag_folder_without_metadata_is_read(large, vga):
    bag = large("MCAP")
    (bag / "metadata.yaml").unlink()
    assert len(list(open_source(bag, vga))) == 6


def test_a_bag_damaged_in_the_middle_is_read_up_to_the_damage_with_an_error(large, vga):
    bag = large("MCAP")
    with (bag / f"{bag.name}.mcap").open("r+b") as file:
        file.seek(2_500_000)
        file.write(bytes(1_500_000))
    source = open_source(bag, vga)
    frames = list(source)
    assert 0 < len(frames) < 6
    assert len(source.errors) == 1
    assert "large_mcap" in source.errors[0]


def test_the_error_for_a_truncated_database_explains_the_repair(large, vga):
    bag = large("SQLITE3")
    file = bag / f"{bag.name}.db3"
    with file.open("r+b") as cut:
        cut.truncate(file.stat().st_size // 2)
    with pytest.raises(SourceError, match=r"not a readable bag .*malformed.*sqlite3 .* reindex"):
        open_source(bag, vga)


def test_a_folder_of_several_bags_is_refused(large, vga, tmp_path):
    bag = large("MCAP")
    (tmp_path / "bags").mkdir()
    file = bag / f"{bag.name}.mcap"
    (tmp_path / "bags" / "walk_0.mcap").write_bytes(file.read_bytes())
    (tmp_path / "bags" / "run_0.mcap").write_bytes(file.read_bytes())
    with pytest.raises(SourceError, match=r"several bags: give one of run_0\.mcap, walk_0\.mcap"):
        open_source(tmp_path / "bags", vga)


@pytest.mark.parametrize("name", ["empty.mcap", "empty.db3"])
def test_a_file_that_is_not_a_bag_is_refused(tmp_path, name):
    for content in (b"", b"something else"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SourceError, match=rf"{name} is not a readable bag"):
            open_source(tmp_path / name)


def test_the_error_for_a_ros_1_bag_explains_the_conversion(tmp_path):
    (tmp_path / "old.bag").write_bytes(b"#ROSBAG V2.0\n")
    with pytest.raises(SourceError, match=r"ROS 1 bag: convert it with `rosbags-convert --src"):
        open_source(tmp_path / "old.bag")

"""`lgc record`: what is on disk while it records, when it is ready, and how it ends."""

import resource
import signal

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: no ROS to talk to")

from ros.bags.bag_commands import (
    IMAGES,
    INFOS,
    NOTE,
    TYPES,
    content,
    lgc,
    playing,
    recording,
)
from ros.processes import DEADLINE_S, free_domain, image_message, info_message
from sensor_msgs.msg import CameraInfo, Image
from std_msgs.msg import String

from lgc_ros.errors import SourceError
from lgc_ros.geometry.camera import Camera
from lgc_ros.sources.bag_reader import open_bag
from lgc_ros.sources.mcap_salvage import is_cut_off
from lgc_ros.sources.synthetic import SyntheticSource


def recorded(path):
    """Number of messages by topic of a bag, or of what is on disk of one; none if unreadable."""
    try:
        with open_bag(path, quiet=True) as reader:
            return {c.topic: c.msgcount for c in reader.connections}
    except SourceError:
        return {}


def part_size(out):
    """Bytes on disk of a recording in progress."""
    return sum(file.stat().st_size for file in out.parent.glob(f"{out.name}.part/*.mcap"))


@pytest.mark.parametrize("signals", [(signal.SIGINT,), (signal.SIGTERM,), (signal.SIGINT,) * 2])
def test_a_recording_is_complete_after_a_signal(bag, tmp_path, signals):
    domain, out = free_domain(), tmp_path / "out.mcap"
    with (
        playing(tmp_path, bag, "--loop", domain=domain),
        recording(tmp_path, out, IMAGES, "/silent", domain=domain) as recorder,
    ):
        recorder.spin_until(lambda: part_size(out) > 2**20, "the first chunk on disk")
        assert recorder.end(*signals) == 0, recorder.log
    assert not is_cut_off(out)
    images = content(out)[IMAGES]
    assert set(images) <= set(content(bag)[IMAGES])
    printed = " ".join(recorder.log.split())
    assert f"{IMAGES} {len(images)}" in printed
    assert "no messages on /silent" in printed
    assert list(tmp_path.glob("*.part")) == []


def test_the_file_of_a_killed_recorder_is_readable(bag, tmp_path):
    domain, out = free_domain(), tmp_path / "out.mcap"
    with (
        playing(tmp_path, bag, "--loop", domain=domain),
        recording(tmp_path, out, IMAGES, domain=domain) as recorder,
    ):
        recorder.spin_until(lambda: part_size(out) > 2**22, "the first chunks on disk")
        recorder.end(signal.SIGKILL)
    assert not out.exists()
    assert set(content(tmp_path / "out.mcap.part")[IMAGES]) <= set(content(bag)[IMAGES])


def test_everything_is_recorded_into_a_folder(bag, tmp_path):
    domain, out = free_domain(), tmp_path / "folder"
    waits = [word for topic in TYPES for word in ("--wait-for-subscribers", topic)]
    with recording(tmp_path, out, "--all", domain=domain) as recorder:
        code, printed = lgc(tmp_path, "play", bag, *waits, domain=domain)
        assert code == 0, printed
        assert recorder.end() == 0, recorder.log
    assert (out / "metadata.yaml").is_file()
    recorded = content(out)
    assert {topic: recorded[topic] for topic in TYPES} == content(bag)


def test_a_recording_ends_after_an_idle_time(bag, tmp_path):
    domain, out = free_domain(), tmp_path / "out.mcap"
    words = bag, "--topics", NOTE, "--wait-for-subscribers", NOTE
    with (
        recording(tmp_path, out, NOTE, "--stop-after-idle", 2, domain=domain) as recorder,
        playing(tmp_path, *words, domain=domain),
    ):
        assert recorder.process.wait(DEADLINE_S) == 0, recorder.log
    assert not is_cut_off(out)


def test_a_recording_ends_after_a_given_duration(bag, tmp_path):
    domain, out = free_domain(), tmp_path / "out.mcap"
    with playing(tmp_path, bag, "--topics", NOTE, "--loop", domain=domain) as player:
        player.listen(String, NOTE)
        with recording(tmp_path, out, NOTE, "--duration", 10, domain=domain) as recorder:
            assert recorder.process.wait(DEADLINE_S) == 0, recorder.log
    assert not is_cut_off(out)


def test_the_recorder_refuses_invalid_topic_names(tmp_path):
    code, printed = lgc(tmp_path, "record", tmp_path / "out.mcap", IMAGES, "/two words")
    assert code == 1
    assert "error: '/two words' is not a valid topic name" in printed
    assert "Traceback" not in printed
    assert not list(tmp_path.glob("out*")), "nothing is half written"


def test_an_existing_file_is_not_overwritten(tmp_path):
    (tmp_path / "out.mcap").touch()
    code, printed = lgc(tmp_path, "record", tmp_path / "out.mcap", "--all")
    assert code == 1
    assert "already exists" in printed


@pytest.mark.parametrize("name", ["out.mcap", "folder"])
def test_small_messages_are_on_disk_during_the_recording(tmp_path, name):
    out = tmp_path / name
    part = tmp_path / "out.mcap.part" if name == "out.mcap" else out
    with recording(tmp_path, out, NOTE) as recorder:
        notes = recorder.speak(String, NOTE)
        for number in range(1, 3):
            notes.publish(String(data="much less than a chunk"))
            recorder.spin_until(
                lambda number=number: recorded(part).get(NOTE) == number, "the note on disk"
            )
        recorder.end(signal.SIGKILL)
    assert recorded(part) == {NOTE: 2}


def test_a_recording_cut_off_by_kill_9_is_evaluated_and_named_in_errors(tmp_path, walk):
    out, part = tmp_path / "out.mcap", tmp_path / "out.mcap.part"
    camera = Camera.from_K([[262, 0, 160], [0, 262, 120], [0, 0, 1]], 320, 240)
    frames = list(SyntheticSource("walk", 4, camera=camera, world=walk.world))
    with recording(tmp_path, out, IMAGES, INFOS) as recorder:
        images, infos = recorder.speak(Image, IMAGES), recorder.speak(CameraInfo, INFOS)
        for frame in frames:
            infos.publish(info_message(frame))
            images.publish(image_message(frame))
        everything = {IMAGES: len(frames), INFOS: len(frames)}
        recorder.spin_until(lambda: recorded(part) == everything, "all images on disk")
        recorder.end(signal.SIGKILL)
    for words in (("run", part, "--out", tmp_path / "run"), ("evaluate", "bag", part)):
        code, printed = lgc(tmp_path, *words, "--method", "ransac+ratio")
        assert code == 0, printed
        assert "the recording was cut off" in printed
    for words in (("run", out), ("evaluate", "bag", out), ("record", out, NOTE)):
        code, printed = lgc(tmp_path, *words)
        assert code == 1
        assert f"an interrupted recording left {part}" in printed, printed
        assert f"lgc run {part}" in printed


@pytest.mark.parametrize("name", ["out.mcap", "folder"])
def test_a_full_disk_ends_a_recording_that_stays_readable(tmp_path, name):
    out, part = tmp_path / name, tmp_path / f"{name}.part"
    unfinished = part if name == "out.mcap" else out
    with recording(tmp_path, out, NOTE) as recorder:
        notes = recorder.speak(String, NOTE)
        recorder.spin_until(lambda: "ready" in recorder.log)
        notes.publish(String(data="x" * 30_000))
        recorder.spin_until(lambda: recorded(unfinished).get(NOTE) == 1, "the note on disk")
        # From now on the recorder can add little, as on a disk that is almost full.
        resource.prlimit(recorder.process.pid, resource.RLIMIT_FSIZE, (80_000, -1))

        def has_ended():
            notes.publish(String(data="x" * 30_000))
            return recorder.process.poll() is not None

        recorder.spin_until(has_ended, "the end of the recorder")
        assert recorder.process.returncode == 1
    printed = " ".join(recorder.log.split())
    assert "Traceback" not in printed
    assert "the recording is incomplete: the file is larger than this system allows" in printed
    assert f"lgc run {part}" in printed
    assert not out.exists()
    assert recorded(part)[NOTE] >= 1


def test_a_recorder_killed_before_its_first_message_leaves_a_bag_reported_as_empty(tmp_path):
    out, part = tmp_path / "out.mcap", tmp_path / "out.mcap.part"
    with recording(tmp_path, out, NOTE) as recorder:
        recorder.spin_until(lambda: part_size(out), "the start of the file on disk")
        recorder.end(signal.SIGKILL)
    code, printed = lgc(tmp_path, "run", part)
    assert code == 1
    assert "no message was recorded" in printed


def test_ready_is_printed_once_all_named_topics_are_connected(tmp_path):
    with recording(tmp_path, tmp_path / "out.mcap", NOTE, "/other") as recorder:
        notes = recorder.speak(String, NOTE)
        recorder.spin_until(lambda: "waiting for a publisher of /other" in recorder.log)
        notes.publish(String(data="not lost, although /other is awaited"))
        assert "ready" not in recorder.log
        recorder.speak(String, "/other")
        recorder.spin_until(lambda: f"ready: recording {NOTE}, /other" in recorder.log)
        assert recorder.end() == 0, recorder.log
    assert recorded(tmp_path / "out.mcap")[NOTE] == 1


def test_a_recorder_of_everything_is_ready_for_what_is_published(tmp_path):
    with recording(tmp_path, tmp_path / "out.mcap", "--all") as recorder:
        notes = recorder.speak(String, NOTE)
        recorder.spin_until(lambda: "ready: recording" in recorder.log)
        notes.publish(String(data="a note"))
        recorder.spin_until(lambda: recorded(tmp_path / "out.mcap.part").get(NOTE), "the note")
        assert recorder.end() == 0, recorder.log


@pytest.mark.parametrize("name", ["out.mcap", "folder"])
@pytest.mark.parametrize("published", [True, False])
def test_an_empty_recording_is_an_error_and_leaves_no_file(tmp_path, name, published):
    out = tmp_path / name
    with recording(tmp_path, out, NOTE, "/other") as recorder:
        if published:
            recorder.speak(String, NOTE)
        recorder.spin_until(lambda: "waiting for a publisher of" in recorder.log)
        assert recorder.end() == 1, recorder.log
    printed = " ".join(recorder.log.split())
    assert "nothing was recorded" in printed
    assert f"{NOTE}, /other" in printed
    assert "wrote" not in printed
    assert [path.name for path in tmp_path.iterdir()] == ["record"]


def test_an_empty_recording_of_limited_duration_is_an_error(tmp_path):
    code, printed = lgc(tmp_path, "record", tmp_path / "out.mcap", NOTE, "--duration", 1)
    assert code == 1
    assert "nothing was recorded" in printed
    assert NOTE in printed
    assert not (tmp_path / "out.mcap").exists()

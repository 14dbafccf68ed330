"""Cameras and streams: a real network camera on this machine, read through OpenCV."""

import time

import cv2
import numpy as np
import pytest
from sequences import picture
from streams import network_camera

from lgc_ros.errors import CameraError, SourceError
from lgc_ros.sources import open_source
from lgc_ros.sources.stream import is_stream, without_login


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/dev/video0", True),
        ("/dev/v4l/by-id/usb-cam-index0", True),
        ("rtsp://admin:secret@192.168.1.5/stream", True),
        ("http://phone.local:8080/video", True),
        ("v4l2src ! videoconvert ! appsink", True),
        ("/dev/shm/images", False),
        ("synthetic:walk", False),
        ("walk.mp4", False),
    ],
)
def test_devices_urls_and_pipelines_are_streams(text, expected):
    assert is_stream(text) == expected


def test_passwords_are_not_repeated():
    assert without_login("rtsp://me:secret@cam.local/a@b") == "rtsp://cam.local/a@b"
    assert without_login("/dev/video0") == "/dev/video0"


def test_a_live_stream_yields_images_in_order_until_it_ends(camera):
    with network_camera([picture(i) for i in range(12)]) as url:
        source = open_source(url, camera)
        frames = list(source)
    levels = [round(float(np.median(frame.image)) / 20) for frame in frames]
    assert levels == sorted(set(levels))
    assert len(levels) >= 3
    assert source.known_length is None
    stamps = [frame.stamp_ns for frame in frames]
    assert stamps == sorted(set(stamps))
    assert abs(stamps[-1] - time.time_ns()) < 60e9
    assert source.name == "127.0.0.1"


def test_a_slow_reader_gets_the_newest_image(camera):
    with network_camera([picture(i) for i in range(13)], rate_hz=10, forever=True) as url:
        frames = iter(open_source(url, camera))
        next(frames)
        time.sleep(2.5)  # until the last picture is repeated
        next(frames)
        level = float(np.median(next(frames).image)) / 20
        frames.close()
    assert round(level) == 12


def test_the_camera_of_a_stream_may_be_guessed_from_its_images():
    with network_camera([picture(3)], forever=True) as url:
        source = open_source(url, "fov:90", limit=2)
        assert [frame.camera.size for frame in source] == [(64, 48)] * 2
        assert source.camera.focal == pytest.approx(32)


def test_a_recording_behind_a_url_is_read_frame_by_frame(tmp_path, camera, levels):
    path = tmp_path / "walk.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 20, (64, 48))
    for i in range(8):
        writer.write(picture(i))
    writer.release()
    source = open_source(f"file://{path}", camera)
    assert (len(source), levels(source)) == (8, list(range(8)))


def test_errors_name_cause_and_remedy(camera):
    with pytest.raises(CameraError, match=r"no camera: .*cam\.local.*--camera CAM\.yaml"):
        open_source("rtsp://me:secret@cam.local/stream")
    with pytest.raises(SourceError, match=r"/dev/video97 cannot be opened: .*group video"):
        open_source("/dev/video97", camera)
    if not cv2.videoio_registry.hasBackend(cv2.CAP_GSTREAMER):
        with pytest.raises(SourceError, match="this OpenCV has no GStreamer"):
            open_source("videotestsrc ! appsink", camera)

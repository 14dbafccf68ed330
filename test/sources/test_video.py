"""Video files."""

import cv2
import pytest
from sequences import picture

from lgc_ros.errors import CameraError, SourceError
from lgc_ros.sources import open_source


@pytest.fixture
def video(tmp_path, camera):
    path = tmp_path / "walk.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 20, (64, 48))
    if not writer.isOpened():
        pytest.skip("this OpenCV cannot write Motion JPEG videos")
    for i in range(8):
        writer.write(picture(i))
    writer.release()
    camera.to_yaml(tmp_path / "walk.yaml")
    return path


def test_frames_are_stamped_by_the_time_of_the_video(video, levels):
    source = open_source(video)
    assert (source.name, len(source), levels(source)) == ("walk", 8, list(range(8)))
    assert [frame.stamp_ns for frame in source] == [i * 50_000_000 for i in range(8)]
    assert list(source)[7].name == "walk.avi/000007"


def test_a_rate_replaces_the_time_of_the_video(video):
    source = open_source(video, rate_hz=3)
    assert [frame.stamp_ns for frame in source][:3] == [0, 333_333_333, 666_666_667]


def test_frames_can_be_selected(video, levels):
    source = open_source(video, every=3, limit=2)
    assert levels(source) == [0, 3]
    assert [(frame.index, frame.stamp_ns) for frame in source] == [(0, 0), (3, 150_000_000)]


def test_the_camera_is_found_in_the_folder_of_the_video(video, tmp_path):
    (tmp_path / "walk.yaml").rename(tmp_path / "camera.yaml")
    assert open_source(video).camera.size == (64, 48)
    (tmp_path / "camera.yaml").unlink()
    with pytest.raises(
        CameraError, match=r"walk\.yaml or .*camera\.yaml does not.*--camera CAM\.yaml"
    ):
        open_source(video)


def test_ground_truth_can_be_given(video, tmp_path):
    (tmp_path / "gt.txt").write_text("0.0 0 0 0 0 0 0 1\n0.1 4 0 0 0 0 0 1\n")
    poses = [frame.T_wc for frame in open_source(video, gt=tmp_path / "gt.txt")]
    assert poses[1][0, 3] == pytest.approx(2)
    assert poses[3] is None


def test_a_file_that_is_not_a_video_is_refused(tmp_path, camera):
    (tmp_path / "walk.mp4").write_bytes(b"not a video")
    with pytest.raises(SourceError, match=r"walk\.mp4 cannot be opened as a video.*ffmpeg"):
        open_source(tmp_path / "walk.mp4", camera)

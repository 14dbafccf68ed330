"""Everything that `--camera` accepts, for every source."""

import logging
import math

import numpy as np
import pytest

from lgc_ros.errors import CameraError
from lgc_ros.geometry.camera_presets import PRESETS
from lgc_ros.sources import open_source
from lgc_ros.sources.camera_choice import SampleImage, choose_camera


def choose(text, size=(640, 480), path=None):
    return choose_camera(text, lambda: SampleImage(size, path))


@pytest.mark.parametrize(
    ("text", "D"),
    [
        ("500,510,320,240", []),
        ("500,510,320,240,-0.3,0.1,0.001,-0.002", [-0.3, 0.1, 0.001, -0.002]),
        ("5e2,510,320,240,-0.3,0.1,0,0,0.01", [-0.3, 0.1, 0, 0, 0.01]),
    ],
)
def test_numbers_are_intrinsics_and_distortion_at_the_size_of_the_images(text, D):
    camera = choose(text, (700, 500))
    np.testing.assert_allclose(camera.K, [[500, 0, 320], [0, 510, 240], [0, 0, 1]])
    np.testing.assert_allclose(camera.D, D)
    assert camera.size == (700, 500)


def test_the_field_of_view_spans_the_width_of_the_image_and_warns_loudly(caplog):
    camera = choose("fov:90", (640, 480))
    edges = camera.normalize([[-0.5, 239.5], [639.5, 239.5]])
    angles = np.degrees(np.arctan(edges[:, 0]))
    np.testing.assert_allclose(angles, [-45, 45])
    assert not camera.has_distortion
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "GUESS: focal length 320 px" in record.message
    assert "lgc calibrate" in record.message


def test_exif_is_read_from_the_photo_and_warns(tmp_path, caplog):
    Image = pytest.importorskip("PIL.Image", reason="needs the extra `exif`")
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0xA405] = 28
    Image.fromarray(np.zeros((300, 400, 3), np.uint8)).save(tmp_path / "0.jpg", exif=exif)
    camera = open_source(tmp_path, "exif").camera
    assert camera.focal == pytest.approx(28 / math.hypot(36, 24) * 500)
    assert "EXIF of 0.jpg: 28 mm" in caplog.text
    with pytest.raises(CameraError, match="needs image files"):
        choose("exif")


def test_a_dataset_names_its_camera():
    assert choose("tum-fr1") is PRESETS["tum-fr1"]
    with pytest.raises(CameraError, match="did you mean tum-fr1"):
        choose("tum_fr1")


def test_a_file_may_name_one_of_its_cameras(tmp_path):
    path = tmp_path / "chain.yaml"
    cameras = "".join(
        f"cam{i}: {{intrinsics: [{f}, {f}, 320, 240], resolution: [640, 480], "
        "distortion_model: none}\n"
        for i, f in enumerate((500, 600))
    )
    path.write_text(cameras)
    assert (choose(path).focal, choose(f"{path}:cam1").focal) == (500, 600)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("500,500,320", "give 4, 8 or 9 numbers"),
        ("500,500,320,240,1,2", "give 4, 8 or 9 numbers"),
        ("500,wide,320,240", "give 4, 8 or 9 numbers"),
        ("500,nan,320,240", "NaN or infinity"),
        ("-500,500,320,240", "both must be positive"),
        ("fov:180", "more than 0 and less than 170"),
        ("fov:", "horizontal field of view"),
        ("nowhere.yaml", r"nowhere\.yaml: the file does not exist.*fov:DEGREES"),
    ],
)
def test_the_error_names_the_text_and_the_remedy(text, message):
    with pytest.raises(CameraError, match=message):
        choose(text)


@pytest.mark.parametrize("kind", ["folder", "tum", "synthetic"])
def test_every_source_takes_the_size_from_its_images(tum_folder, kind):
    places = {"folder": tum_folder / "rgb", "tum": tum_folder, "synthetic": "synthetic:walk"}
    source = open_source(places[kind], "300,300,150,110", limit=1)
    frame = next(iter(source))
    assert frame.camera is source.camera
    assert source.camera.size == frame.image.shape[1::-1]
    assert source.camera.K[0, 0] == 300


def test_a_bag_and_a_video_take_a_guessed_camera(short_walk, tmp_path):
    from lgc_ros.sources.bag_writer import write_bag

    write_bag(short_walk[:2], tmp_path / "bag")
    camera = next(iter(open_source(tmp_path / "bag", "fov:60"))).camera
    assert camera.size == (320, 240)
    assert camera.focal == pytest.approx(160 / math.tan(math.radians(30)))

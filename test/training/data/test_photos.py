"""Photos without poses: reconstructed once, checked, and read like any other scene."""

import json
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
from transforms3d.axangles import axangle2mat

from lgc_ros.errors import ConfigError, DatasetError, OutputError
from lgc_ros.geometry.camera import Camera
from lgc_ros.geometry.epipolar import rotation_error_deg, translation_error_deg
from lgc_ros.runtime.result_folders import locked_folder
from lgc_ros.synthetic import World
from training.data.photos import read_photos
from training.data.readers import read_scene
from training.data.rendered import read_rendered
from training.data.scene import relative_pose

pytest.importorskip("pycolmap")

CAMERA = Camera.from_K(np.array([[420.0, 0, 239.5], [0, 420, 179.5], [0, 0, 1]]), 480, 360)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    """A folder of photos taken along an arc in a rendered room, and their true poses T_cw."""
    folder = tmp_path_factory.mktemp("photos") / "room"
    folder.mkdir()
    first = read_rendered(Path("room/3"), views=1).images[0]
    world, poses = World(3, "room", detail=0.5), {}
    for index in range(7):
        # Around a point in front of the first camera, at the height of its eyes.
        turn, motif = axangle2mat([0, 1, 0], 0.1 * (index - 3)), np.array([0, 0, 2.5])
        T_cw = np.eye(4)
        T_cw[:3, :3] = turn @ first.R_cw
        T_cw[:3, 3] = turn @ (first.t_cw - motif) + motif
        image, _ = world.render(CAMERA, np.linalg.inv(T_cw))
        poses[f"{index}.png"] = T_cw
        assert cv2.imwrite(str(folder / f"{index}.png"), image)
    (folder / "notes.txt").write_text("not a photo")
    return folder, poses


@pytest.fixture(scope="module")
def models(rendered, tmp_path_factory):
    """A folder that holds the finished reconstruction of the rendered photos."""
    folder = tmp_path_factory.mktemp("models")
    read_photos(rendered[0], models=str(folder))
    return folder


def test_photos_find_their_true_places(rendered, models):
    folder, poses = rendered
    scene = read_scene("photos", folder, {"models": str(models)})
    assert scene.name == "room"
    assert {image.name for image in scene.images} == set(poses)
    assert len(scene.pairs) > 20
    for i, j in scene.pairs:
        T_10 = poses[scene.images[j].name] @ np.linalg.inv(poses[scene.images[i].name])
        R_10, t_10 = relative_pose(scene.images[i], scene.images[j])
        assert rotation_error_deg(R_10, T_10[:3, :3]) < 1
        assert translation_error_deg(t_10, T_10[:3, 3]) < 5
    assert scene.images[0].load().shape == (360, 480, 3)


def test_a_finished_reconstruction_is_used_again(rendered, models):
    files = sorted(models.rglob("*"))
    before = {path: path.stat().st_mtime_ns for path in files}
    read_photos(rendered[0], models=str(models))
    assert {path: path.stat().st_mtime_ns for path in sorted(models.rglob("*"))} == before
    assert not list(models.glob("*.work"))


def test_a_doubtful_reconstruction_is_refused_with_its_figures(rendered, models, tmp_path):
    quality = json.loads((models / "room" / "quality.json").read_text())
    assert quality["registered"] == quality["photos"] == 7
    assert quality["epipolar_px"] < 1
    with pytest.raises(DatasetError, match=r"doubtful \(only 7 of 7 photos are registered\)"):
        read_photos(rendered[0], models=str(models), min_registered=1.1)
    with pytest.raises(DatasetError, match=r"reprojection error is .* px; .*matches is .* px"):
        read_photos(rendered[0], models=str(models), max_reprojection_px=0.0, max_epipolar_px=0.0)


def test_a_model_made_by_others_is_neither_used_nor_replaced(rendered, tmp_path):
    model = tmp_path / "room" / "0" / "points3D.bin"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"days of work")
    with pytest.raises(DatasetError, match="not made by the reader 'photos'"):
        read_photos(rendered[0], models=str(tmp_path))
    assert model.read_bytes() == b"days of work"


def test_a_reconstruction_in_progress_is_left_alone(rendered, tmp_path):
    """Preparing two dumps at once from the same photos used to crash in COLMAP's database."""
    work = tmp_path / "room.work"
    work.mkdir()
    with locked_folder(work), pytest.raises(OutputError, match=r"another run .*room\.work: wait"):
        read_photos(rendered[0], models=str(tmp_path))
    assert not list(work.iterdir())


def test_photos_that_show_nothing_in_common_are_named(tmp_path):
    for seed in range(3):
        noise = np.random.default_rng(seed).integers(0, 256, (240, 320), np.uint8)
        cv2.imwrite(str(tmp_path / f"{seed}.png"), noise)
    with pytest.raises(DatasetError, match="must overlap"):
        read_photos(tmp_path)


def test_wrong_folders_and_options_are_named(tmp_path):
    with pytest.raises(DatasetError, match="holds 0 photos"):
        read_photos(tmp_path)
    with pytest.raises(DatasetError, match="is not a folder"):
        read_photos(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="camera is 'phone', it must be one of shared, own"):
        read_photos(tmp_path, camera="phone")


def test_real_photos_agree_with_the_poses_found_for_them(data_dir, agreement, tmp_path):
    scene = read_photos(data_dir / "photos" / "crazyhorse", models=str(tmp_path))
    assert len(scene.images) == 7
    i, j = scene.pairs[0]
    assert agreement(scene.images[i], scene.images[j]) > 0.8


def test_photos_of_another_size_are_named_before_they_are_left_out(rendered, tmp_path, caplog):
    folder = tmp_path / "mixed"
    shutil.copytree(rendered[0], folder)
    upright = cv2.rotate(cv2.imread(str(folder / "0.png")), cv2.ROTATE_90_CLOCKWISE)
    cv2.imwrite(str(folder / "7.png"), upright)
    scene = read_photos(folder, models=str(tmp_path / "models"))
    assert "7.png" not in {image.name for image in scene.images}
    assert "1 of 8 photos are not of the usual size 480x360" in caplog.text
    assert "'camera' to 'own'" in caplog.text

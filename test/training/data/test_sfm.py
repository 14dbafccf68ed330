"""COLMAP, Bundler and NVM models."""

import numpy as np
import pytest
from transforms3d.quaternions import mat2quat

from lgc_ros.errors import ConfigError, DatasetError
from training.data.bundler import read_bundler
from training.data.colmap import read_colmap
from training.data.nvm import read_nvm
from training.data.readers import read_scene
from training.data.sfm import shared_points

FOCAL = 60.0


def test_shared_points_are_counted_once_per_image():
    shared = shared_points(3, [[0, 1], [0, 1, 1], [2], [0, 2]])
    assert shared.tolist() == [[3, 2, 1], [2, 2, 0], [1, 0, 2]]


MODELS = {
    "SIMPLE_PINHOLE": [600, 320, 240],
    "PINHOLE": [600, 580, 320, 240],
    "SIMPLE_RADIAL": [600, 320, 240, 0.1],
    "RADIAL": [600, 320, 240, 0.1, -0.05],
    "OPENCV": [600, 580, 320, 240, 0.1, -0.05, 0.01, -0.02],
    "FULL_OPENCV": [600, 580, 320, 240, 0.1, -0.05, 0.01, -0.02, 0.03, 0.02, -0.01, 0.01],
    "OPENCV_FISHEYE": [300, 290, 320, 240, 0.05, -0.01, 0.002, 0.001],
    "RADIAL_FISHEYE": [300, 320, 240, 0.05, -0.01],
    "SIMPLE_RADIAL_FISHEYE": [300, 320, 240, 0.05],
}


@pytest.fixture
def colmap_model(tmp_path, write_image):
    """Lets pycolmap make and write a model; returns its folder and the model."""
    pycolmap = pytest.importorskip("pycolmap")

    def write(model="SIMPLE_RADIAL", form="binary", place="sparse/0"):
        options = pycolmap.SyntheticDatasetOptions()
        options.num_rigs, options.num_cameras_per_rig = 1, 1
        options.num_frames_per_rig, options.num_points3D = 4, 40
        options.camera_width, options.camera_height = 640, 480
        options.camera_model_id = pycolmap.CameraModelId.__members__[model]
        options.camera_params = MODELS.get(model, [600, 580, 320, 240, 0.5])  # FOV
        options.num_points2D_without_point3D = 3
        pycolmap.set_random_seed(1)
        reconstruction = pycolmap.synthesize_dataset(options)
        folder = tmp_path / "square"
        (folder / place).mkdir(parents=True)
        getattr(reconstruction, f"write_{form}")(str(folder / place))
        for image in reconstruction.images.values():
            write_image(folder / "images" / image.name)
        return folder, reconstruction

    return write


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("form", "place"), [("binary", "sparse/0"), ("text", ".")])
def test_colmap_models_explain_their_own_observations(colmap_model, model, form, place):
    folder, reconstruction = colmap_model(model, form, place)
    scene = read_colmap(folder, shared_points_above=5)
    assert scene.name == "square"
    by_name = {image.name: image for image in reconstruction.images.values()}
    assert [image.name for image in scene.images] == sorted(by_name)
    for image in scene.images:
        observed = [p for p in by_name[image.name].points2D if p.has_point3D()]
        points = np.array([reconstruction.points3D[p.point3D_id].xyz for p in observed])
        # COLMAP's first pixel is centered at 0.5, ours at 0.
        pixels = np.array([p.xy for p in observed]) - 0.5
        projected = image.camera.project(points @ image.R_cw.T + image.t_cw)
        np.testing.assert_allclose(projected, pixels, atol=1e-3)


def test_colmap_pairs_share_more_points_than_the_threshold(colmap_model):
    folder, reconstruction = colmap_model()
    shared = np.zeros((4, 4), int)
    images = [image for _, image in sorted(reconstruction.images.items())]
    seen = [{p.point3D_id for p in image.points2D if p.has_point3D()} for image in images]
    for i in range(4):
        for j in range(4):
            shared[i, j] = len(seen[i] & seen[j]) if i != j else 0
    threshold = int(np.median(shared[shared > 0]))
    scene = read_colmap(folder, shared_points_above=threshold)
    assert scene.pairs.tolist() == np.argwhere(shared > threshold).tolist()


def test_colmap_errors_name_the_file_and_the_remedy(colmap_model, tmp_path):
    with pytest.raises(DatasetError, match=r"no cameras.bin or cameras.txt.*option 'model'"):
        read_colmap(tmp_path)
    folder, _ = colmap_model("FOV")
    with pytest.raises(DatasetError, match=r"sparse/0: camera model FOV.*image_undistorter"):
        read_colmap(folder)
    (folder / "sparse" / "0" / "images.bin").write_bytes(b"no")
    with pytest.raises(DatasetError, match="not a readable COLMAP model"):
        read_colmap(folder)


def test_colmap_image_that_is_missing_is_named(colmap_model):
    folder, reconstruction = colmap_model()
    name = next(iter(reconstruction.images.values())).name
    (folder / "images" / name).unlink()
    with pytest.raises(DatasetError, match=f"{name} is missing.*folder of the images"):
        read_colmap(folder)


def radially_distorted(x, k1, k2):
    r2 = (x**2).sum(axis=1, keepdims=True)
    return x * (1 + k1 * r2 + k2 * r2**2)


def write_bundler(folder, world, write_image, k1=0.0, k2=0.0):
    """Write the world as Bundler describes its format: looking along -z, y up, centered pixels."""
    flip = np.diag([1, -1, -1])
    cameras, names = [], []
    for i in range(len(world)):
        R, t = flip @ world.R_cw[i], flip @ world.t_cw[i]
        cameras += [f"{FOCAL} {k1} {k2}", *(" ".join(map(repr, map(float, row))) for row in R)]
        cameras.append(" ".join(map(repr, map(float, t))))
        names.append(f"img/{i}.png 0 {FOCAL}")
        write_image(folder / f"img/{i}.png")
    # One more image, which Bundler could not register.
    cameras += ["0 0 0", "0 0 0", "0 0 0", "0 0 0", "0 0 0"]
    names.append("img/lost.png")
    write_image(folder / "img/lost.png")
    pixels, center = [], (np.array(world.size) - 1) / 2
    for i in range(len(world)):
        P = world.points @ (flip @ world.R_cw[i]).T + flip @ world.t_cw[i]
        p = -P[:, :2] / P[:, 2:]
        p = FOCAL * radially_distorted(p, k1, k2)
        pixels.append(center + p * (1, -1))  # the image's y axis points down
    points = []
    for number, point in enumerate(world.points):
        # The first 20 points are seen by all, the others by images 0 and 1 only.
        track = range(len(world)) if number < 20 else (0, 1)
        views = [f"{i} {number} 0.0 0.0" for i in track]
        points += [" ".join(map(str, point)), "255 0 0", f"{len(views)} {' '.join(views)}"]
    header = ["# Bundle file v0.3", f"{len(names)} {len(world.points)}"]
    (folder / "bundle.out").write_text("\n".join(header + cameras + points) + "\n")
    (folder / "list.txt").write_text("\n".join(names) + "\n")
    return folder / "bundle.out", pixels


@pytest.mark.parametrize(("k1", "k2"), [(0.0, 0.0), (-0.12, 0.05)])
def test_bundler_cameras_explain_pixels_made_by_its_manual(tmp_path, world, write_image, k1, k2):
    path, pixels = write_bundler(tmp_path, world, write_image, k1, k2)
    scene = read_bundler(path, shared_points_above=10)
    assert [image.name for image in scene.images] == [f"img/{i}.png" for i in range(5)]
    world.check(scene, pixels)


def test_bundler_pairs_by_shared_points(tmp_path, world, write_image):
    path, _ = write_bundler(tmp_path, world, write_image)
    assert len(read_bundler(path, shared_points_above=19).pairs) == 20
    assert read_bundler(path, shared_points_above=20).pairs.tolist() == [[0, 1], [1, 0]]


def test_bundler_errors_name_the_file(tmp_path, world, write_image):
    path, _ = write_bundler(tmp_path, world, write_image)
    text = path.read_text()
    path.write_text(text[: len(text) // 2])
    with pytest.raises(DatasetError, match=r"bundle\.out is not a complete Bundler"):
        read_bundler(path)
    path.write_text(text)
    (tmp_path / "list.txt").write_text("img/0.png\n")
    with pytest.raises(DatasetError, match=r"6 cameras but .*list\.txt lists 1 images"):
        read_bundler(path)
    (tmp_path / "list.txt").unlink()
    with pytest.raises(DatasetError, match=r"list\.txt is missing"):
        read_bundler(path)


def write_nvm(folder, world, write_image, radial=0.0, header="NVM_V3", K=None):
    """Write the world as VisualSFM's manual says: quaternion, center, undistortion coefficient."""
    K = np.diag([FOCAL, FOCAL, 1.0]) if K is None else K
    center = (np.array(world.size) - 1) / 2 if K[0, 2] == 0 else K[:2, 2]
    cameras, pixels = [], []
    for i in range(len(world)):
        numbers = [FOCAL, *mat2quat(world.R_cw[i]), *world.center(i), radial, 0]
        cameras.append(f'my"photo{i}.png\t' + " ".join(map(repr, map(float, numbers))))
        write_image(folder / f"my photo{i}.png")
        x = distorted = world.normalized(i)
        for _ in range(50):  # solve x = distorted (1 + radial |distorted|²)
            distorted = x / (1 + radial * (distorted**2).sum(axis=1, keepdims=True))
        pixels.append(center + distorted * K[[0, 1], [0, 1]])
    points = []
    for number, point in enumerate(world.points):
        track = range(len(world)) if number < 20 else (0, 1)
        views = [f"{i} {number} 0.0 0.0" for i in track]
        points.append(f"{' '.join(map(str, point))} 9 9 9 {len(views)} {' '.join(views)}")
    lines = [header, "", str(len(cameras)), *cameras, "", str(len(points)), *points, "", "0"]
    (folder / "place.nvm").write_text("\n".join(lines) + "\n")
    return folder / "place.nvm", pixels


@pytest.mark.parametrize("radial", [0.0, 0.08, -0.08])
def test_nvm_cameras_explain_pixels_made_by_its_manual(tmp_path, world, write_image, radial):
    path, pixels = write_nvm(tmp_path, world, write_image, radial)
    scene = read_nvm(path, shared_points_above=10)
    assert [image.name for image in scene.images] == [f"my photo{i}.png" for i in range(5)]
    world.check(scene, pixels, atol=1e-5)  # a hundredth of a pixel at 1000 px of focal length


def test_nvm_with_a_fixed_calibration(tmp_path, world, write_image):
    header = f"NVM_V3 FixedK {world.K[0, 0]} {world.K[0, 2]} {world.K[1, 1]} {world.K[1, 2]}"
    path, pixels = write_nvm(tmp_path, world, write_image, header=header, K=world.K)
    world.check(read_nvm(path, shared_points_above=10), pixels)


def test_nvm_pairs_by_shared_points(tmp_path, world, write_image):
    path, _ = write_nvm(tmp_path, world, write_image)
    assert read_nvm(path, shared_points_above=20).pairs.tolist() == [[0, 1], [1, 0]]


def test_nvm_errors_name_the_file(tmp_path, world, write_image):
    path, _ = write_nvm(tmp_path, world, write_image)
    text = path.read_text()
    for broken in (text[: len(text) // 2], text.replace("NVM_V3", "NVM_V2")):
        path.write_text(broken)
        with pytest.raises(DatasetError, match=r"place\.nvm is not a complete NVM_V3 file"):
            read_nvm(path)
    path.write_text(text.replace(" 5 0 0 0.0", " 5 77 0 0.0"))
    with pytest.raises(DatasetError, match=r"place\.nvm: a point is seen by an image that is not"):
        read_nvm(path)
    path.write_text(text)
    (tmp_path / "my photo2.png").unlink()
    with pytest.raises(DatasetError, match=r"my photo2\.png is missing"):
        read_nvm(path)


def test_readers_refuse_unknown_names_and_options(tmp_path):
    with pytest.raises(ConfigError, match=r"unknown reader 'openmvg': use one of raw, sun3d"):
        read_scene("openmvg", tmp_path, {})
    with pytest.raises(ConfigError, match=r"reader 'nvm'.*its options are images, shared_points"):
        read_scene("nvm", tmp_path, {"visibility_above": 3})

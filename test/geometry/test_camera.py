"""Cameras: construction, files and messages, projection with every distortion model."""

from dataclasses import replace
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from lgc_ros.errors import CameraError
from lgc_ros.geometry.camera import Camera

K = np.array([[500.0, 0, 330], [0, 510, 250], [0, 0, 1]])
WIDTH, HEIGHT = 640, 480
DISTORTIONS = {
    "pinhole": (),
    "plumb_bob": (-0.32, 0.12, 1e-3, -2e-3, -0.01),
    "rational_polynomial": (0.6, 0.2, 1e-3, -5e-4, 0.05, 0.95, 0.45, 0.08),
    "equidistant": (-0.02, 0.01, -0.006, 0.001),
}
THIN_PRISM_AND_TILT = (0.1, -0.2, 1e-3, 2e-3, 0.02, 0.05, -0.1, 0.03, 1e-3, -2e-3, 3e-3, 1e-3)


def camera_with(model, D=None):
    return Camera.from_K(K, WIDTH, HEIGHT, DISTORTIONS[model] if D is None else D, model)


def pixel_grid(step=20):
    return np.stack(
        np.meshgrid(np.arange(0, WIDTH, step), np.arange(0, HEIGHT, step)), -1
    ).reshape(-1, 2)


def rays(points):
    return np.column_stack([points, np.ones(len(points))])


def camera_info(**changes):
    roi = SimpleNamespace(x_offset=0, y_offset=0, width=0, height=0, do_rectify=False)
    for key in [key for key in changes if hasattr(roi, key) and key not in ("width", "height")]:
        setattr(roi, key, changes.pop(key))
    roi.width, roi.height = changes.pop("roi_size", (0, 0))
    info = {
        "width": WIDTH,
        "height": HEIGHT,
        "k": K.ravel(),
        "d": list(DISTORTIONS["plumb_bob"]),
        "r": np.eye(3).ravel(),
        "p": [480.0, 0, 320, 0, 0, 490, 240, 0, 0, 0, 1, 0],
        "distortion_model": "plumb_bob",
        "binning_x": 0,
        "binning_y": 0,
        "roi": roi,
    }
    return SimpleNamespace(**{**info, **changes})


@pytest.fixture
def yaml_file(tmp_path):
    """Writes a camera_info file; `changes` replace keys, None removes one."""

    def write(**changes):
        content = {
            "image_width": WIDTH,
            "image_height": HEIGHT,
            "camera_name": "left",
            "camera_matrix": {"rows": 3, "cols": 3, "data": K.ravel().tolist()},
            "distortion_model": "plumb_bob",
            "distortion_coefficients": {"rows": 1, "cols": 5, "data": [-0.3, 0.1, 0, 0, 0]},
            "projection_matrix": {"rows": 3, "cols": 4, "data": camera_info().p},
        }
        content.update(changes)
        path = tmp_path / "left.yaml"
        path.write_text(yaml.safe_dump({k: v for k, v in content.items() if v is not None}))
        return path

    return write


@pytest.mark.parametrize("model", ["plumb_bob", "rational_polynomial"])
def test_projection_agrees_with_opencv(model):
    points = np.random.default_rng(0).uniform((-2, -1.5, 3), (2, 1.5, 6), (100, 3))
    expected, _ = cv2.projectPoints(
        points, np.zeros(3), np.zeros(3), K, np.array(DISTORTIONS[model])
    )
    np.testing.assert_allclose(camera_with(model).project(points), expected[:, 0], atol=1e-9)


@pytest.mark.parametrize("tilt", [(), (0.03, -0.05)])
def test_thin_prism_and_tilted_sensor_agree_with_opencv(tilt):
    D = np.array(THIN_PRISM_AND_TILT + tilt)
    camera = camera_with("rational_polynomial", D)
    points = rays(np.random.default_rng(0).uniform(-0.6, 0.6, (100, 2)))
    expected, _ = cv2.projectPoints(points, np.zeros(3), np.zeros(3), K, D)
    np.testing.assert_allclose(camera.project(points), expected[:, 0], atol=1e-9)
    np.testing.assert_allclose(camera.normalize(expected), points[:, :2], atol=1e-10)


def test_fisheye_agrees_with_opencv():
    D = np.array(DISTORTIONS["equidistant"])
    points = np.random.default_rng(0).uniform((-6, -6, 2), (6, 6, 4), (100, 3))
    expected, _ = cv2.fisheye.projectPoints(points[:, None], np.zeros(3), np.zeros(3), K, D)
    np.testing.assert_allclose(camera_with("equidistant").project(points), expected[:, 0])


@pytest.mark.parametrize("model", DISTORTIONS)
def test_projection_inverts_normalization_for_every_pixel(model):
    camera = camera_with(model)
    pixels = pixel_grid()
    np.testing.assert_allclose(camera.project(rays(camera.normalize(pixels))), pixels, atol=1e-7)


coefficient = st.floats(-0.3, 0.3)
ray = st.tuples(st.floats(-0.7, 0.7), st.floats(-0.7, 0.7))


@settings(deadline=None)
@given(k1=coefficient, k2=st.floats(0, 0.1), p=st.tuples(*2 * [st.floats(-0.01, 0.01)]), xy=ray)
def test_normalize_inverts_plumb_bob_distortion(k1, k2, p, xy):
    camera = camera_with("plumb_bob", (k1, k2, *p))
    np.testing.assert_allclose(camera.normalize(camera.project(rays([xy])))[0], xy, atol=1e-9)


@settings(deadline=None)
@given(
    numerator=st.tuples(*3 * [st.floats(0, 0.5)]),
    denominator=st.tuples(*3 * [st.floats(0, 0.3)]),
    xy=ray,
)
def test_normalize_inverts_rational_distortion(numerator, denominator, xy):
    k1, k2, k3 = numerator
    camera = camera_with("rational_polynomial", (k1, k2, 1e-3, -1e-3, k3, *denominator))
    np.testing.assert_allclose(camera.normalize(camera.project(rays([xy])))[0], xy, atol=1e-9)


@settings(deadline=None)
@given(
    D=st.tuples(*4 * [st.floats(-0.01, 0.01)]),
    angle=st.floats(0, np.radians(85)),
    turn=st.floats(0, 2 * np.pi),
)
def test_normalize_inverts_fisheye_distortion_up_to_a_very_wide_angle(D, angle, turn):
    camera = camera_with("equidistant", D)
    xy = np.tan(angle) * np.array([np.cos(turn), np.sin(turn)])
    np.testing.assert_allclose(
        camera.normalize(camera.project(rays([xy])))[0], xy, rtol=1e-8, atol=1e-9
    )


def test_skew_is_part_of_the_camera_matrix():
    skewed = np.array([[500.0, 2, 330], [0, 510, 250], [0, 0, 1]])
    camera = Camera.from_K(skewed, WIDTH, HEIGHT, DISTORTIONS["plumb_bob"])
    pixels = pixel_grid()
    np.testing.assert_allclose(camera.project(rays(camera.normalize(pixels))), pixels, atol=1e-7)
    straight = Camera.from_K(skewed, WIDTH, HEIGHT)
    expected = (np.linalg.inv(skewed) @ rays(pixels).T).T[:, :2]
    np.testing.assert_allclose(straight.normalize(pixels), expected, atol=1e-12)


@pytest.mark.parametrize("model", DISTORTIONS)
def test_empty_arrays_of_points_are_accepted(model):
    camera = camera_with(model)
    assert camera.normalize(np.empty((0, 2))).shape == (0, 2)
    assert camera.project(np.empty((0, 3))).shape == (0, 2)


@pytest.mark.parametrize("model", ["plumb_bob", "equidistant"])
def test_a_pixel_that_no_ray_maps_to_gives_nan_and_does_not_affect_other_pixels(model):
    # Barrel distortion folds over: no ray maps beyond the maximum radius.
    D = (-0.3, 0, 0, 0)
    camera = camera_with(model, D)
    far = camera.normalize([[1e5, 1e5], [330, 250], [331, 250]])
    assert np.isnan(far[0]).all()
    np.testing.assert_allclose(far[1], 0, atol=1e-12)
    assert np.isfinite(far[2]).all()


def test_a_fisheye_pixel_that_looks_sideways_has_no_normalized_coordinates():
    sideways = camera_with("equidistant", ()).normalize([[330 + 500 * np.radians(100), 250]])
    assert np.isnan(sideways).all()


def test_points_behind_the_camera_project_to_nan():
    assert np.isnan(camera_with("pinhole").project([[0, 0, -1], [0, 0, 0]])).all()


def test_the_number_of_coefficients_selects_the_model():
    models = {count: Camera.from_K(K, 4, 4, np.zeros(count)).model for count in (0, 4, 5, 8, 14)}
    assert models == {
        0: "pinhole",
        4: "plumb_bob",
        5: "plumb_bob",
        8: "rational_polynomial",
        14: "rational_polynomial",
    }


def test_focal_and_size():
    camera = camera_with("pinhole")
    assert camera.focal == pytest.approx(505)
    assert camera.size == (WIDTH, HEIGHT)


def test_a_camera_cannot_be_changed_through_its_arrays():
    matrix = K.copy()
    camera = Camera.from_K(matrix, WIDTH, HEIGHT)
    matrix[0, 0] = 1
    assert camera.K[0, 0] == 500
    with pytest.raises(ValueError, match="read-only"):
        camera.K[0, 0] = 1


@pytest.mark.parametrize("model", DISTORTIONS)
def test_yaml_round_trip_keeps_the_projection(model, tmp_path):
    camera = camera_with(model)
    camera.to_yaml(tmp_path / "camera.yaml", name="left")
    again = Camera.from_yaml(tmp_path / "camera.yaml")
    assert again.size == camera.size
    np.testing.assert_array_equal(again.K, camera.K)
    np.testing.assert_array_equal(again.normalize(pixel_grid()), camera.normalize(pixel_grid()))


def test_written_yaml_has_the_keys_ros_reads(tmp_path):
    camera_with("plumb_bob").to_yaml(tmp_path / "camera.yaml", name="left")
    content = yaml.safe_load((tmp_path / "camera.yaml").read_text())
    assert content["camera_name"] == "left"
    assert content["distortion_coefficients"]["cols"] == 5
    assert content["projection_matrix"]["data"][:3] == [500, 0, 330]
    assert content["rectification_matrix"]["data"] == np.eye(3).ravel().tolist()


def test_a_raw_image_uses_k_and_d_and_a_rectified_one_p(yaml_file):
    for raw, rectified in (
        (Camera.from_yaml(yaml_file()), Camera.from_yaml(yaml_file(), rectified=True)),
        (
            Camera.from_camera_info(camera_info()),
            Camera.from_camera_info(camera_info(), rectified=True),
        ),
    ):
        assert raw.model == "plumb_bob"
        np.testing.assert_array_equal(raw.K, K)
        assert rectified.model == "pinhole"
        np.testing.assert_array_equal(rectified.K, [[480, 0, 320], [0, 490, 240], [0, 0, 1]])


def test_region_of_interest_moves_the_principal_point():
    info = camera_info(x_offset=100, y_offset=40, roi_size=(320, 200), do_rectify=True)
    full, cut = Camera.from_camera_info(camera_info()), Camera.from_camera_info(info)
    assert cut.size == (320, 200)
    pixels = pixel_grid()
    np.testing.assert_allclose(
        cut.normalize(pixels - [100, 40]), full.normalize(pixels), atol=1e-12
    )
    rectified = Camera.from_camera_info(info, rectified=True)
    np.testing.assert_array_equal(rectified.K[:2, 2], [220, 200])


def test_binning_maps_the_center_of_each_merged_block_onto_one_pixel():
    full = Camera.from_camera_info(camera_info())
    binned = Camera.from_camera_info(camera_info(binning_x=2, binning_y=4))
    assert binned.size == (320, 120)
    # Pixel (3, 5) merges columns 6 and 7 with rows 20 to 23.
    np.testing.assert_allclose(binned.normalize([[3, 5]]), full.normalize([[6.5, 21.5]]))


def test_region_of_interest_is_in_full_resolution_pixels_and_cut_before_binning():
    info = camera_info(x_offset=100, y_offset=40, roi_size=(320, 200), binning_x=2, binning_y=2)
    camera = Camera.from_camera_info(info)
    assert camera.size == (160, 100)
    full = Camera.from_camera_info(camera_info())
    np.testing.assert_allclose(camera.normalize([[0, 0]]), full.normalize([[100.5, 40.5]]))


def test_trailing_zero_coefficients_are_ignored():
    info = camera_info(distortion_model="equidistant", d=[0.1, 0.01, 0, 0, 0])
    assert len(Camera.from_camera_info(info).D) == 4


def test_the_error_for_an_uncalibrated_camera_explains_how_to_calibrate(yaml_file):
    zeros = np.zeros(9).tolist()
    path = yaml_file(camera_matrix={"rows": 3, "cols": 3, "data": zeros})
    for read in (
        lambda: Camera.from_camera_info(camera_info(k=zeros)),
        lambda: Camera.from_yaml(path),
        lambda: Camera.from_K(np.zeros((3, 3)), WIDTH, HEIGHT),
    ):
        with pytest.raises(CameraError, match=r"not calibrated.*cameracalibrator"):
            read()


def test_a_camera_without_rectification_cannot_be_rectified(yaml_file):
    with pytest.raises(CameraError, match="no rectification"):
        Camera.from_camera_info(camera_info(p=np.zeros(12)), rectified=True)
    with pytest.raises(CameraError, match="projection_matrix"):
        Camera.from_yaml(yaml_file(projection_matrix=None), rectified=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"K": np.full((3, 3), np.nan)}, "camera_matrix.*NaN"),
        ({"D": (np.inf, 0, 0, 0)}, "distortion_coefficients.*NaN or infinity"),
        ({"K": np.diag([-1.0, 1, 1])}, "focal lengths"),
        ({"K": np.diag([1.0, 0, 1])}, "focal lengths"),
        ({"K": np.eye(4)}, "16 numbers instead of 3x3"),
        ({"K": np.array([[1, 0, 0], [0, 1, 0], [5, 5, 1.0]])}, "0 0 1"),
        ({"width": 0}, "0x480.*positive"),
        ({"D": (0.1, 0.2)}, "2 coefficients.*0 or 4 or 5"),
        ({"D": np.ones(8), "model": "plumb_bob"}, "8 coefficients"),
        ({"D": "wide", "model": "plumb_bob"}, "numbers"),
        ({"model": "omni"}, "'omni'; use one of pinhole, plumb_bob"),
    ],
)
def test_the_error_names_an_invalid_value(changes, message):
    arguments = {"K": K, "width": WIDTH, "height": HEIGHT, "D": (), **changes}
    with pytest.raises(CameraError, match=message):
        Camera.from_K(**arguments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"camera_matrix": None}, "'camera_matrix' is missing"),
        ({"distortion_coefficients": None}, "'distortion_coefficients' is missing"),
        ({"image_width": None}, "'image_width' is missing"),
        ({"image_width": "wide"}, "image_width.*integers"),
        ({"camera_matrix": [1, 2, 3]}, "'camera_matrix' must contain rows, cols and data"),
        ({"camera_matrix": {"data": [1.0, 2.0]}}, "2 numbers instead of 3x3"),
        ({"distortion_model": "omni"}, "distortion_model 'omni'"),
    ],
)
def test_the_error_for_an_invalid_camera_file_names_file_and_key(yaml_file, changes, message):
    with pytest.raises(CameraError, match=rf"left\.yaml: .*{message}"):
        Camera.from_yaml(yaml_file(**changes))


@pytest.mark.parametrize(
    "content", ["just words", "- 1\n- 2", "a: [1", "%YAML:1.0\n---\na: 1", ""]
)
def test_a_file_that_is_not_a_camera_file_is_refused(tmp_path, content):
    path = tmp_path / "left.yaml"
    path.write_text(content)
    with pytest.raises(CameraError, match=r"left\.yaml"):
        Camera.from_yaml(path)


def test_the_error_for_a_missing_camera_file_names_the_file(tmp_path):
    with pytest.raises(CameraError, match=r"nowhere\.yaml: the file does not exist"):
        Camera.from_yaml(tmp_path / "nowhere.yaml")


def test_an_image_with_another_size_is_refused():
    camera = camera_with("pinhole")
    camera.check_image(np.zeros((HEIGHT, WIDTH), np.uint8))
    camera.check_image(np.zeros((HEIGHT, WIDTH, 3), np.uint8))
    with pytest.raises(CameraError, match=r"320x240 pixels.*640x480"):
        camera.check_image(np.zeros((240, 320), np.uint8))


@pytest.mark.parametrize("D", [(), (-0.2, 0.05, 0.001, -0.002)])
@pytest.mark.parametrize("radial", [-0.05, 0.03])
def test_projection_undoes_a_radial_correction(D, radial):
    plain = Camera.from_K(np.array([[400.0, 0, 319.5], [0, 410, 239.5], [0, 0, 1]]), 640, 480, D)
    corrected = replace(plain, radial=radial)
    pixels = np.random.default_rng(0).uniform((0, 0), (639, 479), (200, 2))
    x, moved = plain.normalize(pixels), corrected.normalize(pixels)
    squared = (x * x).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(moved, x * (1 + radial * squared), rtol=1e-12)
    points = 3.0 * np.column_stack([moved, np.ones(200)])
    np.testing.assert_allclose(corrected.project(points), pixels, atol=1e-6)


def test_rays_that_no_corrected_pixel_has_project_to_nan():
    camera = Camera(np.diag([400.0, 400.0, 1.0]), 640, 480, radial=-0.1)
    assert np.isnan(camera.project(np.array([[5.0, 0.0, 1.0]]))).all()

"""Learned extractors run from ONNX files."""

import sys

import cv2
import numpy as np
import pytest
from extractors import write_keypoints_model

from lgc_ros.errors import FeatureError
from lgc_ros.features.base import make_extractor


@pytest.fixture
def onnx_model(tmp_path):
    """Writes a tiny extractor that returns given keypoints, see `write_keypoints_model`."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")

    def write(*args, **options):
        return f"onnx:{write_keypoints_model(tmp_path / 'tiny.onnx', *args, **options)}"

    return write


PIXELS = np.array([[3, 4], [10, 20], [30, 15], [7, 22]])


@pytest.fixture
def ramp():
    """A 40x30 color image of shuffled pixel values."""
    return np.random.default_rng(0).permutation(3600).reshape(30, 40, 3).astype(np.uint8)


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
def test_keypoints_are_sorted_by_score(onnx_model, ramp, transposed, batched):
    gray = cv2.cvtColor(ramp, cv2.COLOR_BGR2GRAY)
    features = make_extractor(onnx_model(PIXELS, transposed=transposed, batched=batched))(gray)
    values = gray[PIXELS[:, 1], PIXELS[:, 0]] / 255
    order = np.argsort(-values, kind="stable")
    np.testing.assert_array_equal(features.points, PIXELS[order])
    np.testing.assert_allclose(features.responses, values[order], rtol=1e-6)
    np.testing.assert_allclose(features.descriptors, values[order, None] * [[1, 2, 3]], rtol=1e-6)
    assert features.kind == "tiny"
    assert features.descriptors.dtype == np.float32


def test_a_model_with_three_channels_gets_rgb(onnx_model, ramp):
    features = make_extractor(onnx_model(PIXELS, channels=3))(ramp)
    x, y = np.int64(features.points).T
    np.testing.assert_allclose(features.responses * 255, ramp[y, x, 0], rtol=1e-5)


def test_unnamed_outputs_are_recognized_by_shape(onnx_model, ramp):
    named = make_extractor(onnx_model(PIXELS))(ramp)
    unnamed = make_extractor(onnx_model(PIXELS, outputs=("7", "12", "31")))(ramp)
    np.testing.assert_array_equal(unnamed.points, named.points)
    np.testing.assert_array_equal(unnamed.descriptors, named.descriptors)


def test_keypoints_of_a_fixed_input_size_are_scaled_back_to_the_image(onnx_model, ramp):
    # Each input pixel covers 2x3 pixels of the image.
    extractor = make_extractor(onnx_model([[2, 3]], size=(10, 20)))
    np.testing.assert_allclose(extractor(ramp).points, [[4.5, 10]])


def test_keypoints_in_the_padding_are_dropped(onnx_model, ramp):
    # The model's size is free, so the image is padded from 40x30 to 64x32.
    features = make_extractor(onnx_model([[39, 29], [50, 29], [39, 31]]))(ramp)
    np.testing.assert_array_equal(features.points, [[39, 29]])


def test_keypoints_given_as_fractions_become_pixels(onnx_model, ramp):
    model = onnx_model(PIXELS[:3], [[-1.0, -1.0], [1.0, 1.0], [0.0, 0.0]], size=(30, 40))
    points = make_extractor(model)(ramp).points
    assert {tuple(p) for p in points.tolist()} == {(0, 0), (39, 29), (19.5, 14.5)}


def test_keypoints_given_as_shares_of_the_size_become_pixels(onnx_model, ramp):
    x, y = np.meshgrid(np.arange(0, 40, 8), np.arange(0, 30, 6))
    pixels = np.stack([x.ravel(), y.ravel()], axis=1)
    points = make_extractor(onnx_model(pixels, pixels / (40, 30), size=(30, 40)))(ramp).points
    np.testing.assert_allclose(sorted(points.tolist()), sorted(pixels.tolist()), atol=1e-5)


@pytest.mark.parametrize("size", [(97, 61), (200, 50), (20, 37), (250, 33)])
@pytest.mark.parametrize("axis", [0, 1])
def test_keypoints_are_mapped_back_to_where_the_pixels_came_from(onnx_model, size, axis):
    # Scores are pixel values, which are coordinates: they say where in the image a pixel of the
    # network's input was taken from.
    x, y = np.meshgrid(np.arange(2, 46), np.arange(2, 30))
    model = onnx_model(np.stack([x.ravel(), y.ravel()], axis=1), size=(32, 48))
    image = np.stack(np.meshgrid(*map(np.arange, size)), axis=2)[:, :, axis].astype(np.uint8)
    features = make_extractor(model)(image)
    errors = features.points[:, axis] - 255 * features.responses
    assert len(features) > 1000
    assert np.abs(errors).max() < 0.6  # the values are rounded
    assert abs(errors.mean()) < 0.05


@pytest.mark.parametrize(("kind", "shape"), [("INT64", []), ("INT64", [1]), ("INT32", [])])
def test_the_number_of_keypoints_may_be_an_input(onnx_model, ramp, kind, shape):
    model = onnx_model(PIXELS, count_input=("top_k", kind, shape))
    points = make_extractor(model, 3)(ramp).points
    assert {tuple(p) for p in points.tolist()} == {tuple(p) for p in PIXELS[:3].tolist()}


def test_other_inputs_beside_the_image_are_refused(onnx_model):
    for name, kind in (("height", "INT64"), ("top_k", "FLOAT")):
        with pytest.raises(FeatureError, match=rf"takes image .*{name}.*must take one float"):
            make_extractor(onnx_model(PIXELS, count_input=(name, kind, [])))


@pytest.mark.parametrize("spread", [False, True])
def test_number_of_keypoints_is_limited(onnx_model, ramp, spread):
    assert len(make_extractor(onnx_model(PIXELS), 2, spread)(ramp)) == 2


def test_no_keypoints_give_empty_features(onnx_model, ramp):
    for transposed in (False, True):
        model = onnx_model(np.empty((0, 2), np.int64), transposed=transposed)
        features = make_extractor(model)(ramp)
        assert features.descriptors.shape == (0, 3)


def test_models_that_are_not_extractors_are_rejected(onnx_model, ramp, tmp_path):
    with pytest.raises(FeatureError, match=r"nowhere\.onnx does not exist"):
        make_extractor(str(tmp_path / "nowhere.onnx"))
    (tmp_path / "text.onnx").write_text("not a model")
    with pytest.raises(FeatureError, match=r"text\.onnx cannot be loaded"):
        make_extractor(str(tmp_path / "text.onnx"))
    with pytest.raises(FeatureError, match=r"1 \(gray\) or 3 \(RGB\)"):
        make_extractor(onnx_model(PIXELS, channels=2))
    dense = onnx_model(PIXELS, outputs=("heat_score", "feature_score", "descriptors"))
    with pytest.raises(FeatureError, match=r"heat_score .*must return keypoints .*or raw heads"):
        make_extractor(dense)
    with pytest.raises(FeatureError, match="fails on an input of 64x32"):
        make_extractor(onnx_model([[500, 400]]))(ramp)


def test_error_without_onnxruntime_names_the_extra_that_installs_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setitem(sys.modules, "openvino", None)
    (tmp_path / "a.onnx").write_bytes(b"")
    with pytest.raises(FeatureError, match=r"onnxruntime.*lgc_ros\[onnx\]"):
        make_extractor(f"onnx:{tmp_path}/a.onnx")

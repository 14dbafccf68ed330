"""The contract that every extractor fulfils, whatever library is behind it."""

from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest

from lgc_ros.errors import FeatureError
from lgc_ros.features.base import EXTRACTORS, make_extractor

BINARY = {"orb": 32, "akaze": 61}
FLOAT = {"sift": 128, "rootsift": 128}
DESCRIPTOR_SIZES = {**BINARY, **FLOAT}


@pytest.fixture(params=sorted(EXTRACTORS))
def name(request):
    return request.param


def extract(image, name, *args, **kwargs):
    try:
        return make_extractor(name, *args, **kwargs)(image)
    except FeatureError as error:
        if "built without" in str(error):
            pytest.skip(str(error))
        raise


def assert_same(features, expected):
    for field in ("points", "descriptors", "sizes", "angles", "responses"):
        np.testing.assert_array_equal(getattr(features, field), getattr(expected, field))


@pytest.mark.parametrize("spread", [False, True])
def test_every_extractor_returns_sorted_features_of_its_kind_inside_the_image(image, name, spread):
    features = extract(image, name, 100, spread)
    count = len(features)
    assert 90 < count <= 100  # ORB does not use up the share of its small pyramid levels
    assert features.kind == name
    assert features.points.shape == (count, 2)
    assert features.points.dtype == np.float32
    assert features.descriptors.shape == (count, DESCRIPTOR_SIZES[name])
    assert features.descriptors.dtype == (np.uint8 if name in BINARY else np.float32)
    for array in (features.sizes, features.angles, features.responses):
        assert array.shape == (count,)
        assert array.dtype == np.float32
    assert (np.diff(features.responses) <= 0).all()
    assert (features.points >= 0).all()
    assert (features.points <= (319, 239)).all()


@pytest.mark.parametrize("spread", [False, True])
def test_features_do_not_depend_on_the_number_of_threads(image, name, spread):
    threads = cv2.getNumThreads()
    try:
        cv2.setNumThreads(1)
        first = extract(image, name, 150, spread)
        cv2.setNumThreads(4)
        second = extract(image, name, 150, spread)
    finally:
        cv2.setNumThreads(threads)
    assert_same(first, second)


@pytest.mark.parametrize("spread", [False, True])
def test_threads_can_share_an_extractor(image, name, spread):
    extract(image, name)
    extractor = make_extractor(name, 150, spread)
    images = [np.roll(image, 5 * i, axis=1) for i in range(12)]
    with ThreadPoolExecutor(4) as pool:
        at_once = list(pool.map(extractor, images))
    for features, expected in zip(at_once, map(extractor, images), strict=True):
        assert_same(features, expected)


def test_color_images_are_converted_to_gray(image, name):
    gray = extract(image, name, 50)
    color = extract(cv2.cvtColor(image, cv2.COLOR_GRAY2BGR), name, 50)
    np.testing.assert_array_equal(gray.points, color.points)


@pytest.mark.parametrize("spread", [False, True])
def test_a_blank_image_has_no_features(name, spread):
    features = extract(np.full((120, 160), 128, np.uint8), name, spread=spread)
    assert len(features) == 0
    assert features.descriptors.shape == (0, DESCRIPTOR_SIZES[name])
    assert features.descriptors.dtype == (np.uint8 if name in BINARY else np.float32)


def test_spread_selects_keypoints_in_low_contrast_regions(image, name):
    def high_contrast_share(features):
        return np.mean((features.points < (160, 120)).all(axis=1))

    assert high_contrast_share(extract(image, name, 100)) > 0.9
    assert high_contrast_share(extract(image, name, 100, spread=True)) < 0.5


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros((0, 10), np.uint8), "empty"),
        (np.zeros((10, 10), np.float32), "float32"),
        (np.zeros((10, 10), np.uint16), "uint16"),
        (np.zeros((10, 10, 4), np.uint8), r"\(10, 10, 4\)"),
    ],
)
def test_images_of_other_types_and_shapes_are_rejected(bad, message):
    with pytest.raises(FeatureError, match=message):
        make_extractor("sift")(bad)


def test_the_error_for_a_learned_kind_without_model_names_the_source_of_weights(tmp_path):
    with pytest.raises(FeatureError, match=r"xfeat needs .*extractor_model.*accelerated_features"):
        make_extractor("xfeat")
    with pytest.raises(FeatureError, match=r"none\.onnx does not exist.*accelerated_features"):
        make_extractor("xfeat", model=tmp_path / "none.onnx")
    with pytest.raises(FeatureError, match=r"none\.onnx does not exist: check the path$"):
        make_extractor("own", model=tmp_path / "none.onnx")
    with pytest.raises(FeatureError, match=r"is a folder: check the path$"):
        make_extractor("own", model=tmp_path)


def test_opencv_features_take_no_model():
    with pytest.raises(FeatureError, match=r"sift takes no extractor model, but a\.onnx is given"):
        make_extractor("sift", model="a.onnx")


def test_any_name_may_be_given_to_a_learned_kind(heads_model, image):
    assert make_extractor("own", 50, model=heads_model())(image).kind == "own"
    assert make_extractor(str(heads_model(name="B")), 50)(image).kind == "b"


def test_unknown_names_and_keypoint_limits_below_one_are_rejected():
    with pytest.raises(
        FeatureError, match="unknown extractor 'surf'; choose one of sift, rootsift"
    ):
        make_extractor("surf")
    with pytest.raises(FeatureError, match="max_keypoints is 0"):
        make_extractor("sift", 0)

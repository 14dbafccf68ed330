"""Extractors share one contract; ONNX models and stored files bring their own features."""

import sys
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest

from lgc_ros.errors import FeatureError
from lgc_ros.features.base import EXTRACTORS, make_extractor, read_features

BINARY = {"orb": 32, "akaze": 61}
FLOAT = {"sift": 128, "rootsift": 128}
SIZES = {**BINARY, **FLOAT}


@pytest.fixture(scope="module")
def image():
    """Blurred noise, textured everywhere, with twice the contrast in the upper left quarter."""
    noise = cv2.GaussianBlur(np.random.default_rng(3).normal(size=(240, 320)), (0, 0), 1.5)
    noise /= noise.std()
    noise[:120, :160] *= 2
    return np.uint8(np.clip(128 + 25 * noise, 0, 255))


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
def test_every_extractor_keeps_the_contract(image, name, spread):
    features = extract(image, name, 100, spread)
    count = len(features)
    assert 90 < count <= 100  # ORB leaves the shares of its small pyramid levels unused
    assert features.kind == name
    assert features.points.shape == (count, 2)
    assert features.points.dtype == np.float32
    assert features.descriptors.shape == (count, SIZES[name])
    assert features.descriptors.dtype == (np.uint8 if name in BINARY else np.float32)
    for array in (features.sizes, features.angles, features.responses):
        assert array.shape == (count,)
        assert array.dtype == np.float32
    assert (np.diff(features.responses) <= 0).all()
    assert (features.points >= 0).all()
    assert (features.points <= (319, 239)).all()


@pytest.mark.parametrize("spread", [False, True])
def test_the_same_image_gives_the_same_features(image, name, spread):
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
def test_several_threads_may_use_an_extractor_at_once(image, name, spread):
    extract(image, name)
    extractor = make_extractor(name, 150, spread)
    images = [np.roll(image, 5 * i, axis=1) for i in range(12)]
    with ThreadPoolExecutor(4) as pool:
        at_once = list(pool.map(extractor, images))
    for features, expected in zip(at_once, map(extractor, images), strict=True):
        assert_same(features, expected)


def test_colour_images_are_seen_in_gray(image, name):
    gray = extract(image, name, 50)
    colour = extract(cv2.cvtColor(image, cv2.COLOR_GRAY2BGR), name, 50)
    np.testing.assert_array_equal(gray.points, colour.points)


@pytest.mark.parametrize("spread", [False, True])
def test_a_blank_image_has_no_features(name, spread):
    features = extract(np.full((120, 160), 128, np.uint8), name, spread=spread)
    assert len(features) == 0
    assert features.descriptors.shape == (0, SIZES[name])
    assert features.descriptors.dtype == (np.uint8 if name in BINARY else np.float32)


def test_spreading_reaches_the_weak_parts_of_the_image(image, name):
    def share_of_the_strong_quarter(features):
        return np.mean((features.points < (160, 120)).all(axis=1))

    assert share_of_the_strong_quarter(extract(image, name, 100)) > 0.9
    assert share_of_the_strong_quarter(extract(image, name, 100, spread=True)) < 0.5


def test_the_strongest_keypoints_are_kept(image):
    few, many = extract(image, "sift", 50), extract(image, "sift", 100)
    np.testing.assert_array_equal(few.responses, many.responses[:50])


def test_sift_is_opencvs_with_a_low_contrast_threshold(image):
    sift = cv2.SIFT_create(nfeatures=200, contrastThreshold=1e-5)
    keypoints, descriptors = sift.detectAndCompute(image, None)
    expected = {(*k.pt, k.angle): d for k, d in zip(keypoints, descriptors, strict=True)}
    features = extract(image, "sift", 200)
    for point, angle, descriptor in zip(
        features.points, features.angles, features.descriptors, strict=True
    ):
        np.testing.assert_array_equal(descriptor, expected[(*point.tolist(), float(angle))])


def test_rootsift_distances_are_hellinger_distances(image):
    sift, root = extract(image, "sift", 20), extract(image, "rootsift", 20)
    np.testing.assert_array_equal(sift.points, root.points)
    np.testing.assert_allclose(np.linalg.norm(root.descriptors, axis=1), 1, rtol=1e-5)
    p, q = (d / d.sum() for d in sift.descriptors[:2].astype(float))
    hellinger_squared = 2 - 2 * np.sqrt(p * q).sum()
    distance = np.linalg.norm(root.descriptors[0] - root.descriptors[1])
    assert distance**2 == pytest.approx(hellinger_squared, abs=1e-5)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros((0, 10), np.uint8), "empty"),
        (np.zeros((10, 10), np.float32), "float32"),
        (np.zeros((10, 10), np.uint16), "uint16"),
        (np.zeros((10, 10, 4), np.uint8), r"\(10, 10, 4\)"),
    ],
)
def test_images_of_another_sort_are_refused(bad, message):
    with pytest.raises(FeatureError, match=message):
        make_extractor("sift")(bad)


def test_an_image_too_small_for_opencv_is_named():
    with pytest.raises(FeatureError, match=r"500x1 pixels.*larger"):
        make_extractor("orb")(np.zeros((1, 500), np.uint8))


def test_unknown_extractors_and_numbers_are_refused():
    with pytest.raises(FeatureError, match="unknown extractor 'surf'; known are sift, rootsift"):
        make_extractor("surf")
    with pytest.raises(FeatureError, match="max_keypoints is 0"):
        make_extractor("sift", 0)


def test_akaze_says_which_package_brings_it(monkeypatch):
    monkeypatch.delattr(cv2, "AKAZE_create", raising=False)
    monkeypatch.delattr(cv2, "xfeatures2d", raising=False)
    with pytest.raises(FeatureError, match="opencv-contrib-python-headless"):
        make_extractor("akaze")


@pytest.fixture
def h5_file(tmp_path):
    h5py = pytest.importorskip("h5py")

    def write(name, **datasets):
        with h5py.File(tmp_path / name, "w") as file:
            for key, value in datasets.items():
                file[key] = value
        return tmp_path / name

    return write


def test_stored_sift_features_keep_their_order_and_type(h5_file):
    rng = np.random.default_rng(0)
    keypoints = rng.uniform(0, 100, (9, 4))
    descriptors = rng.integers(0, 255, (9, 128), np.uint8)
    path = h5_file("a.jpg.sift-2000.hdf5", keypoints=keypoints, descriptors=descriptors)
    features = read_features(path, max_keypoints=5)
    assert features.kind == "sift"
    np.testing.assert_array_equal(features.points, np.float32(keypoints[:5, :2]))
    np.testing.assert_array_equal(features.sizes, np.float32(keypoints[:5, 2]))
    np.testing.assert_array_equal(features.angles, np.float32(keypoints[:5, 3]))
    np.testing.assert_array_equal(features.responses, 0)
    assert features.descriptors.dtype == np.float32
    np.testing.assert_array_equal(features.descriptors, descriptors[:5])


def test_stored_lift_features_are_ranked_by_their_score(h5_file):
    keypoints = np.random.default_rng(0).uniform(0, 100, (9, 13))
    path = h5_file("a.desc.h5", keypoints=keypoints, descriptors=np.zeros((9, 128)))
    features = read_features(path, max_keypoints=4)
    assert features.kind == "lift"
    best = np.argsort(-keypoints[:, 4])[:4]
    np.testing.assert_array_equal(features.points, np.float32(keypoints[best, :2]))
    np.testing.assert_array_equal(features.responses, np.float32(keypoints[best, 4]))
    assert len(read_features(path)) == 9


def test_the_kind_of_stored_features_can_be_told(h5_file):
    path = h5_file("a.h5", keypoints=np.ones((2, 2)), descriptors=np.ones((2, 32)))
    features = read_features(path, kind="orb")
    assert (features.kind, features.descriptors.dtype) == ("orb", np.uint8)
    np.testing.assert_array_equal(features.sizes, 1)


def test_broken_feature_files_are_named(h5_file, tmp_path):
    with pytest.raises(FeatureError, match=r"no feature file .*b\.h5"):
        read_features(tmp_path / "b.h5")
    (tmp_path / "b.h5").write_text("not hdf5")
    with pytest.raises(FeatureError, match=r"b\.h5 cannot be read as hdf5"):
        read_features(tmp_path / "b.h5")
    with pytest.raises(FeatureError, match="lacks 'keypoints' or 'descriptors'"):
        read_features(h5_file("c.h5", keypoints=np.ones((2, 2))))
    with pytest.raises(FeatureError, match="2 keypoints but 3 descriptors"):
        read_features(h5_file("d.h5", keypoints=np.ones((2, 2)), descriptors=np.ones((3, 8))))
    with pytest.raises(FeatureError, match="shape"):
        read_features(h5_file("e.h5", keypoints=np.ones(2), descriptors=np.ones((2, 8))))


def test_missing_optional_libraries_are_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(FeatureError, match="h5py"):
        read_features(tmp_path / "a.h5")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(FeatureError, match="onnxruntime"):
        make_extractor(f"onnx:{tmp_path}/a.onnx")


@pytest.fixture
def onnx_model(tmp_path):
    """Writes a tiny extractor: its keypoints are given, its scores are the pixels there.

    Descriptors are (score, 2 * score, 3 * score), so that they tell which pixel was read.
    """
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    def write(
        pixels,
        keypoints=None,
        *,
        channels=1,
        size=("h", "w"),
        outputs=("keypoints", "scores", "descriptors"),
        transposed=False,
        batched=True,
        name="tiny.onnx",
    ):
        pixels = np.asarray(pixels)
        keypoints = pixels if keypoints is None else np.asarray(keypoints)
        where = np.column_stack([np.zeros(len(pixels)), pixels[:, ::-1]]).astype(np.int64)
        constants = {
            "given": keypoints,
            "where": where,
            "first_axis": np.array([0], np.int64),
            "last_axis": np.array([1], np.int64),
            "factors": np.float32([[1, 2, 3]]),
            # The last channel: gray itself, or blue of an RGB image.
            "last": np.array(channels - 1, np.int64),
        }
        points, scores, descriptors = outputs
        nodes = [
            helper.make_node("Gather", ["image", "last"], ["plane"], axis=1),
            helper.make_node("GatherND", ["plane", "where"], ["values"]),
            helper.make_node("Unsqueeze", ["values", "last_axis"], ["column"]),
            helper.make_node("MatMul", ["column", "factors"], ["table"]),
            helper.make_node("Transpose", ["table"], ["turned"], perm=[1, 0]),
        ]
        for inner, outer in (
            ("given", points),
            ("values", scores),
            ("turned" if transposed else "table", descriptors),
        ):
            nodes.append(
                helper.make_node("Unsqueeze", [inner, "first_axis"], [outer])
                if batched
                else helper.make_node("Identity", [inner], [outer])
            )
        kind = TensorProto.INT64 if keypoints.dtype == np.int64 else TensorProto.DOUBLE
        graph = helper.make_graph(
            nodes,
            "tiny",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, channels, *size])],
            [
                helper.make_tensor_value_info(points, kind, None),
                helper.make_tensor_value_info(scores, TensorProto.FLOAT, None),
                helper.make_tensor_value_info(descriptors, TensorProto.FLOAT, None),
            ],
            [numpy_helper.from_array(value, key) for key, value in constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        onnx.save(model, tmp_path / name)
        return f"onnx:{tmp_path / name}"

    return write


PIXELS = np.array([[3, 4], [10, 20], [30, 15], [7, 22]])


@pytest.fixture
def ramp():
    """Every pixel of the 40x30 image has its own value in each channel."""
    return np.random.default_rng(0).permutation(3600).reshape(30, 40, 3).astype(np.uint8)


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
def test_an_onnx_extractor_gives_its_keypoints_strongest_first(
    onnx_model, ramp, transposed, batched
):
    gray = cv2.cvtColor(ramp, cv2.COLOR_BGR2GRAY)
    features = make_extractor(onnx_model(PIXELS, transposed=transposed, batched=batched))(gray)
    values = gray[PIXELS[:, 1], PIXELS[:, 0]] / 255
    order = np.argsort(-values, kind="stable")
    np.testing.assert_array_equal(features.points, PIXELS[order])
    np.testing.assert_allclose(features.responses, values[order], rtol=1e-6)
    np.testing.assert_allclose(features.descriptors, values[order, None] * [[1, 2, 3]], rtol=1e-6)
    assert features.kind == "tiny"
    assert features.descriptors.dtype == np.float32


def test_an_onnx_extractor_with_three_channels_sees_rgb(onnx_model, ramp):
    features = make_extractor(onnx_model(PIXELS, channels=3))(ramp)
    x, y = np.int64(features.points).T
    np.testing.assert_allclose(features.responses * 255, ramp[y, x, 0], rtol=1e-5)


def test_onnx_outputs_without_names_are_told_by_their_shape(onnx_model, ramp):
    named = make_extractor(onnx_model(PIXELS))(ramp)
    unnamed = make_extractor(onnx_model(PIXELS, outputs=("7", "12", "31")))(ramp)
    np.testing.assert_array_equal(unnamed.points, named.points)
    np.testing.assert_array_equal(unnamed.descriptors, named.descriptors)


def test_onnx_keypoints_of_a_fixed_size_come_back_to_the_image(onnx_model, ramp):
    # The image is twice as wide and three times as high: pixel (2, 3) covers 2x3 pixels of it.
    extractor = make_extractor(onnx_model([[2, 3]], size=(10, 20)))
    np.testing.assert_allclose(extractor(ramp).points, [[4.5, 10]])


def test_onnx_keypoints_in_the_padding_are_dropped(onnx_model, ramp):
    # A free size is padded from 40x30 to 64x32.
    features = make_extractor(onnx_model([[39, 29], [50, 29], [39, 31]]))(ramp)
    np.testing.assert_array_equal(features.points, [[39, 29]])


def test_onnx_keypoints_as_fractions_become_pixels(onnx_model, ramp):
    model = onnx_model(PIXELS[:3], [[-1.0, -1.0], [1.0, 1.0], [0.0, 0.0]], size=(30, 40))
    points = make_extractor(model)(ramp).points
    assert {tuple(p) for p in points.tolist()} == {(0, 0), (39, 29), (19.5, 14.5)}


@pytest.mark.parametrize("spread", [False, True])
def test_an_onnx_extractor_gives_no_more_than_asked(onnx_model, ramp, spread):
    assert len(make_extractor(onnx_model(PIXELS), 2, spread)(ramp)) == 2


def test_an_onnx_extractor_may_find_nothing(onnx_model, ramp):
    for transposed in (False, True):
        model = onnx_model(np.empty((0, 2), np.int64), transposed=transposed)
        features = make_extractor(model)(ramp)
        assert features.descriptors.shape == (0, 3)


def test_onnx_models_that_are_no_extractors_are_refused(onnx_model, ramp, tmp_path):
    with pytest.raises(FeatureError, match=r"no model .*nowhere\.onnx"):
        make_extractor(str(tmp_path / "nowhere.onnx"))
    (tmp_path / "text.onnx").write_text("not a model")
    with pytest.raises(FeatureError, match=r"text\.onnx cannot be loaded"):
        make_extractor(str(tmp_path / "text.onnx"))
    with pytest.raises(FeatureError, match=r"1 \(gray\) or 3 \(RGB\)"):
        make_extractor(onnx_model(PIXELS, channels=2))
    dense = onnx_model(PIXELS, outputs=("heat_score", "feature_score", "descriptors"))
    with pytest.raises(FeatureError, match=r"heat_score .*keypoint selection"):
        make_extractor(dense)(ramp)
    with pytest.raises(FeatureError, match="fails on an image of 40x30"):
        make_extractor(onnx_model([[500, 500]]))(ramp)

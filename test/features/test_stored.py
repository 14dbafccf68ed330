"""Features read from hdf5 files."""

import sys

import numpy as np
import pytest

from lgc_ros.errors import FeatureError
from lgc_ros.features.stored import read_features


@pytest.fixture
def h5_file(tmp_path):
    h5py = pytest.importorskip("h5py")

    def write(name, **datasets):
        with h5py.File(tmp_path / name, "w") as file:
            for key, value in datasets.items():
                file[key] = value
        return tmp_path / name

    return write


def test_sift_file_without_responses_keeps_its_order(h5_file):
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


def test_lift_file_is_sorted_by_response(h5_file):
    keypoints = np.random.default_rng(0).uniform(0, 100, (9, 13))
    path = h5_file("a.desc.h5", keypoints=keypoints, descriptors=np.zeros((9, 128)))
    features = read_features(path, max_keypoints=4)
    assert features.kind == "lift"
    best = np.argsort(-keypoints[:, 4])[:4]
    np.testing.assert_array_equal(features.points, np.float32(keypoints[best, :2]))
    np.testing.assert_array_equal(features.responses, np.float32(keypoints[best, 4]))
    assert len(read_features(path)) == 9


def test_kind_argument_overrides_the_file_name(h5_file):
    path = h5_file("a.h5", keypoints=np.ones((2, 2)), descriptors=np.ones((2, 32)))
    features = read_features(path, kind="orb")
    assert (features.kind, features.descriptors.dtype) == ("orb", np.uint8)
    np.testing.assert_array_equal(features.sizes, 1)


def test_errors_name_the_unreadable_file_and_the_cause(h5_file, tmp_path):
    with pytest.raises(FeatureError, match=r"b\.h5 does not exist"):
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


def test_error_without_h5py_names_the_extra_that_installs_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(FeatureError, match=r"h5py.*lgc_ros\[features\]"):
        read_features(tmp_path / "a.h5")

"""The raw layout of the paper's release and OANet."""

import os
import pickle

import h5py
import numpy as np
import pytest

from lgc_ros.errors import ConfigError, DatasetError
from training.data.raw import read_raw
from training.data.scene import usable_pairs


@pytest.fixture
def raw(tmp_path, world, write_image):
    """Writes the world as `<seq>/train`; arguments change what the calibration files hold."""

    def write(principal_point="offset", T_shape=(1, 3), imsize="pair"):
        folder = tmp_path / "palace" / "train"
        (folder / "cal").mkdir(parents=True)
        lists = {"images.txt": [], "calibration.txt": [], "visibility.txt": []}
        for i in range(len(world)):
            write_image(folder / "img" / f"{i}.png")
            K = world.K.copy()
            if principal_point == "offset":
                K[:2, 2] -= (world.size[0] - 1) / 2, (world.size[1] - 1) / 2
            with h5py.File(folder / "cal" / f"{i}.h5", "w") as file:
                file["K"], file["R"] = K, world.R_cw[i]
                file["T"] = world.t_cw[i].reshape(T_shape)
                if imsize == "pair":
                    file["imsize"] = np.array([world.size])
                elif imsize == "scalar":
                    file["imsize"] = world.size[0]
            visibility = [100 * abs(i - j) for j in range(len(world))]
            (folder / f"vis{i}.txt").write_text("\n".join(map(str, visibility)))
            lists["images.txt"].append(f"img/{i}.png")
            lists["calibration.txt"].append(f"cal/{i}.h5")
            lists["visibility.txt"].append(f"vis{i}.txt")
        for name, lines in lists.items():
            (folder / name).write_text("\n".join(lines) + "\n")
        return folder

    return write


@pytest.mark.parametrize("principal_point", ["offset", "absolute"])
@pytest.mark.parametrize("imsize", ["pair", "scalar", "missing"])
@pytest.mark.parametrize("T_shape", [(1, 3), (3,), (3, 1)])
def test_cameras_and_poses_of_either_convention(raw, world, principal_point, imsize, T_shape):
    scene = read_raw(raw(principal_point, T_shape, imsize), principal_point=principal_point)
    assert scene.name == "palace"
    for i, image in enumerate(scene.images):
        np.testing.assert_allclose(image.camera.K, world.K)
        assert image.camera.size == world.size
        np.testing.assert_array_equal(image.R_cw, world.R_cw[i])
        np.testing.assert_array_equal(image.t_cw, world.t_cw[i])
        assert image.load().shape == world.size[::-1]


def test_pairs_have_more_visibility_than_the_threshold(raw):
    pairs = read_raw(raw(), visibility_above=200).pairs
    assert {(int(i), int(j)) for i, j in pairs} == {
        (i, j) for i in range(5) for j in range(5) if abs(i - j) > 2
    }


def test_the_convention_must_be_a_known_one(raw):
    with pytest.raises(ConfigError, match=r"'center' is unknown.*'offset'.*'absolute'"):
        read_raw(raw(), principal_point="center")


def test_a_file_missing_from_a_list_is_named(raw):
    folder = raw()
    (folder / "cal" / "3.h5").unlink()
    with pytest.raises(DatasetError, match=r"cal/3\.h5 is missing.*drop image 3 from all lists"):
        read_raw(folder)


@pytest.mark.parametrize("name", ["images.txt", "calibration.txt", "visibility.txt"])
def test_a_missing_list_is_named(raw, name):
    folder = raw()
    (folder / name).unlink()
    with pytest.raises(DatasetError, match=f"{name} is missing.*images.txt, calibration.txt"):
        read_raw(folder)


def test_lists_of_different_length_are_refused(raw):
    folder = raw()
    (folder / "calibration.txt").write_text("cal/0.h5\n")
    with pytest.raises(DatasetError, match=r"calibration\.txt lists 1 files for 5 images"):
        read_raw(folder)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "holds 0 numbers"),
        ("1 2 3", "holds 3 numbers"),
        ("1 2 three 4 5", "something other than numbers"),
        ("1 2 nan 4 5", "NaN"),
    ],
)
def test_bad_visibility_is_named_with_what_it_should_hold(raw, content, complaint):
    folder = raw()
    (folder / "vis2.txt").write_text(content)
    with pytest.raises(DatasetError, match=rf"vis2\.txt .*{complaint}.*each of the 5 images"):
        read_raw(folder)


@pytest.mark.parametrize(
    ("key", "value"), [("K", np.eye(4)), ("R", np.zeros(3)), ("T", [0, np.nan, 0]), ("T", None)]
)
def test_calibration_of_wrong_shape_or_value_is_named(raw, key, value):
    folder = raw()
    with h5py.File(folder / "cal" / "1.h5", "a") as file:
        del file[key]
        if value is not None:
            file[key] = value
    with pytest.raises(DatasetError, match=rf"1\.h5: {key} should be .*it must hold K"):
        read_raw(folder)


def test_calibration_no_camera_can_have_is_named(raw):
    folder = raw()
    with h5py.File(folder / "cal" / "1.h5", "a") as file:
        file["K"][0, 0] = -5
    with pytest.raises(DatasetError, match=r"1\.h5: .*focal lengths"):
        read_raw(folder)


def test_calibration_that_is_not_hdf5_is_named(raw):
    folder = raw()
    (folder / "cal" / "1.h5").write_text("no")
    with pytest.raises(DatasetError, match=r"1\.h5 is not a readable hdf5 file"):
        read_raw(folder)


def test_an_unreadable_image_is_named_when_its_size_is_needed(raw):
    folder = raw(imsize="missing")
    (folder / "img" / "4.png").write_bytes(b"no")
    with pytest.raises(DatasetError, match=r"4\.png is not a readable image"):
        read_raw(folder)


@pytest.mark.parametrize(
    "content",
    [
        [(0, 1), (3, 2)],
        ((0, 1), [3, 2]),
        [(np.int64(0), np.int32(1)), (3, 2)],
        np.array([[0, 1], [3, 2]]),
    ],
)
def test_pickled_pairs_take_the_place_of_visibility(raw, tmp_path, content):
    path = tmp_path / "palace-te-1000-pairs.pkl"
    path.write_bytes(pickle.dumps(content))
    assert read_raw(raw(), pairs=path).pairs.tolist() == [[0, 1], [3, 2]]


class Malicious:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


def test_a_pickle_that_would_run_code_is_refused_without_running_it(raw, tmp_path):
    path, target = tmp_path / "pairs.pkl", tmp_path / "made"
    path.write_bytes(pickle.dumps([(0, 1), Malicious(target)]))
    with pytest.raises(DatasetError, match=r"pairs\.pkl .*mkdir.*give a pickled list"):
        read_raw(raw(), pairs=path)
    assert not target.exists()


@pytest.mark.parametrize(
    "content",
    [[(0, 1.5)], [("a", "b")], [(0, 1, 2)], {"a": 1}, 7, [(True, False)], [], [(0, 5)], [(-1, 0)]],
)
def test_a_pickle_of_anything_but_pairs_is_refused(raw, tmp_path, content):
    path = tmp_path / "pairs.pkl"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(DatasetError, match=r"pairs\.pkl"):
        read_raw(raw(), pairs=path)


def test_a_truncated_pickle_is_refused(raw, tmp_path):
    path = tmp_path / "pairs.pkl"
    path.write_bytes(pickle.dumps([(0, 1), (3, 2)])[:-4])
    with pytest.raises(DatasetError, match=r"pairs\.pkl contains something other than pairs"):
        read_raw(raw(), pairs=path)


@pytest.mark.parametrize(("name", "count"), [("castle", 15), ("temple", 17), ("lund", 10)])
def test_real_collections_have_the_documented_pairs(data_dir, name, count):
    scene = read_raw(data_dir / "posed" / name / "val", visibility_above=14)
    assert scene.name == name
    assert len(scene.pairs) == 2 * count


def test_real_matches_agree_with_the_poses(data_dir, agreement):
    scene = read_raw(data_dir / "posed" / "saharov" / "val", visibility_above=50)
    shares = [
        agreement(scene.images[i], scene.images[j]) for i, j in usable_pairs(scene, 4, seed=0)
    ]
    assert np.median(shares) > 0.6

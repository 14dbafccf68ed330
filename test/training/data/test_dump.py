"""OANet's dump: ours is laid out as others expect, and theirs can be read."""

import pickle

import h5py
import numpy as np
import pytest

from lgc_ros.errors import DatasetError
from training.data.dump import Dump, LabeledPair, write_dump


def random_pair(seed, count=20):
    rng = np.random.default_rng(seed)
    return LabeledPair(
        xs=rng.normal(size=(count, 4)).astype(np.float32),
        ys=rng.random(count).astype(np.float32),
        R_10=np.eye(3, dtype=np.float32),
        t_10=np.array([0, 0.6, 0.8], dtype=np.float32),
        ratio=rng.random(count).astype(np.float32),
        mutual=(rng.random(count) > 0.5).astype(np.float32),
        zoom=rng.normal(size=count).astype(np.float32),
        roll=rng.normal(size=count).astype(np.float32),
        descriptor_distance=rng.random(count).astype(np.float32),
        K0=np.array([[500, 0, 320], [0, 510, 240], [0, 0, 1]], dtype=np.float32),
        K1=np.array([[700, 0, 300], [0, 720, 200], [0, 0, 1]], dtype=np.float32),
    )


def test_a_dump_gives_back_what_was_written(tmp_path):
    pairs = [random_pair(seed, count=10 + seed) for seed in range(3)]
    assert write_dump(tmp_path / "a.hdf5", pairs) == 3
    dump = Dump(tmp_path / "a.hdf5")
    assert len(dump) == 3
    for number, pair in enumerate(pairs):
        for name, value in vars(pair).items():
            np.testing.assert_array_equal(getattr(dump[number], name), value, err_msg=name)


def test_the_file_is_laid_out_as_oanet_reads_it(tmp_path):
    write_dump(tmp_path / "a.hdf5", [random_pair(0), random_pair(1)])
    shapes = {
        "xs": (1, 20, 4), "ys": (20, 1), "Rs": (3, 3), "ts": (3, 1), "ratios": (20,),
        "mutuals": (20,), "cx1s": (1,), "cy1s": (1,), "cx2s": (1,), "cy2s": (1,),
        "f1s": (2,), "f2s": (2,),
    }  # fmt: skip
    with h5py.File(tmp_path / "a.hdf5") as file:
        assert set(file) == {*shapes, "zooms", "rolls", "descriptor_distances"}
        for name, shape in shapes.items():
            assert set(file[name]) == {"0", "1"}
            assert file[name]["1"].shape == shape
            assert file[name]["1"].dtype == np.float32
        assert file["cx2s"]["0"][0] == 300
        assert file["f1s"]["0"][()].tolist() == [500, 510]


def test_the_same_pairs_give_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        write_dump(tmp_path / name, (random_pair(seed) for seed in range(3)))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_foreign_dumps_with_less_in_them_are_read(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["xs/0"] = np.ones((1, 9, 4))
        file["ys/0"] = np.column_stack([np.arange(9), np.full(9, -1)])  # the paper's second column
        file["Rs/0"], file["ts/0"] = np.eye(3), np.ones(3)
        file["cx1s/0"], file["cy1s/0"], file["f1s/0"] = 320.0, 240.0, 500.0
    pair = Dump(tmp_path / "a.hdf5")[0]
    assert pair.ys.tolist() == list(range(9))
    assert pair.K0.tolist() == [[500, 0, 320], [0, 500, 240], [0, 0, 1]]
    assert pair.ratio is None
    assert pair.K1 is None


def test_a_dump_can_be_sent_to_another_process(tmp_path):
    write_dump(tmp_path / "a.hdf5", [random_pair(0)])
    copy = pickle.loads(pickle.dumps(Dump(tmp_path / "a.hdf5")))
    np.testing.assert_array_equal(copy[0].xs, random_pair(0).xs)


def test_an_index_out_of_range_ends_iteration(tmp_path):
    write_dump(tmp_path / "a.hdf5", [random_pair(0), random_pair(1)])
    assert len(list(Dump(tmp_path / "a.hdf5"))) == 2


def test_files_that_are_no_dumps_are_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"none\.hdf5 is not a readable hdf5 dump.*prepare"):
        Dump(tmp_path / "none.hdf5")
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["xs/0"] = np.ones((1, 9, 4))
    with pytest.raises(DatasetError, match=r"other\.hdf5 has no group ys, Rs, ts"):
        Dump(tmp_path / "other.hdf5")

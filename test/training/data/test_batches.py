"""A batch depends on seed and step alone, however the work is shared."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scenes import random_scene

from lgc_ros.errors import ConfigError, DatasetError
from lgc_ros.geometry import epipolar as geometry
from training.data.batches import (
    Batches,
    SourceConfig,
    choose_matches,
    crop_pair,
    hard_pair_weights,
    scene_balance,
    thin_pair,
    turn_pair,
)
from training.data.dump import Dump, LabeledPair, write_dump
from training.data.simulation import simulate_pair

SIMULATION = (SourceConfig("simulation"),)


def exact_pair(seed=0, points=60):
    scene = random_scene(seed, points)
    count = len(scene.x0)
    return LabeledPair(
        xs=np.hstack([scene.x0, scene.x1]).astype(np.float32),
        ys=np.zeros(count, np.float32),
        R_10=scene.R_10.astype(np.float32),
        t_10=scene.t_10.astype(np.float32),
        ratio=np.linspace(0, 1, count, dtype=np.float32),
        mutual=np.ones(count, np.float32),
        zoom=np.zeros(count, np.float32),
        roll=np.zeros(count, np.float32),
        descriptor_distance=np.linspace(0, 1, count, dtype=np.float32),
        K0=np.diag([500.0, 500, 1]),
        K1=np.diag([500.0, 500, 1]),
    )


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    path = tmp_path_factory.mktemp("dump") / "pairs.hdf5"
    write_dump(path, [exact_pair(seed) for seed in range(4)])
    return path


def batches(sources=SIMULATION, **options):
    return Batches(sources, **{"steps": 10, "batch": 4, "matches": 50, **options})


def same(a, b):
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in ("xs", "labels"))


def test_a_batch_has_the_shapes_the_network_takes():
    batch = batches(side=("ratio", "mutual", "consensus"))[0]
    assert batch.xs.shape == (4, 50, 7)
    assert batch.labels.shape == (4, 50)
    assert batch.E_gt.shape == (4, 3, 3)
    assert {value.dtype for value in vars(batch).values()} == {torch.float32}
    assert set(batch.labels.unique().tolist()) <= {0.0, 1.0}


def test_a_batch_depends_on_seed_and_step_and_on_nothing_drawn_before(dump):
    sources = (SourceConfig("dump", path=str(dump), turn=True), SourceConfig("simulation"))
    one, other = batches(sources), batches(sources)
    for step in (0, 1, 2):
        other[step]
    assert same(one[7], other[7])
    assert not same(one[7], one[8])
    assert not same(one[7], batches(sources, seed=1)[7])


@pytest.mark.parametrize("world", [2, 4])
def test_processes_share_the_global_batch_between_them(world):
    whole = batches(batch=8)[3]
    for rank in range(world):
        share = batches(batch=8, rank=rank, world=world)[3]
        assert torch.equal(share.xs, whole.xs[rank::world])
        assert torch.equal(share.E_gt, whole.E_gt[rank::world])


def test_labels_agree_with_the_essential_matrix():
    batch = batches()[0]
    for xs, labels, E in zip(batch.xs, batch.labels, batch.E_gt, strict=True):
        x = xs.double().numpy()
        distance = geometry.symmetric_epipolar_distance(E.double().numpy(), x[:, :2], x[:, 2:4])
        clear = (distance < 0.8e-4) | (distance > 1.2e-4)
        np.testing.assert_array_equal(labels.numpy()[clear], distance[clear] < 1e-4)


def test_sources_are_drawn_by_weight(dump):
    never = SourceConfig("simulation", weight=0)
    drawn = batches((SourceConfig("dump", path=str(dump)), never))
    assert all(drawn[step].labels.all() for step in range(5))


def test_turned_cameras_see_exact_matches_exactly():
    pair = exact_pair()
    for seed in range(30):
        turned = turn_pair(np.random.default_rng(seed), pair)
        assert np.abs(turned.xs - pair.xs).max() > 1e-3
        assert turned.ys.max() < 1e-9
        R_10 = turned.R_10.astype(float)
        np.testing.assert_allclose(R_10 @ R_10.T, np.eye(3), atol=1e-5)
        assert np.linalg.det(R_10) == pytest.approx(1, abs=1e-5)
        assert np.linalg.norm(turned.t_10) == pytest.approx(1, abs=1e-5)


def test_turned_cameras_see_keypoints_grow_and_turn():
    pair = exact_pair()
    for seed in range(30):
        turned = turn_pair(np.random.default_rng(seed), pair)
        changes = []
        for arrow in np.float32([[1e-4, 0, 1e-4, 0], [0, 1e-4, 0, 1e-4]]):
            tip = turn_pair(np.random.default_rng(seed), replace(pair, xs=pair.xs + arrow))
            moved = tip.xs.astype(float) - turned.xs
            changes.append((moved[:, 2:] @ [1, 1j]) / (moved[:, :2] @ [1, 1j]))
        # A similarity lies between what becomes of an arrow to the right and of one downwards.
        change = np.sqrt(np.abs(changes[0] * changes[1])) * np.exp(1j * np.angle(sum(changes)))
        off = change / (2**turned.zoom * np.exp(1j * turned.roll))
        assert np.degrees(np.abs(np.angle(off))).max() < 8
        assert np.abs(np.log2(np.abs(off))).max() < 0.15


def test_turning_computes_epipolar_distances_of_outliers_again():
    pair = simulate_pair(np.random.default_rng(1), 200)
    turned = turn_pair(np.random.default_rng(2), pair)
    E = geometry.essential_from_pose(turned.R_10.astype(float), turned.t_10.astype(float))
    x = turned.xs.astype(float)
    distance = geometry.symmetric_epipolar_distance(E, x[:, :2], x[:, 2:])
    np.testing.assert_allclose(turned.ys, distance, rtol=1e-2, atol=1e-8)
    agreement = ((turned.ys < 1e-4) == (pair.ys < 1e-4)).mean()
    assert agreement > 0.9


@pytest.mark.parametrize("count", [20, 60, 200])
def test_matches_are_chosen_with_all_that_belongs_to_them(count):
    pair = exact_pair()
    chosen = choose_matches(np.random.default_rng(0), pair, count)
    assert len(chosen.xs) == count
    by_ratio = dict(zip(pair.ratio.tolist(), pair.xs.tolist(), strict=True))
    assert all(
        by_ratio[r] == x for r, x in zip(chosen.ratio.tolist(), chosen.xs.tolist(), strict=True)
    )
    if count >= len(pair.xs):
        assert set(chosen.ratio.tolist()) == set(pair.ratio.tolist())
    else:
        assert len(set(chosen.ratio.tolist())) == count


def varied(change, seeds=30):
    """Simulated pairs of 1000 matches and what a change makes of each."""
    for seed in range(seeds):
        pair = simulate_pair(np.random.default_rng(seed), 1000)
        yield pair, change(np.random.default_rng(seed), pair, 1e-4)


def test_cropping_keeps_the_matches_inside_a_window_of_each_image():
    narrower = 0
    for pair, cropped in varied(crop_pair):
        assert (cropped.ys < 1e-4).sum() >= min(40, (pair.ys < 1e-4).sum())
        low, high = cropped.xs.min(axis=0), cropped.xs.max(axis=0)
        inside = ((pair.xs >= low) & (pair.xs <= high)).all(axis=1)
        np.testing.assert_array_equal(pair.xs[inside], cropped.xs)
        np.testing.assert_array_equal(pair.ratio[inside], cropped.ratio)
        narrower += len(cropped.xs) < 0.8 * len(pair.xs)
    assert narrower > 10


def test_thinning_removes_true_matches_and_no_outliers():
    fewer = []
    for pair, thinned in varied(thin_pair):
        before, after = (pair.ys < 1e-4).sum(), (thinned.ys < 1e-4).sum()
        assert (thinned.ys >= 1e-4).sum() == (pair.ys >= 1e-4).sum()
        assert min(before, 40) <= after <= before
        assert after >= before // 8
        fewer.append(after / before)
    assert min(fewer) < 0.3 < max(fewer)


def test_a_source_varies_the_share_of_its_pairs_that_is_asked_for():
    def drawn(**options):
        return batches((SourceConfig("simulation", **options),), batch=40, matches=500)[0]

    plain, half, all_thin = (drawn(thin=share).labels.mean() for share in (0.0, 0.5, 1.0))
    assert all_thin < half < plain
    cropped, whole = (drawn(crop=share).xs[..., :4].std(1).mean() for share in (1.0, 0.0))
    assert cropped < 0.95 * whole


def test_large_scenes_do_not_drown_small_ones(tmp_path):
    path = tmp_path / "pairs.hdf5"
    assert scene_balance(path, 3).tolist() == [1, 1, 1]
    scenes = ["video"] * 16 + ["photos"] * 4
    path.with_suffix(".json").write_text(json.dumps({"pair_sequence": scenes}))
    weight = scene_balance(path, 20)
    assert weight[:16].sum() == pytest.approx(2 * weight[16:].sum())
    with pytest.raises(DatasetError, match=r"pairs\.json does not belong to pairs\.hdf5"):
        scene_balance(path, 3)


def test_hard_pairs_are_drawn_more_often(tmp_path):
    easy = simulate_pair(np.random.default_rng(0), 100)
    pairs = [
        replace(easy, ys=np.where(np.arange(100) < true, 0.0, 1.0).astype(np.float32))
        for true in (0, 1, 2, 30, 31, 90)
    ]
    write_dump(tmp_path / "pairs.hdf5", pairs)
    weights = hard_pair_weights(Dump(tmp_path / "pairs.hdf5"), 3.0, 1e-4)
    assert weights.tolist() == [1, 1, 3, 3, 1, 1]
    sources = (SourceConfig("dump", path=str(tmp_path / "pairs.hdf5"), hard=50.0),)
    labels = batches(sources, batch=60, matches=100)[0].labels
    assert (np.isin(labels.sum(1), (2, 30))).mean() > 0.8


def test_wrong_sources_are_named(tmp_path, dump):
    with pytest.raises(ConfigError, match=r"'dump' needs a path"):
        batches((SourceConfig("dump"),))
    with pytest.raises(ConfigError, match=r"unknown source kind 'images'"):
        batches((SourceConfig("images"),))
    with pytest.raises(DatasetError, match=r"none\.hdf5 is not a readable hdf5 dump"):
        batches((SourceConfig("dump", path=str(tmp_path / "none.hdf5")),))
    write_dump(tmp_path / "empty.hdf5", [])
    with pytest.raises(DatasetError, match=r"empty\.hdf5 holds no pairs"):
        batches((SourceConfig("dump", path=str(tmp_path / "empty.hdf5")),))


def test_side_information_that_a_dump_lacks_is_named(tmp_path, dump):
    import h5py

    path = tmp_path / "foreign.hdf5"
    path.write_bytes(dump.read_bytes())
    with h5py.File(path, "a") as file:
        del file["ratios"]
    sources = (SourceConfig("dump", path=str(path)),)
    assert batches(sources)[0].xs.shape == (4, 50, 4)
    with pytest.raises(DatasetError, match=r"foreign\.hdf5 holds no ratio"):
        batches(sources, side=("ratio",))
    # Dumps of earlier versions lack it; those that do not train with it can be used as before.
    with h5py.File(path, "a") as file:
        del file["descriptor_distances"]
    assert batches(sources, side=("mutual",))[0].xs.shape == (4, 50, 5)
    with pytest.raises(DatasetError, match="holds no descriptor_distance"):
        batches(sources, side=("mutual", "descriptor_distance"))

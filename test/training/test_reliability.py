"""Calibration of scores, and the margin of a trained model."""

import numpy as np
import pytest

from lgc_ros.filter.checkpoint import load_checkpoint
from lgc_ros.filter.correspondence_filter import interpret
from training.__main__ import main
from training.data.dump import Dump, write_dump
from training.data.simulation import simulate_pair
from training.margin import closed_form_map, with_margin
from training.reliability import (
    expected_calibration_error,
    reliability,
    scores_and_labels,
)
from training.validation import network_output


@pytest.fixture(scope="module")
def dump_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("dump") / "pairs.hdf5"
    write_dump(path, [simulate_pair(np.random.default_rng(seed), 300) for seed in range(4)])
    return path


def test_scores_that_are_probabilities_have_no_calibration_error():
    rng = np.random.default_rng(0)
    scores = rng.random(100_000)
    true = rng.random(100_000) < scores
    assert expected_calibration_error(scores, true) < 0.01
    assert reliability(scores, true)[:, 2].sum() == 100_000


def test_the_calibration_error_is_the_mean_distance_of_score_and_share():
    scores = np.repeat([0.1, 0.9], 50)
    true = np.repeat([True, False, True], [25, 25, 50])
    assert expected_calibration_error(scores, true) == pytest.approx((0.4 + 0.1) / 2)


def test_scores_and_labels_cover_all_matches(dump_path):
    network, info = load_checkpoint("sift")
    scores, true = scores_and_labels(network, info, [Dump(dump_path)])
    by_filter, with_pose = scores.values()
    assert by_filter.shape == with_pose.shape == true.shape == (4 * 300,)
    assert by_filter[true].mean() > by_filter[~true].mean() + 0.3
    assert with_pose[true].mean() > with_pose[~true].mean() + 0.6


def test_another_margin_changes_weights_but_neither_decisions_nor_scores(dump_path):
    network, info = load_checkpoint("sift")
    pair = Dump(dump_path)[0]
    before = interpret(network_output(network, info, pair), info)
    network, shifted = with_margin(network, info, info.margin + 2)
    after = interpret(network_output(network, shifted, pair), shifted)
    assert np.array_equal(before.kept, after.kept)
    np.testing.assert_allclose(before.scores, after.scores, atol=1e-5)
    np.testing.assert_allclose(after.logits, before.logits - 2, atol=1e-4)
    assert (after.weights <= before.weights).all()


def test_a_margin_beyond_all_logits_finds_no_pose(dump_path):
    network, info = load_checkpoint("sift")
    scores = closed_form_map(network, info, [Dump(dump_path)], [info.margin, 1000.0])
    assert scores[1000.0] == {5: 0, 10: 0, 20: 0}


def test_the_commands_write_a_diagram_and_a_model(dump_path, tmp_path, monkeypatch, capsys):
    diagram, model = tmp_path / "diagram.png", tmp_path / "shifted.safetensors"
    for command, *options in (
        ("reliability", "--out", diagram),
        ("margin", "--margin", 3, "--out", model),
    ):
        arguments = ["training", command, "sift", dump_path, *options]
        monkeypatch.setattr("sys.argv", list(map(str, arguments)))
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert printed.count("expected calibration error 0.") == 2
    assert "margin  3.0  mAP@5" in printed
    assert diagram.stat().st_size > 1000
    assert load_checkpoint(model)[1].margin == 3.0

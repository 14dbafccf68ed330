"""The benchmark compares equal work."""

import numpy as np
import pytest
import torch

from lgc_ros.errors import DatasetError
from lgc_ros.evaluation.benchmark import take_turns
from lgc_ros.evaluation.benchmark_cases import PlainNetwork, real_pairs
from lgc_ros.filter.checkpoint import load_checkpoint


def test_the_plain_network_gives_the_same_logits():
    network, info = load_checkpoint("sift")
    rows = torch.rand(300, 4 + info.network.side) - 0.5
    with torch.inference_mode():
        plain = PlainNetwork(network)(rows.T[None])[0].numpy()
        expected = network(rows[None])[0].numpy()
    assert plain == pytest.approx(expected, abs=2e-3)


def test_cases_take_turns_and_warm_up_rounds_are_discarded():
    calls, ticks = [], []
    cases = {name: lambda name=name: calls.append(name) for name in "ab"}
    times = take_turns(cases, 3, lambda: ticks.append(len(calls)))
    assert calls == list("ab" * 5)
    assert ticks == [2, 4, 6, 8, 10]
    assert {name: len(values) for name, values in times.items()} == {"a": 3, "b": 3}
    assert all((values >= 0).all() for values in times.values())


def test_a_set_without_hard_pairs_is_rejected(tmp_path):
    import cv2

    rng = np.random.default_rng(0)
    image = cv2.resize(rng.integers(0, 255, (60, 80), np.uint8), (640, 480))
    (tmp_path / "images").mkdir()
    for name in ("a.png", "b.png"):
        cv2.imwrite(str(tmp_path / "images" / name), image)
    K = "500 0 320 0 500 240 0 0 1"
    pose = "1 0 0 1  0 1 0 0  0 0 1 0  0 0 0 1"
    (tmp_path / "pairs.txt").write_text(f"a.png b.png 0 0 {K} {K} {pose}\n")
    with pytest.raises(DatasetError, match="5 to 25 %"):
        list(real_pairs(tmp_path))

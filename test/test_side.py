"""Side information becomes network input in the order in which a model names it."""

from types import SimpleNamespace

import numpy as np

from lgc_ros.side import CHANNELS, channel_count, network_inputs, unknown_side


def test_inputs_are_coordinates_and_then_what_is_named():
    x0, x1 = np.array([[1.0, 2], [3, 4]]), np.array([[5.0, 6], [7, 8]])
    known = SimpleNamespace(ratio=[0.5, 0.6], mutual=[True, False], roll=[0, np.pi / 2])
    inputs = network_inputs(x0, x1, known, ("mutual", "roll", "ratio"))
    assert inputs.dtype == np.float32
    np.testing.assert_allclose(
        inputs,
        [[1, 2, 5, 6, 1, 1, 0, 0.5], [3, 4, 7, 8, 0, 0, 1, 0.6]],
        atol=1e-6,
    )


def test_a_full_turn_makes_no_difference():
    x = np.zeros((1, 2))
    turned = [
        network_inputs(x, x, SimpleNamespace(roll=[a]), ("roll",)) for a in (3.0, 3 - 2 * np.pi)
    ]
    np.testing.assert_allclose(*turned, atol=1e-6)


def test_every_kind_takes_the_channels_it_says():
    x = np.zeros((3, 2))
    for name, channels in CHANNELS.items():
        inputs = network_inputs(x, x, SimpleNamespace(**{name: np.ones(3)}), (name,))
        assert inputs.shape == (3, 4 + channels) == (3, 4 + channel_count((name,)))


def test_unknown_names_are_told_with_the_known_ones():
    assert unknown_side(("ratio", "roll")) == ""
    assert "colour" in unknown_side(("ratio", "colour"))
    assert "zoom" in unknown_side(("colour",))

"""Charts: well-formed, inside their frame, and true to scale."""

from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lgc_ros.visualization.charts import plot_histogram, plot_line, plot_map, round_step

SVG = "{http://www.w3.org/2000/svg}"


def points(svg, kind):
    """Corners (N, 2) of all lines of a class."""
    lines = [
        element.get("points")
        for element in ElementTree.fromstring(svg).iter(f"{SVG}polyline")
        if element.get("class") == kind
    ]
    return np.array(
        [[float(n) for n in pair.split(",")] for line in lines for pair in line.split()]
    )


def size(svg):
    return [float(n) for n in ElementTree.fromstring(svg).get("viewBox").split()[2:]]


def test_a_map_keeps_angles_and_has_y_upwards():
    way = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 1.0]])
    drawn = plot_map(way, way).pixels
    along, up = drawn[1] - drawn[0], drawn[2] - drawn[1]
    assert along[0] == pytest.approx(2 * -up[1])
    assert along[1] == pytest.approx(0)
    assert up[1] < 0


def test_a_map_holds_both_ways():
    truth = np.random.default_rng(0).normal(0, 3, (50, 2))
    svg = plot_map(truth, 1.5 * truth).svg
    for kind in ("truth", "estimate"):
        assert (points(svg, kind) >= 0).all()
        assert (points(svg, kind) <= size(svg)).all()


def test_a_curve_begins_and_ends_with_its_axis():
    x, y = np.linspace(0, 12, 30), np.linspace(0, 5, 30) ** 2
    curve = points(plot_line(x, y, "seconds", "cm"), "estimate")
    assert (np.diff(curve[:, 0]) > 0).all()
    assert (np.diff(curve[:, 1]) < 0).all()


@pytest.mark.parametrize("values", [[5.0], [5.0, 5.0], [1.0, 2.0, 900.0]])
def test_bars_stay_inside_however_values_are_spread(values):
    svg = plot_histogram(values, "ms", float(np.median(values)))
    bars = list(ElementTree.fromstring(svg).iter(f"{SVG}rect"))
    width, height = size(svg)
    for bar in bars:
        assert 0 <= float(bar.get("x")) <= width
        assert 0 <= float(bar.get("y")) <= height
        assert float(bar.get("height")) > 0


@given(st.floats(1e-6, 1e6))
def test_steps_are_round_and_not_much_larger_than_asked_for(about):
    step = round_step(about)
    assert about <= step * (1 + 1e-6)
    assert step <= 2.5 * about * (1 + 1e-6)
    assert f"{step:.0e}"[0] in "125"

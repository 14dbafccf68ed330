"""Charts are well-formed SVG, true to scale, and follow the colors of the page."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from lgc_ros.visualization.charts import COLORS, inline, plot_histogram, plot_line, plot_map

SVG = "{http://www.w3.org/2000/svg}"


def size(svg):
    return [float(n) for n in ElementTree.fromstring(svg).get("viewBox").split()[2:]]


def test_a_map_keeps_angles_and_has_y_upwards():
    path = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 1.0]])
    _, pixels = plot_map(path, path)
    right, up = pixels[1] - pixels[0], pixels[2] - pixels[1]
    assert right[0] == pytest.approx(2 * -up[1])
    assert right[1] == pytest.approx(0, abs=1e-9)
    assert up[1] < 0


def test_the_pixels_of_a_map_are_those_of_the_drawn_curve():
    truth = np.random.default_rng(0).normal(0, 3, (50, 2))
    svg, pixels = plot_map(truth, 1.5 * truth)
    assert (pixels >= 0).all()
    assert (pixels <= size(svg)).all()
    curve = re.search(rf'<path d="([^"]*)"[^>]*stroke: {COLORS["accent"]}', svg)
    first = np.array(curve[1].split()[1:3], float)
    np.testing.assert_allclose(first, pixels[0], atol=1e-3)
    (here,) = (c for c in ElementTree.fromstring(svg).iter(f"{SVG}circle") if c.get("id"))
    np.testing.assert_allclose(
        [float(here.get("cx")), float(here.get("cy"))], pixels[-1], atol=0.1
    )


@pytest.mark.parametrize("values", [[5.0], [5.0, 5.0], [1.0, 2.0, 900.0]])
def test_the_label_of_a_histogram_mentions_clipped_values(values):
    svg = plot_histogram(values, "ms", float(np.median(values)))
    ElementTree.fromstring(svg)
    assert ("or more" in svg) == (max(values) > 100)


def test_inline_charts_take_all_colors_from_the_page_and_nothing_from_elsewhere():
    x = np.linspace(0, 12, 30)
    svg = inline(plot_line(x, x**2, "time (s)", "error (cm)"))
    ElementTree.fromstring(svg)
    assert set(re.findall(r"#[0-9a-f]{6}", svg)) == set()
    assert set(re.findall(r"https?://[^\"]*", svg)) == {"http://www.w3.org/2000/svg"}
    assert re.findall(r'href="|url\((?!#)|font-family', svg) == []

"""Plots of a run show the plane they claim to show."""

import numpy as np
import pytest

from lgc_ros.visualization.trajectory import draw_run, widest_plane


def test_an_estimate_is_drawn_from_above_its_first_camera(finished_run):
    top = draw_run("walk", finished_run.states, finished_run.trajectory, None).axes[0]
    assert (top.get_xlabel(), top.get_ylabel()) == ("x", "z")
    np.testing.assert_array_equal(
        top.lines[0].get_xydata(), finished_run.trajectory.T_wc[:, [0, 2], 3]
    )


@pytest.mark.parametrize("ground", ["xy", "xz"])
def test_with_errors_the_top_view_shows_the_ground_plane_of_the_ground_truth(finished_run, ground):
    top = draw_run(
        "walk", finished_run.states, finished_run.trajectory, finished_run.errors, ground
    ).axes[0]
    assert (top.get_xlabel(), top.get_ylabel()) == (f"{ground[0]} (m)", f"{ground[1]} (m)")
    axes = ["xyz".index(axis) for axis in ground]
    np.testing.assert_array_equal(
        top.lines[0].get_xydata(), finished_run.errors.truth.T_wc[:, axes, 3]
    )


def test_if_the_vertical_is_unknown_the_plane_of_largest_extent_is_drawn():
    assert widest_plane(np.array([[0, 0, 0], [3, 0.1, -9]])) == "xz"
    assert widest_plane(np.array([[0, 0, 0], [0.1, 5, 1]])) == "yz"

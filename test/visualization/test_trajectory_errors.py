"""The figure of `lgc evaluate trajectory` shows what it claims to show."""

import numpy as np
import pytest

from lgc_ros.errors import ConfigError
from lgc_ros.visualization.trajectory_errors import draw_trajectory_errors, euler_angles_deg


def by_label(figure):
    return {axes.get_ylabel(): axes for axes in figure.axes}


def test_position_and_orientation_are_drawn_over_time(finished_run):
    errors = finished_run.errors
    axes = by_label(draw_trajectory_errors("walk", errors))
    assert {"x (m)", "y (m)", "z (m)", "roll (°)", "pitch (°)", "yaw (°)"} <= axes.keys()
    truth, estimate = axes["x (m)"].lines
    for line, trajectory in ((truth, errors.truth), (estimate, errors.aligned)):
        drawn = line.get_ydata()
        np.testing.assert_array_equal(drawn[~np.isnan(drawn)], trajectory.positions[:, 0])
    truth, _ = axes["yaw (°)"].lines
    drawn = truth.get_ydata()
    expected = euler_angles_deg(errors.truth)[:, 2]
    np.testing.assert_allclose(drawn[~np.isnan(drawn)], expected, atol=1e-9)


@pytest.mark.parametrize("plane", ["xz", "zy"])
def test_the_plane_of_the_path_can_be_chosen(finished_run, plane):
    path = draw_trajectory_errors("walk", finished_run.errors, plane).axes[0]
    assert (path.get_xlabel(), path.get_ylabel()) == (f"{plane[0]} (m)", f"{plane[1]} (m)")


@pytest.mark.parametrize("plane", ["x", "xx", "xw", "xyz"])
def test_an_unknown_plane_is_refused(finished_run, plane):
    with pytest.raises(ConfigError, match="name two axes"):
        draw_trajectory_errors("walk", finished_run.errors, plane)

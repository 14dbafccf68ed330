"""Plots of a run show the plane they claim to show."""

from dataclasses import replace

import numpy as np
import pytest

from lgc_ros.evaluation.trajectory_metrics import evaluate_trajectory
from lgc_ros.visualization.paths import widest_plane
from lgc_ros.visualization.trajectory import draw_comparison, draw_run


def test_an_estimate_is_drawn_from_above_its_first_camera(finished_run):
    top = draw_run("walk", finished_run.states, finished_run.trajectory, None).axes[0]
    assert (top.get_xlabel(), top.get_ylabel()) == ("x", "z")
    np.testing.assert_array_equal(drawn(top.lines[0]), finished_run.trajectory.T_wc[:, [0, 2], 3])


@pytest.mark.parametrize("ground", ["xy", "xz"])
def test_with_errors_the_top_view_shows_the_ground_plane_of_the_ground_truth(finished_run, ground):
    top = draw_run(
        "walk", finished_run.states, finished_run.trajectory, finished_run.errors, ground
    ).axes[0]
    assert (top.get_xlabel(), top.get_ylabel()) == (f"{ground[0]} (m)", f"{ground[1]} (m)")
    axes = ["xyz".index(axis) for axis in ground]
    np.testing.assert_array_equal(drawn(top.lines[0]), finished_run.errors.truth.T_wc[:, axes, 3])


def test_untracked_frames_are_gaps_of_the_estimate_and_not_of_the_ground_truth(finished_run):
    lost = range(6, 9)
    states = [
        replace(state, status="lost" if k in lost else "ok")
        for k, state in enumerate(finished_run.states)
    ]
    run = replace(finished_run, states=states)
    errors = evaluate_trajectory(run.trajectory, run.truth)
    figure = draw_run("walk", states, run.trajectory, errors, "xy", run.truth)
    top, middle = figure.axes[:2]
    lines = {line.get_label(): line for line in top.lines}
    truth, estimate = lines["ground truth"], lines["estimate"]
    assert len(drawn(truth)) == len(finished_run.states)
    assert not np.isnan(truth.get_xydata()).any()
    for line in (estimate, middle.lines[0]):
        assert np.flatnonzero(np.isnan(line.get_xydata()).any(axis=1)).tolist() == [lost[0]]
        assert len(drawn(line)) == len(finished_run.states) - len(lost)


def test_methods_are_compared_in_one_plot(finished_run):
    other = replace(finished_run, options=replace(finished_run.options, method="ransac+ratio"))
    top, middle = draw_comparison([finished_run, other]).axes
    labels = [line.get_label() for line in top.lines]
    assert "ground truth" in labels
    for run in (finished_run, other):
        assert sum(label.startswith(f"{run.options.method}, ") for label in labels) == 1
    assert len(middle.lines) == 2


def test_without_ground_truth_methods_are_aligned_with_the_first(finished_run):
    half = [state.T_wc.copy() for state in finished_run.states]
    for T_wc in half:
        T_wc[:3, 3] /= 2
    smaller = replace(
        finished_run,
        options=replace(finished_run.options, method="ransac"),
        states=[
            replace(state, T_wc=T_wc)
            for state, T_wc in zip(finished_run.states, half, strict=True)
        ],
    )
    blind = [replace(run, truth=None, errors=None) for run in (finished_run, smaller)]
    (top,) = draw_comparison(blind).axes
    first, _, second, *_ = (drawn(line) for line in top.lines)
    assert np.ptp(first, axis=0).max() > 0.1
    np.testing.assert_allclose(second, first, atol=1e-6)
    assert f"others aligned with {finished_run.options.method}" in top.get_title()


def drawn(line):
    """The points of a line without its gaps."""
    points = line.get_xydata()
    return points[~np.isnan(points).any(axis=1)]


def test_if_the_vertical_is_unknown_the_plane_of_largest_extent_is_drawn():
    assert widest_plane(np.array([[0, 0, 0], [3, 0.1, -9]])) == "xz"
    assert widest_plane(np.array([[0, 0, 0], [0.1, 5, 1]])) == "yz"

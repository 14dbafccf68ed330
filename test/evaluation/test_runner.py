"""Runs over frames in memory: metrics, interruption, explanations."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from runs import OPTIONS, Frames

from lgc_ros.errors import ConfigError
from lgc_ros.evaluation.results import run_title
from lgc_ros.evaluation.runner import METRICS, run_odometry
from lgc_ros.features.base import make_extractor
from lgc_ros.geometry.trajectory import Trajectory
from lgc_ros.odometry.scale import ScaleOptions
from lgc_ros.sources.base import GroundTruth


def test_metrics_have_the_documented_keys(finished_run):
    metrics = finished_run.metrics()
    assert metrics.keys() >= set(METRICS)
    assert metrics["frames"] == 14
    assert metrics["tracked"] == len(finished_run.trajectory) > 8
    assert metrics["tracked_share"] == metrics["tracked"] / 14
    assert 0 < metrics["ate_rmse_m"] < 0.05
    assert metrics["kitti_trans_percent"] is None
    assert metrics["fps"] > 0


def test_a_run_keeps_little_memory_per_frame(finished_run):
    """So that days of frames fit into memory: no matches, no landmarks."""
    assert len(pickle.dumps(finished_run.states)) < 2000 * len(finished_run.states)


class InterruptedFrames(Frames):
    """The user presses Ctrl-C at the sixth frame."""

    def __iter__(self):
        yield from self[:5]
        raise KeyboardInterrupt


def test_ctrl_c_ends_the_run_with_the_frames_so_far(short_walk, caplog):
    run = run_odometry(InterruptedFrames(short_walk), OPTIONS)
    assert run.interrupted
    assert 0 < len(run.states) <= 5
    assert f"interrupted after {len(run.states)} frames" in caplog.text


def test_ctrl_c_lets_the_frame_finish(short_walk, ctrl_c):
    """Inside of compiled functions it would raise another error, and the run would be lost."""
    extract = make_extractor(OPTIONS.features, OPTIONS.max_keypoints)

    def interrupted_extract(image):
        ctrl_c()
        return extract(image)

    run = run_odometry(short_walk, OPTIONS, extract=interrupted_extract)
    assert run.interrupted
    assert len(run.states) == 1


def test_an_unknown_alignment_is_rejected_before_the_run(short_walk):
    frames = iter(short_walk)
    with pytest.raises(ConfigError, match="sim3"):
        run_odometry(frames, OPTIONS, align="foo")
    assert next(frames) is short_walk[0]


def test_a_run_explains_why_frames_were_not_tracked(finished_run):
    fine = [replace(state, status="ok") for state in finished_run.states]
    started = replace(fine[0], status="initializing")  # as every run begins
    assert replace(finished_run, states=[started, *fine]).untracked() == ""
    held = [
        replace(fine[0], status=status, message=message)
        for status, message in (
            ("lost", "the image is blank"),
            ("few_matches", "only 12 matches"),
            ("few_matches", "only 7 matches"),
        )
    ]
    assert replace(finished_run, states=[started, *fine[:4], *held]).untracked() == (
        "3 of 8 frames were not tracked (2 few_matches, 1 lost), mostly because: only 12 matches"
    )


@pytest.mark.parametrize("lost", [0, 3, 10])
def test_all_counts_of_tracked_frames_agree(finished_run, lost):
    states = [replace(state, status="ok") for state in finished_run.states]
    states[0] = replace(states[0], status="initializing")  # the first frame defines the world
    states[1 : 1 + lost] = [replace(state, status="lost") for state in states[1 : 1 + lost]]
    run = replace(finished_run, states=states)
    assert run.metrics()["tracked"] == len(run.trajectory) == 14 - lost
    assert run.coverage == f"{14 - lost} of 14 frames tracked ({round(100 * (14 - lost) / 14)} %)"
    assert run.untracked() == (f"{lost} of 14 frames were not tracked ({lost} lost)" * (lost > 0))
    assert run.is_mostly_untracked == (lost == 10)


def test_errors_refer_to_the_path_that_was_tracked(short_walk):
    """An error over the whole path would make a run that ended early look accurate."""
    frames = list(short_walk)
    blank = [replace(frame, image=np.full_like(frame.image, 128)) for frame in frames[8:]]
    run = run_odometry([*frames[:8], *blank], OPTIONS)
    assert run.truth.stamps_ns[-1] == frames[-1].stamp_ns
    assert len(run.trajectory) == 8
    true_path = Trajectory.from_poses((frame.stamp_ns, frame.T_wc) for frame in frames[:8])
    assert run.metrics()["path_m"] == pytest.approx(true_path.length_m)
    assert f"m over {true_path.length_m:.1f} m\n8 of 14 frames" in run_title(run)


def test_a_run_has_the_ground_plane_of_its_source(short_walk):
    class Source(Frames):
        ground_truth = GroundTruth("groundtruth.txt", "xy")

    assert run_odometry(Source(short_walk[:3]), OPTIONS).ground == "xy"


def test_a_scale_source_without_data_is_reported(short_walk, caplog):
    blind = Frames(replace(frame, depth=None) for frame in short_walk)
    run_odometry(blind, replace(OPTIONS, scale=ScaleOptions("depth")))
    assert "depth measured nothing at" in caplog.text
    assert "choose another --scale" in caplog.text

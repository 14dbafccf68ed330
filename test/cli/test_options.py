"""Help and defaults of the command line agree with the library."""

import inspect
import re

import pytest
from typer.main import get_command

from lgc_ros.calibration.intrinsics import MODELS, calibrate
from lgc_ros.cli.evaluate import BAG_METHODS
from lgc_ros.cli.main import app
from lgc_ros.estimation.estimators import ROBUST_ESTIMATORS, EstimatorOptions
from lgc_ros.estimation.two_view import FILTERED_THRESHOLD_PX, TwoViewPipeline
from lgc_ros.evaluation.benchmark import run_bench
from lgc_ros.evaluation.pair_runner import evaluate_pairs
from lgc_ros.evaluation.runner import run_odometry
from lgc_ros.evaluation.trajectory_metrics import ALIGNMENTS, evaluate_trajectory
from lgc_ros.features.base import EXTRACTORS
from lgc_ros.geometry.camera_presets import PRESETS
from lgc_ros.odometry.profiles import PROFILES, load_profile
from lgc_ros.odometry.scale import SOURCES
from lgc_ros.sources import KINDS
from lgc_ros.sources.synthetic import SyntheticSource
from lgc_ros.synthetic.motion import TRAJECTORIES
from lgc_ros.synthetic.world import BUILDERS
from lgc_ros.visualization.viewer_outputs import PLACES


def parameter(command, name):
    found = get_command(app)
    for part in command.split():
        found = found.commands[part]
    return next(p for p in found.params if p.name == name)


NAMED = [
    ("run", "kind", KINDS),
    ("run", "profile", PROFILES),
    ("run", "align", ALIGNMENTS),
    ("run", "scale", SOURCES),
    ("run", "features", EXTRACTORS),
    ("match", "method", ("cn", "cn-8pt", "cn-8pt-plain", *ROBUST_ESTIMATORS)),
    ("match", "features", EXTRACTORS),
    ("evaluate pairs", "method", ("cn", "cn-8pt", "cn-8pt-plain", *ROBUST_ESTIMATORS)),
    ("evaluate bag", "method", BAG_METHODS),
    ("calibrate", "model", MODELS),
    ("synth", "world", BUILDERS),
    ("synth", "trajectory", TRAJECTORIES),
]


@pytest.mark.parametrize(("command", "name", "known"), NAMED)
def test_help_names_every_value_that_the_library_accepts(command, name, known):
    words = re.split(r"[\s,.:()]+", parameter(command, name).help)
    assert set(known) <= set(words)


def test_help_names_existing_cameras_of_datasets():
    named = re.search(r"dataset \((.*), \.\.\.\)", parameter("run", "camera").help)[1]
    assert set(named.split(", ")) <= PRESETS.keys()


def test_help_gives_the_default_thresholds():
    text = (
        f"Default: {FILTERED_THRESHOLD_PX:g} for cn, {EstimatorOptions.threshold_px:g} otherwise"
    )
    assert text in parameter("match", "threshold").help


SAME = [
    ("match", TwoViewPipeline, {"method": "method", "features": "features", "device": "device"}),
    ("match", TwoViewPipeline, {"keypoints": "max_keypoints"}),
    ("evaluate pairs", evaluate_pairs, {"keypoints": "max_keypoints", "features": "features"}),
    ("evaluate trajectory", evaluate_trajectory, {"align": "align"}),
    ("run", run_odometry, {"align": "align"}),
    ("bench", run_bench, {"rounds": "rounds", "device": "device"}),
    ("calibrate", calibrate, {"model": "model"}),
    ("synth", SyntheticSource, {"trajectory": "trajectory", "frames": "frames"}),
    ("synth", SyntheticSource, {"rate": "rate_hz", "seed": "seed", "world": "kind"}),
]


@pytest.mark.parametrize(("command", "called", "names"), SAME)
def test_defaults_are_those_of_the_library(command, called, names):
    defaults = inspect.signature(called).parameters
    for option, argument in names.items():
        assert parameter(command, option).default == defaults[argument].default


def test_the_default_profile_has_the_default_method_and_keypoints_of_match():
    options = load_profile(parameter("run", "profile").default)
    assert options.method == parameter("match", "method").default
    assert options.features == parameter("match", "features").default
    assert options.max_keypoints == parameter("match", "keypoints").default


def test_the_viewer_shows_runs_in_the_places_that_help_names():
    option = parameter("run", "view")
    assert all(place in option.help for place in PLACES)

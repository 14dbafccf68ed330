"""Profiles: the shipped ones, overrides, and error messages."""

import re
from dataclasses import asdict, fields
from pathlib import Path

import pytest
import yaml

from lgc_ros.errors import ConfigError
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.profiles import (
    PROFILES,
    config_folder,
    dump_profile,
    load_profile,
    parse_assignments,
    parse_scale,
)
from lgc_ros.odometry.scale import ScaleOptions
from lgc_ros.runtime.settings import settings_of


@pytest.mark.parametrize("name", PROFILES)
def test_every_shipped_profile_loads(name):
    assert isinstance(load_profile(name), OdometryOptions)


def test_the_default_profile_equals_the_defaults_of_the_library():
    assert load_profile() == OdometryOptions()


def test_the_default_profile_lists_every_setting_with_its_help_as_comment():
    text = (config_folder() / "default.yaml").read_text()
    content = yaml.safe_load(text)
    assert content.keys() == {field.name for field in fields(OdometryOptions)}
    assert content["scale"].keys() == settings_of(ScaleOptions).keys()
    comments = dict(re.findall(r"(?m)^ *([a-z_]+): .*?  # (.+)$", text))
    known = settings_of(OdometryOptions) | settings_of(ScaleOptions)
    assert comments == {name: setting.describe() for name, setting in known.items()}


def numbers():
    for kind in (OdometryOptions, ScaleOptions):
        for name, setting in settings_of(kind).items():
            if setting.low is not None:
                yield pytest.param(kind, name, setting, id=name)


@pytest.mark.parametrize(("kind", "name", "setting"), list(numbers()))
def test_a_number_out_of_its_range_is_refused_with_the_range(kind, name, setting):
    for value in (setting.low - 1, setting.high + 1):
        expected = re.escape(f"{name} is {value}: it must be between {setting.low} and ")
        with pytest.raises(ConfigError, match=expected):
            kind(**{name: value})


def test_every_number_has_a_range_and_every_setting_a_help():
    for kind in (OdometryOptions, ScaleOptions):
        known = settings_of(kind)
        for field in fields(kind):
            if field.name != "scale":
                assert known[field.name].help
                has_range = (
                    known[field.name].low is not None and known[field.name].high is not None
                )
                assert has_range == field.type.startswith(("int", "float")), field.name


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_refused(value):
    with pytest.raises(ConfigError, match=r"threshold_px is .*: it must be a finite number"):
        OdometryOptions(threshold_px=value)


def test_fast_uses_orb_and_accurate_uses_more_keypoints_and_a_larger_window():
    default, fast, accurate = map(load_profile, PROFILES)
    assert fast.features == "orb"
    assert fast.max_keypoints < default.max_keypoints < accurate.max_keypoints
    assert fast.window < default.window < accurate.window


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_user_profile_changes_only_the_settings_it_contains(tmp_path):
    path = write(
        tmp_path / "mine.yaml", "window: 9\nscale: {source: constant_speed, speed_mps: 2}"
    )
    expected = asdict(OdometryOptions()) | {
        "window": 9,
        "scale": asdict(ScaleOptions("constant_speed", speed_mps=2.0)),
    }
    assert asdict(load_profile(path)) == expected


def test_a_user_profile_can_extend_another_profile(tmp_path):
    path = write(tmp_path / "mine.yaml", "base: fast\nmax_keypoints: 500")
    assert load_profile(path).features == "orb"
    assert load_profile(path).max_keypoints == 500


def test_relative_paths_are_relative_to_the_profile(tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    (tmp_path / "shared").mkdir()
    write(tmp_path / "shared" / "base.yaml", "extractor_model: xfeat.onnx\nmodel: own.safetensors")
    path = write(tmp_path / "mine.yaml", "base: shared/base.yaml\nwindow: 9")
    options = load_profile(path)
    assert options.extractor_model == str(tmp_path / "shared" / "xfeat.onnx")
    assert options.model == str(tmp_path / "shared" / "own.safetensors")


def test_names_of_models_absolute_paths_and_overrides_are_kept(tmp_path):
    path = write(tmp_path / "mine.yaml", "extractor_model: /models/xfeat.onnx\nmodel: sift-paper")
    assert load_profile(path).extractor_model == "/models/xfeat.onnx"
    assert load_profile(path).model == "sift-paper"
    overridden = load_profile(path, parse_assignments(["extractor_model=here.onnx"]))
    assert overridden.extractor_model == "here.onnx", "relative to the working folder"


def test_a_dumped_profile_names_the_same_files_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dumped = yaml.safe_dump(dump_profile(load_profile("default", {"extractor_model": "x.onnx"})))
    (tmp_path / "results").mkdir()
    path = write(tmp_path / "results" / "config.yaml", dumped)
    assert load_profile(path).extractor_model == str(tmp_path / "x.onnx")


def test_a_cycle_of_profiles_is_refused(tmp_path):
    write(tmp_path / "a.yaml", "base: b.yaml")
    write(tmp_path / "b.yaml", "base: a.yaml")
    with pytest.raises(ConfigError, match="profiles form a cycle: "):
        load_profile(tmp_path / "a.yaml")


def test_overrides_replace_settings_and_sections_are_merged(tmp_path):
    path = write(tmp_path / "mine.yaml", "scale: {source: camera_height, camera_height_m: 1.6}")
    options = load_profile(path, parse_assignments(["scale.camera_pitch_deg=5", "window=7"]))
    assert options.window == 7
    assert options.scale == ScaleOptions("camera_height", camera_height_m=1.6, camera_pitch_deg=5)


def test_a_dumped_profile_loads_again(tmp_path):
    options = load_profile("fast", {"seed": 3})
    path = write(tmp_path / "used.yaml", yaml.safe_dump(dump_profile(options)))
    assert load_profile(path) == options


def test_the_config_of_a_run_is_a_profile(tmp_path):
    options = load_profile("fast", {"seed": 3})
    config = {"version": "1", "every": 2, "odometry": dump_profile(options)}
    assert load_profile(write(tmp_path / "config.yaml", yaml.safe_dump(config))) == options


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("widow: 3", "did you mean 'window'"),
        ("scale: {speed: 3}", "did you mean 'speed_mps'"),
        ("window: many", "window is 'many': it must be of type int"),
        ("window: 2.5", "must be of type int"),
        ("spread: 1", "must be of type bool"),
        ("window: 1", "window is 1: it must be between 2 and 1000"),
        ("max_keyframes: 3", "max_keyframes (3) must be at least window (6)"),
        ("scale: {source: constant_speed}", "needs a positive speed_mps"),
        ("scale: {source: sonar}", "camera_height"),
        ("- a\n- b", "key: value"),
        ("a: [", "YAML"),
    ],
)
def test_an_error_in_a_profile_names_the_file(tmp_path, content, message):
    path = write(tmp_path / "mine.yaml", content)
    with pytest.raises(ConfigError, match=r"mine\.yaml") as caught:
        load_profile(path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"widow": 3}, "unknown setting 'widow'; did you mean 'window'?"),
        ({"window": "many"}, "window is 'many': it must be of type int"),
        ({"scale": {"source": "sonar"}}, "scale: unknown scale source 'sonar'"),
    ],
)
def test_an_error_in_overrides_is_not_blamed_on_the_profile(changes, message):
    with pytest.raises(ConfigError) as caught:
        load_profile("fast", changes)
    assert str(caught.value).startswith(message)


def test_a_scale_source_takes_the_number_it_needs():
    assert parse_scale("depth") == {"source": "depth"}
    assert parse_scale("camera_height:1.6") == {
        "source": "camera_height",
        "camera_height_m": "1.6",
    }
    assert parse_scale("constant_speed", ["speed_mps"]) == {"source": "constant_speed"}
    with pytest.raises(ConfigError, match="give --scale constant_speed:MPS"):
        parse_scale("constant_speed")
    with pytest.raises(ConfigError, match="takes no number; give --scale depth"):
        parse_scale("depth:3")


def test_an_unknown_profile_suggests_the_closest_one():
    with pytest.raises(ConfigError, match="did you mean 'accurate'"):
        load_profile("acurate")


def test_an_assignment_needs_a_key_and_a_value():
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        parse_assignments(["window"])


def test_a_section_cannot_be_set_as_a_whole_and_in_part():
    with pytest.raises(ConfigError, match="conflicts with an earlier scale="):
        parse_assignments(["scale=depth", "scale.speed_mps=1"])

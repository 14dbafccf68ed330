"""Profiles: odometry settings by name or file, with overrides.

A profile is a YAML mapping of `OdometryOptions`; missing settings have the values of `default`.
With `base: NAME` it extends another profile instead. Relative paths are relative to the folder of
the profile. The config.yaml that a run writes is also a profile: its settings are in the section
`odometry`.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from lgc_ros.errors import ConfigError
from lgc_ros.odometry.options import OdometryOptions
from lgc_ros.odometry.scale import ScaleOptions
from lgc_ros.runtime.safe_yaml import YamlError, parse_yaml, read_yaml

PROFILES = ("default", "fast", "accurate")
BASE = "base"
RUN_SECTION = "odometry"
SECTIONS = {"scale": ScaleOptions}
# Settings that may name a file, and how such a value ends: `model` may also be a shipped name.
FILES = {"extractor_model": "", "model": ".safetensors"}
# Scale sources that need a number: its setting, and its placeholder in messages.
SCALE_NUMBERS = {
    "constant_speed": ("speed_mps", "MPS"),
    "camera_height": ("camera_height_m", "METERS"),
}
# Types by annotation. Values are converted, because YAML reads numbers such as 1e-4 as strings.
TYPES = {"int": int, "float": float, "bool": bool, "str": str}


def load_profile(
    profile: str | Path = "default", overrides: Mapping[str, Any] | None = None
) -> OdometryOptions:
    """Load a shipped profile or a YAML file, with some settings replaced.

    Args:
        profile: one of PROFILES, or the path of a YAML file.
        overrides: settings that replace those of the profile; `scale` may be a mapping itself.
    """
    settings = _settings(profile, ())
    try:
        return _build(OdometryOptions, _merged(settings, overrides or {}), "")
    except ConfigError:
        # Blame the profile only for its own errors.
        _build(OdometryOptions, settings, str(profile))
        raise


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """Overrides from strings such as `window=8` and `scale.speed_mps=1.2`."""
    overrides: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key:
            raise ConfigError(f"'{assignment}' is not of the form KEY=VALUE, such as window=8")
        section, dot, name = key.strip().partition(".")
        target = overrides.setdefault(section, {}) if dot else overrides
        if not isinstance(target, dict):
            raise ConfigError(f"'{assignment}' conflicts with an earlier {section}=...")
        try:
            target[name if dot else section] = parse_yaml(value)
        except YamlError as error:
            raise ConfigError(f"the value of '{assignment}' cannot be read: {error}") from error
    return overrides


def parse_scale(text: str, known: Collection[str] = ()) -> dict[str, Any]:
    """Overrides of `scale` from strings such as `depth` and `constant_speed:1.2`.

    The number may be omitted if its setting is among the `known` ones.
    """
    source, colon, number = text.partition(":")
    setting, unit = SCALE_NUMBERS.get(source, (None, None))
    if colon and setting is None:
        raise ConfigError(f"scale source {source!r} takes no number; give --scale {source}")
    if setting is not None and number:
        return {"source": source, setting: number}
    if setting is not None and setting not in known:
        raise ConfigError(f"scale source {source!r} needs a number: give --scale {source}:{unit}")
    return {"source": source}


def dump_profile(options: OdometryOptions) -> dict[str, Any]:
    """All settings as a mapping that `load_profile` reads from a file in any folder."""
    return _with_absolute_paths(asdict(options), Path.cwd())


def _settings(profile: str | Path, seen: tuple[str, ...]) -> dict[str, Any]:
    path = _path(profile).resolve()
    if str(path) in seen:
        raise ConfigError(f"profiles form a cycle: {' -> '.join((*seen, str(path)))}")
    try:
        content = read_yaml(path)
    except (OSError, YamlError) as error:
        raise ConfigError(f"the profile {path} cannot be read as YAML: {error}") from error
    if isinstance(content, dict):
        content = content.get(RUN_SECTION, content)
    content = {} if content is None else content
    if not isinstance(content, dict):
        raise ConfigError(f"the profile {path} has no settings: write 'key: value' lines")
    content = _with_absolute_paths(content, path.parent)
    base = content.pop(BASE, None)
    if base is None:
        return content
    if base not in PROFILES:
        base = path.parent / str(base)
    return _merged(_settings(base, (*seen, str(path))), content)


def _with_absolute_paths(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Settings in which relative paths of files, counted from `folder`, are absolute."""
    absolute = dict(settings)
    for key, ending in FILES.items():
        value = settings.get(key)
        if value and isinstance(value, str) and value.endswith(ending):
            absolute[key] = str(folder / value)
    return absolute


def _path(profile: str | Path) -> Path:
    if profile in PROFILES:
        return config_folder() / f"{profile}.yaml"
    path = Path(profile)
    try:
        is_file = path.is_file()
    except OSError:  # the name is not a valid path
        is_file = False
    if not is_file:
        near = difflib.get_close_matches(str(profile), PROFILES, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise ConfigError(
            f"unknown profile '{profile!s:.200}': {hint}use {', '.join(PROFILES)} or a YAML file"
        )
    return path


def config_folder() -> Path:
    """Folder of the shipped profiles: in the checkout, or in `share` of the installation."""
    here = Path(__file__).resolve()
    folders = [here.parents[2] / "config"]
    folders += [parent / "share" / "lgc_ros" / "config" for parent in here.parents]
    for folder in folders:
        if (folder / "default.yaml").is_file():
            return folder
    raise ConfigError("the shipped profiles (config/*.yaml) are missing: reinstall lgc_ros")


def _merged(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(settings)
    for key, value in changes.items():
        if key in SECTIONS and isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            value = {**merged[key], **value}
        merged[key] = value
    return merged


def _build(kind: type, settings: Any, where: str) -> Any:
    """Options from settings; errors are attributed to `where`, unless it is empty."""
    prefix = f"{where}: " if where else ""
    known = {field.name: str(field.type) for field in fields(kind)}
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{prefix}{settings!r:.80} must be a mapping of {', '.join(known)}")
    values = {}
    for key, value in settings.items():
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}"
            raise ConfigError(f"{prefix}unknown setting '{key}'; {hint}")
        section = SECTIONS.get(key)
        if section:
            values[key] = _build(section, value, f"{where}, {key}" if where else key)
        else:
            values[key] = _value(key, known[key], value, prefix)
    try:
        return kind(**values)
    except ConfigError as error:
        raise ConfigError(f"{prefix}{error}") from error


def _value(key: str, annotation: str, value: Any, prefix: str) -> Any:
    name, _, optional = annotation.partition(" | ")
    if value is None and optional:
        return None
    wanted = TYPES[name]
    try:
        if isinstance(value, bool) != (wanted is bool) or isinstance(value, Mapping | list):
            raise ValueError
        if wanted is int and float(value) != int(float(value)):
            raise ValueError
        return wanted(float(value)) if wanted is int else wanted(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{prefix}{key} is {value!r:.80}: it must be of type {name}") from error

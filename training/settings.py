"""Configuration files: YAML mappings converted to frozen dataclasses, with precise errors."""

from __future__ import annotations

import difflib
import math
from dataclasses import fields
from pathlib import Path
from typing import TypeVar

from lgc_ros.errors import ConfigError
from lgc_ros.runtime.safe_yaml import YamlError, read_yaml

T = TypeVar("T")


def read_mapping(path: Path) -> dict:
    """The content of a YAML file whose top level is a mapping."""
    try:
        content = read_yaml(path)
    except (OSError, YamlError) as error:
        raise ConfigError(f"{path} cannot be read as YAML: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} holds {content!r:.80} where 'key: value' lines are expected")
    return content


def build(kind: type[T], content: object, where: Path) -> T:
    """A dataclass instance from a mapping; the error names an unknown, missing or wrong value.

    Numbers that YAML reads as text, such as 1e-4, are accepted.
    """
    known = {field.name: field for field in fields(kind)}
    if not isinstance(content, dict):
        raise ConfigError(f"{where}: {content!r:.80} should be a mapping; {_list(known)}")
    for key in content:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f", did you mean {near[0]!r}?" if near else ";"
            raise ConfigError(f"{where}: unknown key {key!r}{hint} {_list(known)}")
    try:
        return kind(**{k: _value(k, known[k].type, v) for k, v in content.items()})
    except (TypeError, ConfigError) as error:
        raise ConfigError(f"{where}: {error}") from error


def _list(known: dict) -> str:
    return f"known are {', '.join(sorted(known))}"


def _value(key: str, kind: str, value: object) -> object:
    """The value converted to the annotated type of its field."""
    if value is None and kind.endswith(" | None"):
        return None
    kind = kind.removesuffix(" | None")
    if kind == "str" and not isinstance(value, str):
        raise ConfigError(f"{key} is {value!r:.80}, it must be a text")
    if kind == "tuple[str, ...]" and not (
        isinstance(value, list | tuple) and all(isinstance(entry, str) for entry in value)
    ):
        raise ConfigError(f"{key} is {value!r:.80}, it must be a list of texts")
    if kind not in ("int", "float"):
        return tuple(value) if isinstance(value, list) else value
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{key} is {value!r:.80}, it must be a number") from error
    if not math.isfinite(number):
        raise ConfigError(f"{key} is {value}, it must be a finite number")
    if kind == "float":
        return number
    if not number.is_integer():
        raise ConfigError(f"{key} is {value!r}, it must be a whole number")
    return int(number)

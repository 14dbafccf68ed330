"""Self-documenting settings: default, help, unit and range are written once, in one place.

A setting is a dataclass field made by `setting`. Range checks, parameter descriptors, launch
arguments and help texts are derived from it, and tests compare the comments of `config/*.yaml`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

from lgc_ros.errors import ConfigError

# OpenCV and the compiled loops count in 32 bits.
MAX_INT = 2**31 - 1
_KEY = "setting"


@dataclass(frozen=True)
class Setting:
    """What a user needs to know about a setting.

    Attributes:
        help: one line, without a full stop.
        unit: unit of the value, such as `px`; empty if it has none.
        low, high: smallest and largest value allowed; None if it is not a number.
        unset: what happens if an optional setting is left at None; empty if that needs no words.
        read_only: whether a running node refuses to change it.
    """

    help: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    unset: str = ""
    read_only: bool = False

    def describe(self, null: object = "null") -> str:
        """Help with unit, and with the meaning of None, written as `null`."""
        unit = f" [{self.unit}]" if self.unit else ""
        unset = f"; {null}: {self.unset}" if self.unset else ""
        return f"{self.help}{unit}{unset}"


def setting(default: Any, help: str, **details: Any) -> Any:
    """A dataclass field with this default, described by `Setting(help, **details)`."""
    return field(default=default, metadata={_KEY: Setting(help, **details)})


def settings_of(options: Any) -> dict[str, Setting]:
    """The settings of a dataclass or of an instance of it, by name; other fields are left out."""
    return {f.name: f.metadata[_KEY] for f in fields(options) if _KEY in f.metadata}


def check_ranges(options: Any) -> None:
    """Check every number of a dataclass against the range of its setting.

    Raises:
        ConfigError: a value is out of range; the message names the setting and the range.
    """
    for name, known in settings_of(options).items():
        value = getattr(options, name)
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{name} is {value}: it must be a finite number")
        if value is None or known.low is None:
            continue
        if not known.low <= value <= known.high:
            unit = f" {known.unit}" if known.unit else ""
            raise ConfigError(
                f"{name} is {value}: it must be between {known.low} and {known.high}{unit}"
            )

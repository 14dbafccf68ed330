"""The YAML reader for untrusted files: calibrations, profiles, configurations, bag metadata.

PyYAML's safe loader executes no code, but a few lines with aliases (`*name`) expand to gigabytes,
deep nesting exhausts the stack, and values such as `!!bool maybe` raise arbitrary exceptions.
`read_yaml` reports all of these as a YamlError of one sentence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import yaml

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
# The C loader is ten times faster, but not part of every PyYAML installation.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Mark(Protocol):
    """A position in a text, of the reader in C or of the one in Python; both count from 0."""

    @property
    def line(self) -> int: ...

    @property
    def column(self) -> int: ...


class YamlError(ValueError):
    """Text that is not YAML, or YAML that is not supported; the message names the position."""


def read_yaml(path: str | Path, max_bytes: int = MAX_BYTES) -> Any:
    """Read a YAML file.

    Raises:
        OSError: the file cannot be opened or read.
        YamlError: the content is invalid, or longer than `max_bytes`.
    """
    with Path(path).open("rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise YamlError(f"the file is larger than {max_bytes >> 10} KiB")
    try:
        return parse_yaml(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise YamlError(f"byte {error.start} is not UTF-8 text") from error


def parse_yaml(text: str) -> Any:
    """Parse YAML text.

    Raises:
        YamlError: the text is invalid or not supported.
    """
    try:
        _check_events(text)
        return yaml.load(text, _LOADER)
    except YamlError:
        raise
    except yaml.MarkedYAMLError as error:
        raise YamlError(f"{error.problem or error.context}{_where(error.problem_mark)}") from error
    except Exception as error:  # constructors of PyYAML raise arbitrary exceptions
        reason = " ".join(str(error).split())
        raise YamlError(f"a value cannot be read ({type(error).__name__}: {reason})") from error


def _check_events(text: str) -> None:
    """Raise YamlError for aliases and deep nesting, before any object is built."""
    depth = 0
    for event in yaml.parse(text, _LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise YamlError(
                f"aliases (*{event.anchor}) are not supported{_where(event.start_mark)}; write "
                "the value out"
            )
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise YamlError(f"nesting exceeds {MAX_DEPTH} levels{_where(event.start_mark)}")


def _where(mark: _Mark | None) -> str:
    return f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""

"""The YAML reader for untrusted files: calibrations, profiles, configurations, bag metadata.

PyYAML's safe loader executes no code, but a few lines with aliases (`*name`) expand to gigabytes,
deep nesting exhausts the stack, and values such as `!!bool maybe` raise arbitrary exceptions.
`read_yaml` reports all of these as a YamlError of one sentence. It also reads the dialect of
OpenCV's FileStorage: the first line `%YAML:1.0`, and matrices tagged `!!opencv-matrix`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import yaml

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
OPENCV_HEADER = "%YAML:"  # not a directive of YAML, which has a space instead of the colon
OPENCV_MATRICES = ("opencv-matrix", "opencv-nd-matrix")


# The C loader is ten times faster, but not part of every PyYAML installation.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """PyYAML's safe loader; a matrix of OpenCV is a mapping with rows, cols, dt and data."""


for _tag in OPENCV_MATRICES:
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.construct_yaml_map)


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
    if text.startswith(OPENCV_HEADER):
        text = "#" + text  # the line stays, so that positions in messages are right
    try:
        _check_events(text)
        return yaml.load(text, _Loader)
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
    for event in yaml.parse(text, _Loader):
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

"""The application class of the command line: help shows flags as flags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class _PlainFlags:
    """Options that take no value show none in the help, where typer writes `<bool>`."""

    def get_params(self, ctx: Any) -> list:
        params = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False) and param.metavar is None:
                param.metavar = ""
        return params


class Command(_PlainFlags, TyperCommand):
    """A command, see `App`."""


class Group(_PlainFlags, TyperGroup):
    """A group of commands, see `App`."""


class App(typer.Typer):
    """A typer application without tracebacks, whose flags look like flags."""

    def __init__(self, help: str) -> None:
        super().__init__(
            cls=Group, no_args_is_help=True, pretty_exceptions_enable=False, help=help
        )

    def command(self, *args: Any, **options: Any) -> Callable:
        """Register a command."""
        return super().command(*args, **{"cls": Command, **options})

"""The application class of the command line: help shows flags as flags, mistakes get a remedy."""

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

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; many extra ones come from a pattern that the shell expanded."""
        ctx.allow_extra_args = True
        extra = super().parse_args(ctx, args)
        if extra and not ctx.resilient_parsing:
            named = " ".join(extra) if len(extra) < 3 else f"{extra[0]} and {len(extra) - 1} more"
            ctx.fail(
                f"Got unexpected extra arguments ({named}). Put a pattern of several files in "
                "quotes: 'FOLDER/*.png'"
            )
        return extra


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

"""Shared by the launch files: checks of arguments, and an exit code that reports failures.

launch ignores undeclared arguments, and exits with 0 whatever the exit codes of its processes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from launch import LaunchContext, LaunchDescription
from launch.action import Action
from launch.actions import EmitEvent, OpaqueFunction, RegisterEventHandler
from launch.event_handlers import OnProcessExit
from launch.events import matches_action
from launch.events.process import ProcessExited, ShutdownProcess

from lgc_ros.errors import did_you_mean

PACKAGE = "lgc_ros"


def checked_arguments(file: str, description: LaunchDescription) -> LaunchDescription:
    """The description, preceded by a check for undeclared arguments on the command line.

    Args:
        file: `__file__` of the launch file. If another file includes it, the command line belongs
            to that file and is not checked.
    """

    def check(context: LaunchContext) -> None:
        known = {argument.name for argument in description.get_launch_arguments()}
        for name in given_arguments(Path(file), sys.argv):
            if name not in known:
                raise ValueError(f"unknown launch argument '{name}': {did_you_mean(name, known)}")

    return LaunchDescription([OpaqueFunction(function=check), description])


def given_arguments(file: Path, words: Sequence[str]) -> list[str]:
    """Names of the arguments if the command line launches this file; empty otherwise."""
    for index, word in enumerate(words):
        by_package = words[max(index - 1, 0) : index + 1] == [PACKAGE, file.name]
        if by_package or Path(word).resolve() == file.resolve():
            rest = (word.partition(":=") for word in words[index + 1 :])
            return [name for name, assigned, _ in rest if assigned]
    return []


def failing_with(process: Action, *companions: Action) -> RegisterEventHandler:
    """Shut down the companions of a process that fails, and make launch exit with 1.

    Other processes continue: the failing one may be a small part of a robot.
    """

    def on_exit(event: ProcessExited, context: LaunchContext) -> list[Action] | None:
        if event.returncode == 0 or context.is_shutdown:
            return None
        # Raising an error would end the launch; this sets only the exit code.
        code = f"{event.process_name} failed with exit code {event.returncode}, see its log above"
        context.asyncio_loop.call_exception_handler({"message": code})
        closing = [ShutdownProcess(process_matcher=matches_action(other)) for other in companions]
        return [EmitEvent(event=event) for event in closing]

    return RegisterEventHandler(OnProcessExit(target_action=process, on_exit=on_exit))

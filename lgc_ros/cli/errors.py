"""How commands say that something is wrong: a remedy instead of a traceback."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from lgc_ros.errors import LgcError

stderr = Console(stderr=True)

ROS = (
    "ROS 2 is not installed: source it (source /opt/ros/DISTRO/setup.bash), or "
    "pip install 'lgc_ros[jazzy]'"
)
REMEDIES = {
    "cv2": "OpenCV is not installed: pip install 'lgc_ros[opencv]', or apt install python3-opencv",
    "rclpy": ROS,
    "rosbags": "bags need the package rosbags: pip install 'lgc_ros[bags]'",
}
INTERRUPTED = 130  # as shells count SIGINT
ROS_INTERFACES = ("_msgs", "_interfaces", "_srvs")


@contextmanager
def explained_errors() -> Iterator[None]:
    """Ends the process with code 1 and a message instead of a traceback."""
    try:
        yield
    except LgcError as error:
        _end(str(error))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        remedy = ROS if package.endswith(ROS_INTERFACES) else REMEDIES.get(package)
        if remedy is None:
            raise
        _end(remedy)
    except KeyboardInterrupt:  # of the user, while modules are still being imported
        sys.exit(INTERRUPTED)


class ConsoleHandler(logging.Handler):
    """Shows what is logged as errors are shown, above a progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        style = "yellow" if record.levelno >= logging.WARNING else "dim"
        _say(style, record.levelname.lower(), self.format(record))


def _end(message: str) -> None:
    _say("bold red", "error", message)
    sys.exit(1)


def _say(style: str, kind: str, message: str) -> None:
    # Lines are left to the terminal: broken here, paths could not be copied or searched for.
    stderr.print(f"[{style}]{kind}:[/]", escape(message), highlight=False, soft_wrap=True)

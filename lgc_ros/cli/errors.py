"""Errors and log messages on the console: a cause and a remedy instead of a traceback."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from lgc_ros.errors import Interrupted, LgcError
from lgc_ros.runtime.output_files import reason

stderr = Console(stderr=True)

ROS = (
    "ROS 2 is not installed: source it (source /opt/ros/DISTRO/setup.bash), or "
    "pip install 'lgc_ros[jazzy]'"
)
REMEDIES = {
    "cv2": "OpenCV is not installed: pip install 'lgc_ros[opencv]', or apt install python3-opencv",
    "PIL": "EXIF data need the package pillow: pip install 'lgc_ros[exif]'",
    "rclpy": ROS,
    "rerun": "the viewer needs the package rerun-sdk: pip install 'lgc_ros[view]'",
    "rosbags": "bags need the package rosbags: pip install 'lgc_ros[bags]'",
}
INTERRUPTED = 130  # exit code of shells after SIGINT
ROS_INTERFACES = ("_msgs", "_interfaces", "_srvs")


@contextmanager
def explained_errors() -> Iterator[None]:
    """Exit with a message instead of a traceback on errors the user can fix.

    The exit code is 1, and 130 after Ctrl-C.
    """
    try:
        yield
    except Interrupted as error:
        _fail(str(error), INTERRUPTED)
    except LgcError as error:
        _fail(str(error))
    except OSError as error:  # not explained where it was raised
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{reason(error)}")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        remedy = ROS if package.endswith(ROS_INTERFACES) else REMEDIES.get(package)
        if remedy is None:
            raise
        _fail(remedy)
    except KeyboardInterrupt:  # while modules are still being imported
        sys.exit(INTERRUPTED)
    except SystemError as error:  # of a compiled function that was interrupted
        if isinstance(error.__cause__, KeyboardInterrupt):
            sys.exit(INTERRUPTED)
        raise


@contextmanager
def calm_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt once, so that the results so far can be written.

    The second only prints a hint; the third ends the process at once, without destructors, some of
    which abort while threads of C++ libraries are running.
    """
    before = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or before is not signal.default_int_handler:
        yield
        return
    received = 0

    def interrupt(number: int, frame: object) -> None:
        nonlocal received
        received += 1
        if received == 1:
            raise KeyboardInterrupt
        if received == 2:
            os.write(2, b"finishing; press Ctrl-C once more to end at once\n")
        else:
            os._exit(INTERRUPTED)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class ConsoleHandler(logging.Handler):
    """Shows log messages in the style of errors, above a progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        style = "yellow" if record.levelno >= logging.WARNING else "dim"
        _print(style, record.levelname.lower(), self.format(record))


def _fail(message: str, code: int = 1) -> None:
    _print("bold red", "error", message)
    sys.exit(code)


def _print(style: str, kind: str, message: str) -> None:
    # The terminal wraps long lines; wrapped here, paths could not be copied or searched for.
    stderr.print(f"[{style}]{kind}:[/]", escape(message), highlight=False, soft_wrap=True)

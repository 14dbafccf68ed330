"""Fast DDS with room for large images: config/fastdds.xml, unless the user has configured DDS.

The choice must be made before the first participant is created. Launch files make it for the
processes they start, so nothing is imported here that a plain ROS install lacks.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from xml.etree import ElementTree

PROFILE = "fastdds.xml"
# Read by Fast DDS 2 (up to Jazzy) and Fast DDS 3 (from Kilted on).
VARIABLES = ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")
# Other means by which a user configures Fast DDS (the files are read from the working folder); a
# profile named by a variable would override them.
TRANSPORTS = "FASTDDS_BUILTIN_TRANSPORTS"
LOCAL_FILES = ("DEFAULT_FASTRTPS_PROFILES.xml", "DEFAULT_FASTDDS_PROFILES.xml")
RMW = "RMW_IMPLEMENTATION"
FAST_DDS = ("", "rmw_fastrtps_cpp", "rmw_fastrtps_dynamic_cpp")  # the default when it is not set
SHARED_MEMORY = Path("/dev/shm")
MB = 2**20


class Logger(Protocol):
    """A logger of Python, of launch, or of a node."""

    info: Callable[[str], object]
    warning: Callable[[str], object]


@dataclass(frozen=True)
class DdsChoice:
    """Which DDS settings a process uses.

    Attributes:
        label: the settings in a few words, for reports.
        environment: variables to set; empty where the environment stays as it is.
        message: one line for the log; empty where there is nothing to say.
    """

    label: str
    environment: Mapping[str, str] = field(default_factory=dict)
    message: str = ""

    def say(self, logger: Logger) -> None:
        """Log the choice: a profile that is used, or a warning that it cannot be."""
        if self.message:
            (logger.info if self.environment else logger.warning)(self.message)


def choose_dds_profile(
    environment: Mapping[str, str],
    config: Path,
    processes: int = 1,
) -> DdsChoice:
    """The profile for large images where it fits, else what the user chose, else the default.

    Args:
        environment: of the processes.
        config: folder with the profile.
        processes: number of processes that will use it.
    """
    rmw = environment.get(RMW, "")
    if rmw not in FAST_DDS:
        return DdsChoice(rmw)
    for name in (*VARIABLES, TRANSPORTS):
        if environment.get(name):
            return DdsChoice(f"Fast DDS as {name} says")
    for name in LOCAL_FILES:
        if Path(name).is_file():
            return DdsChoice(f"Fast DDS as {name} says")
    profile = config / PROFILE
    segment, free = _segment_bytes(profile), _free_bytes()
    if free < processes * segment:
        return DdsChoice(
            "Fast DDS with its default transport",
            message=f"{SHARED_MEMORY} has {free // MB} MB free, too little for {PROFILE} "
            f"({segment // MB} MB per process): using the default transport, which loses large "
            "images; start the container with --shm-size=1g or --ipc=host, or remove what killed "
            f"processes left ({SHARED_MEMORY}/fastrtps_*)",
        )
    return DdsChoice(
        f"Fast DDS with {PROFILE}",
        dict.fromkeys(VARIABLES, str(profile)),
        f"using the Fast DDS profile {profile} for large images; set {VARIABLES[0]} to it for "
        "other programs that send or receive them, or to a profile of your own to replace it",
    )


def apply_dds_profile(config: Path) -> DdsChoice:
    """Choose for this process and those it starts; call it before `rclpy.init`."""
    choice = choose_dds_profile(os.environ, config)
    os.environ.update(choice.environment)
    return choice


def _segment_bytes(profile: Path) -> int:
    """Shared memory that each process reserves when it starts."""
    sizes = ElementTree.parse(profile).iterfind(".//{*}segment_size")
    return sum(int(size.text) for size in sizes)


def _free_bytes() -> int:
    try:
        return shutil.disk_usage(SHARED_MEMORY).free
    except OSError:
        return 0

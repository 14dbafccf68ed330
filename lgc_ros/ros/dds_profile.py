"""Selects config/fastdds.xml, made for large images, unless the user has configured DDS.

The profile must be set before the first participant is created. Launch files set it for the
processes they start, so this module imports nothing that a plain ROS install lacks.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from xml.etree import ElementTree

PROFILE = "fastdds.xml"
# Read by Fast DDS 2 (up to Jazzy) and Fast DDS 3 (from Kilted on).
VARIABLES = ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")
# Other ways to configure Fast DDS (the files are read from the working folder); a profile named by
# a variable would override them.
TRANSPORTS = "FASTDDS_BUILTIN_TRANSPORTS"
LOCAL_FILES = ("DEFAULT_FASTRTPS_PROFILES.xml", "DEFAULT_FASTDDS_PROFILES.xml")
RMW = "RMW_IMPLEMENTATION"
FAST_DDS = ("", "rmw_fastrtps_cpp", "rmw_fastrtps_dynamic_cpp")  # "": the default
SHARED_MEMORY = Path("/dev/shm")
MB = 2**20


class Logger(Protocol):
    """A logger of Python, launch or a node."""

    def info(self, message: str, /) -> object: ...

    def warning(self, message: str, /) -> object: ...


@dataclass(frozen=True)
class DdsChoice:
    """DDS settings of a process.

    Attributes:
        label: short description for reports.
        environment: variables to set; empty if the environment stays unchanged.
        message: one line for the log; empty if there is nothing to log.
    """

    label: str
    environment: Mapping[str, str] = field(default_factory=dict)
    message: str = ""

    def log_to(self, logger: Logger) -> None:
        """Log that the profile is used, or a warning that it cannot be."""
        if self.message:
            (logger.info if self.environment else logger.warning)(self.message)


def choose_dds_profile(
    environment: Mapping[str, str],
    config: Path,
    processes: int = 1,
) -> DdsChoice:
    """Choose the user's DDS settings if there are any, else the shipped profile if it fits.

    Args:
        environment: environment variables of the processes.
        config: folder of the profile.
        processes: number of processes that will use it.
    """
    rmw = environment.get(RMW, "")
    if rmw not in FAST_DDS:
        return DdsChoice(rmw)
    for name in (*VARIABLES, TRANSPORTS):
        if environment.get(name):
            return DdsChoice(f"Fast DDS configured by {name}")
    for name in LOCAL_FILES:
        if Path(name).is_file():
            return DdsChoice(f"Fast DDS configured by {name}")
    profile = config / PROFILE
    segment, free = _segment_bytes(profile), _free_bytes()
    if free < processes * segment:
        return DdsChoice(
            "Fast DDS with its default transport",
            message=f"{SHARED_MEMORY} has {free // MB} MB free, too little for {PROFILE} "
            f"({segment // MB} MB per process): using the default transport, which loses large "
            "images; start the container with --shm-size=1g or --ipc=host, or remove the files of "
            f"killed processes ({SHARED_MEMORY}/fastrtps_*)",
        )
    return DdsChoice(
        f"Fast DDS with {PROFILE}",
        dict.fromkeys(VARIABLES, str(profile)),
        f"using the Fast DDS profile {profile} for large images; set {VARIABLES[0]} to it for "
        "other programs that send or receive them, or to a profile of your own to replace it",
    )


def apply_dds_profile(config: Path) -> DdsChoice:
    """Apply the choice to this process and its children; call it before `rclpy.init`."""
    choice = choose_dds_profile(os.environ, config)
    os.environ.update(choice.environment)
    return choice


def _segment_bytes(profile: Path) -> int:
    """Shared memory that each process reserves at startup."""
    sizes = ElementTree.parse(profile).iterfind(".//{*}segment_size")
    return sum(int(size.text or 0) for size in sizes)


def _free_bytes() -> int:
    try:
        return shutil.disk_usage(SHARED_MEMORY).free
    except OSError:
        return 0

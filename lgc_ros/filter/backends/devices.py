"""Names of devices: auto, cpu, cuda or cuda:N."""

from __future__ import annotations

import logging

import torch

from lgc_ros.errors import ConfigError

log = logging.getLogger(__name__)

AUTO = "auto"


def parse_device(name: str) -> tuple[str, int]:
    """Kind (auto, cpu or cuda) and index of a device."""
    kind, colon, index = name.partition(":")
    numbered = kind == "cuda" and index.isdigit()
    if kind not in (AUTO, "cpu", "cuda") or (colon and not numbered):
        raise ConfigError(f"unknown device {name!r}: use auto, cpu, cuda or cuda:N")
    return kind, int(index or 0)


def choose_device(name: str) -> torch.device:
    """The torch device of a name; auto is the GPU if there is one.

    If the requested GPU does not exist, the CPU is used and a warning is logged.
    """
    kind, index = parse_device(name)
    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == AUTO:
        kind = "cuda" if available else "cpu"
    if kind == "cuda" and index >= available:
        log.warning(
            "device %s requested, but torch sees %d CUDA device(s); using the CPU",
            name,
            available,
        )
        kind = "cpu"
    return torch.device(kind, index) if kind == "cuda" else torch.device(kind)

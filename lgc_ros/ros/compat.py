"""Selects between optional ROS packages and their fallbacks.

A full ROS install has cv_bridge, message_filters and tf2_ros; the pip wheels have only rclpy and
messages. This module offers the same names in both cases. An installed package that cannot be
imported (cv_bridge built for numpy 1 with numpy 2) counts as absent.
"""

from __future__ import annotations

import importlib
import logging
from types import ModuleType

from lgc_ros.ros import cv_bridge_fallback, message_filters_fallback

_log = logging.getLogger(__name__)

ABSENT: dict[str, str] = {}
"""Packages that are not available, with the reason."""


def _load(package: str, *parts: str) -> ModuleType | None:
    """Import a package and its parts; None if any of them cannot be imported."""
    try:
        module = importlib.import_module(package)
        for part in parts:
            importlib.import_module(f"{package}.{part}")
    except Exception as error:  # a compiled module may raise anything
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            ABSENT[package] = f"{package} is not installed"
            _log.info("%s", ABSENT[package])
        else:
            ABSENT[package] = f"{package} is installed but cannot be imported: {error}"
            _log.warning("%s; continuing without it", ABSENT[package])
        return None
    return module


# Without this, a broken compiled part of cv_bridge shows up at the first conversion only.
_cv_bridge = _load("cv_bridge", "boost.cv_bridge_boost") or cv_bridge_fallback
_message_filters = _load("message_filters") or message_filters_fallback

CvBridge = _cv_bridge.CvBridge

SimpleFilter = _message_filters.SimpleFilter
Subscriber = _message_filters.Subscriber

# There is no fallback: the wheels also lack tf2_msgs.
tf2_ros = _load("tf2_ros")

"""The one place that knows which helper packages of ROS are installed.

A full ROS install brings cv_bridge, message_filters and tf2_ros; the pip wheels bring rclpy and
messages only. The names below are the same either way. A package that is there but cannot be
imported (cv_bridge built for numpy 1 beside numpy 2) counts as absent.
"""

from __future__ import annotations

import importlib
import logging
from types import ModuleType

from lgc_ros.ros import conversion, message_filters_fallback

_log = logging.getLogger(__name__)

ABSENT: dict[str, str] = {}
"""Packages that are not used, each with the reason."""


def _load(package: str, *parts: str) -> ModuleType | None:
    """The package, once its parts are known to import as well; None if any of them does not."""
    try:
        module = importlib.import_module(package)
        for part in parts:
            importlib.import_module(f"{package}.{part}")
    except Exception as error:  # a compiled module may fail with anything
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            ABSENT[package] = f"{package} is not installed"
            _log.info("%s", ABSENT[package])
        else:
            ABSENT[package] = f"{package} is installed but cannot be imported: {error}"
            _log.warning("%s; going on without it", ABSENT[package])
        return None
    return module


# cv_bridge hides that its compiled part is broken until an image is converted.
_cv_bridge = _load("cv_bridge", "boost.cv_bridge_boost") or conversion
_message_filters = _load("message_filters") or message_filters_fallback

CvBridge = _cv_bridge.CvBridge
CvBridgeError = _cv_bridge.CvBridgeError

SimpleFilter = _message_filters.SimpleFilter
Subscriber = _message_filters.Subscriber

# There is no TF without it: the wheels lack the messages of tf2_msgs, too.
tf2_ros = _load("tf2_ros")

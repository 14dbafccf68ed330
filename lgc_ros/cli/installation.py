"""The checks of `lgc doctor`: what is installed, what is missing, and how to fix it."""

from __future__ import annotations

import importlib
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lgc_ros.errors import LgcError

OK, MISSING, BROKEN = "ok", "missing", "broken"


@dataclass(frozen=True)
class Finding:
    """Result of one check: a status, what was found, and a remedy if there is one."""

    subject: str
    status: str
    detail: str
    remedy: str = ""
    required: bool = True

    @property
    def ok(self) -> bool:
        """Whether the component works."""
        return self.status == OK

    @property
    def is_problem(self) -> bool:
        """Whether the component is broken, or required and missing."""
        return self.status == BROKEN or (self.required and not self.ok)


def examine() -> Iterator[Finding]:
    """Check every component that the package uses, required ones first."""
    yield Finding("python", OK, f"{platform.python_version()} at {sys.executable}")
    yield _module("numpy")
    yield _module("cv2", "pip install 'lgc_ros[opencv]', or apt install python3-opencv")
    yield _opencv_parts()
    yield _module("torch", "pip install torch (see docs/install.md for small CPU builds)")
    yield _gpu()
    for name in ("safetensors", "poselib", "yaml", "transforms3d"):
        yield _module(name)
    yield _models()
    yield _engines()
    yield _module("rclpy", "source a ROS 2 workspace, or pip install 'lgc_ros[jazzy]'", False)
    yield _ros_environment()
    for name, remedy in (
        ("cv_bridge", "apt install ros-$ROS_DISTRO-cv-bridge; without it a fallback is used"),
        ("message_filters", "apt install ros-$ROS_DISTRO-message-filters; a fallback is used"),
        ("tf2_ros", "apt install ros-$ROS_DISTRO-tf2-ros-py; without it TF is not published"),
        ("evo", "pip install 'lgc_ros[eval]' to evaluate trajectories"),
        ("rosbags", "pip install 'lgc_ros[bags]' to read and write bags without ROS"),
        ("rerun", "pip install 'lgc_ros[view]' for the viewer"),
        ("h5py", "pip install 'lgc_ros[features]' for stored features"),
        ("onnxruntime", "pip install 'lgc_ros[onnx]' for learned keypoints"),
        ("openvino", "pip install 'lgc_ros[openvino]' for filter engine openvino"),
    ):
        yield _module(name, remedy, required=False)


def _module(name: str, remedy: str = "", required: bool = True) -> Finding:
    remedy = remedy or f"pip install {name}, or reinstall lgc_ros"
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            return Finding(name, MISSING, "not installed", remedy, required)
        return Finding(name, BROKEN, f"cannot be imported: {error}", remedy, required)
    except Exception as error:
        return Finding(name, BROKEN, f"cannot be imported: {error}", remedy, required)
    return Finding(name, OK, str(getattr(module, "__version__", "installed")), "", required)


def _checked(subject: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:
        return Finding(subject, BROKEN, str(error), "fix the problems above first")


def _opencv_parts() -> Finding:
    def check() -> Finding:
        import cv2

        from lgc_ros.features.base import EXTRACTORS

        parts = [name for name in EXTRACTORS if _extracts(name)]
        contrib = hasattr(cv2, "xfeatures2d") and hasattr(cv2.xfeatures2d, "matchGMS")
        found = ", ".join([*parts, *(["gms"] if contrib else [])])
        remedy = "" if contrib else "opencv-contrib-python-headless adds gms (a baseline only)"
        return Finding("opencv parts", OK, found, remedy)

    return _checked("opencv parts", check)


def _extracts(name: str) -> bool:
    from lgc_ros.features.base import make_extractor

    try:
        make_extractor(name)
    except LgcError:
        return False
    return True


def _gpu() -> Finding:
    def check() -> Finding:
        import torch

        if not torch.cuda.is_available():
            detail = f"none visible to torch; the filter runs on {os.cpu_count()} CPU cores"
            return Finding("gpu", MISSING, detail, "", required=False)
        return Finding("gpu", OK, torch.cuda.get_device_name(0), "", required=False)

    return _checked("gpu", check)


def _models() -> Finding:
    def check() -> Finding:
        from lgc_ros.filter.checkpoint import load_checkpoint, shipped_models

        names = shipped_models()
        for name in names:
            load_checkpoint(name)
        if not names:
            return Finding("models", MISSING, "none shipped", "reinstall lgc_ros")
        return Finding("models", OK, ", ".join(names))

    return _checked("models", check)


def _engines() -> Finding:
    def check() -> Finding:
        from lgc_ros.filter.backends.engines import MODULES, fastest_engine, missing_modules
        from lgc_ros.filter.checkpoint import load_checkpoint, shipped_models

        name, reason = fastest_engine(load_checkpoint(shipped_models()[0])[1])
        engines = ("torch", *MODULES)
        available = ", ".join(engine for engine in engines if not missing_modules(engine))
        return Finding("filter engines", OK, f"{available}; auto selects {name}: {reason}")

    return _checked("filter engines", check)


def _ros_environment() -> Finding:
    names = ("ROS_DISTRO", "RMW_IMPLEMENTATION", "ROS_DOMAIN_ID", "AMENT_PREFIX_PATH")
    found = [f"{name}={os.environ[name]}" for name in names if name in os.environ]
    detail = ", ".join(found) or "no ROS variables set"
    return Finding("ros environment", OK, detail, "", required=False)

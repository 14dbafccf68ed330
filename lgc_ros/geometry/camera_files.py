"""Calibration files of ROS, OpenCV, Kalibr, ORB-SLAM and EuRoC, recognized by their keys.

All of them are YAML. Some lack the image size, which is then taken from the images.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lgc_ros.errors import CameraError
from lgc_ros.geometry.camera import CALIBRATE, Camera, rectified_K
from lgc_ros.runtime.safe_yaml import YamlError, read_yaml

ImageSize = Callable[[], tuple[int, int]]
"""Looks up width and height of the images."""

# Distortion models by the names that other programs give them.
MODELS = {
    "radtan": "plumb_bob",
    "radial-tangential": "plumb_bob",
    "plumb_bob": "plumb_bob",
    "equidistant": "equidistant",
    "equi": "equidistant",
    "none": "pinhole",
}
MATRIX_KEYS = ("camera_matrix", "cameraMatrix", "Camera_Matrix", "intrinsic_matrix", "K", "mtx")
DISTORTION_KEYS = (
    "distortion_coefficients",
    "Distortion_Coefficients",
    "distCoeffs",
    "dist_coeffs",
    "dist_coeff",
    "dist",
    "D",
)
SIZE_KEYS = ("image_size", "imageSize", "resolution", "size")
KALIBR_CAMERA = re.compile(r"cam\d+")
ORB_SLAM_MODELS = {
    "PinHole": ("plumb_bob", ("k1", "k2", "p1", "p2", "k3")),
    "KannalaBrandt8": ("equidistant", ("k1", "k2", "k3", "k4")),
    "Rectified": ("pinhole", ()),
}


class Intrinsics(NamedTuple):
    """The content of a calibration file; `size` is None if the file does not have it."""

    K: Any
    D: Any
    model: str | None  # None: chosen by the number of coefficients in D
    size: tuple[Any, Any] | None


class CameraFormat(NamedTuple):
    """How a format is recognized by its keys, and read."""

    matches: Callable[[Mapping[Any, Any]], bool]
    read: Callable[[Mapping[Any, Any]], Intrinsics]


def read_camera(
    path: str | Path,
    rectified: bool = False,
    image_size: ImageSize | None = None,
    name: str | None = None,
) -> Camera:
    """Read a calibration file.

    Args:
        path: the file.
        rectified: take the camera of rectified images (the projection matrix P of a ROS file).
        image_size: called if the file has no image size.
        name: which camera of a Kalibr file, such as `cam1`; the first by default.
    """
    try:
        info = parse_camera_file(path)
        if rectified:
            return _rectified(info, image_size)
        if name is not None:
            info = {name: info[name]} if name in info else _no_camera(name, info)
        return as_camera(info, image_size)
    except CameraError as error:
        raise CameraError(f"camera file {path}: {error}") from error


def as_camera(info: Mapping[Any, Any], image_size: ImageSize | None = None) -> Camera:
    """The camera that the content of a calibration file describes."""
    for camera_format in FORMATS.values():
        if camera_format.matches(info):
            K, D, model, size = camera_format.read(info)
            return Camera.from_K(K, *_checked_size(size, image_size), D, model)
    found = ", ".join(map(str, list(info)[:5]))
    raise CameraError(
        f"not a calibration of {', '.join(FORMATS)} (its keys are {found:.80}); {CALIBRATE}"
    )


def parse_camera_file(path: str | Path) -> Mapping[Any, Any]:
    """The keys and values of a calibration file."""
    try:
        info = read_yaml(path)
    except FileNotFoundError as error:
        raise CameraError("the file does not exist; check the path") from error
    except (OSError, YamlError) as error:
        raise CameraError(f"cannot be read as YAML ({error}); {CALIBRATE}") from error
    if not isinstance(info, Mapping):
        raise CameraError(
            "contains no 'key: value' lines; a ROS camera_info file has image_width, "
            "image_height, camera_matrix, distortion_model and distortion_coefficients"
        )
    return info


def _rectified(info: Mapping[Any, Any], image_size: ImageSize | None) -> Camera:
    if not FORMATS["ROS"].matches(info):
        raise CameraError(
            "rectified images need projection_matrix, which only camera_info files of ROS have"
        )
    K = rectified_K(_data(info, "projection_matrix"))
    return Camera.from_K(K, *_checked_size(_width_and_height(info), image_size))


def _read_ros(info: Mapping[Any, Any]) -> Intrinsics:
    return Intrinsics(
        _data(info, "camera_matrix"),
        _data(info, "distortion_coefficients"),
        _key(info, "distortion_model"),
        (_key(info, "image_width"), _key(info, "image_height")),
    )


def _read_opencv(info: Mapping[Any, Any]) -> Intrinsics:
    """What `cv2.FileStorage` writes; names are those of OpenCV's samples and common scripts."""
    D = next((_data(info, key) for key in DISTORTION_KEYS if key in info), ())
    size = _width_and_height(info) or next((info[key] for key in SIZE_KEYS if key in info), None)
    model = "equidistant" if info.get("fisheye_model") == 1 else None
    K = next(_data(info, key) for key in MATRIX_KEYS if key in info)
    return Intrinsics(K, D, model, size)


def _read_kalibr(info: Mapping[Any, Any]) -> Intrinsics:
    """The first camera of a camchain."""
    camera = info[min(filter(_is_kalibr_camera, info), key=lambda name: int(name[3:]))]
    if not isinstance(camera, Mapping):
        raise CameraError("a camera of Kalibr must contain intrinsics and resolution")
    return _read_pinhole(camera, "distortion_coeffs")


def _read_euroc(info: Mapping[Any, Any]) -> Intrinsics:
    return _read_pinhole(info, "distortion_coefficients")


def _read_pinhole(info: Mapping[Any, Any], coefficients: str) -> Intrinsics:
    """fx, fy, cx and cy as `intrinsics`, as Kalibr and EuRoC write them."""
    if info.get("camera_model", "pinhole") != "pinhole":
        raise CameraError(
            f"camera_model {info['camera_model']!r:.80} is not supported; use pinhole"
        )
    model = _key(info, "distortion_model")
    if not isinstance(model, str) or model not in MODELS:
        raise CameraError(
            f"distortion_model {model!r:.80} is not supported; use one of {', '.join(MODELS)}"
        )
    intrinsics = _key(info, "intrinsics")
    if not isinstance(intrinsics, list) or len(intrinsics) != 4:
        raise CameraError(f"intrinsics must be fx, fy, cx, cy, but is {intrinsics!r:.80}")
    D = () if MODELS[model] == "pinhole" else _key(info, coefficients)
    return Intrinsics(pinhole_K(*intrinsics), D, MODELS[model], _key(info, "resolution"))


def _read_orb_slam(info: Mapping[Any, Any]) -> Intrinsics:
    """Settings of ORB-SLAM2 (`Camera.fx`) or ORB-SLAM3 (`Camera1.fx`)."""
    prefix = "Camera1." if "Camera1.fx" in info else "Camera."
    kind = info.get("Camera.type", "PinHole")
    if not isinstance(kind, str) or kind not in ORB_SLAM_MODELS:
        raise CameraError(
            f"Camera.type {kind!r:.80} is not supported; use one of {', '.join(ORB_SLAM_MODELS)}"
        )
    model, coefficients = ORB_SLAM_MODELS[kind]
    K = pinhole_K(*(_key(info, prefix + name) for name in ("fx", "fy", "cx", "cy")))
    D = [info.get(prefix + name, 0.0) for name in coefficients]
    size = info.get("Camera.width"), info.get("Camera.height")
    return Intrinsics(K, D, model, None if None in size else size)


def pinhole_K(fx: Any, fy: Any, cx: Any, cy: Any) -> list[list[Any]]:
    """The camera matrix of focal lengths and principal point in pixels."""
    return [[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]]


def _is_kalibr_camera(key: Any) -> bool:
    return isinstance(key, str) and KALIBR_CAMERA.fullmatch(key) is not None


def _no_camera(name: str, info: Mapping[Any, Any]) -> Mapping[Any, Any]:
    names = ", ".join(filter(_is_kalibr_camera, info)) or "no cameras with names"
    raise CameraError(f"has no camera '{name}'; it has {names}")


FORMATS = {
    "Kalibr": CameraFormat(lambda info: any(map(_is_kalibr_camera, info)), _read_kalibr),
    "ORB-SLAM": CameraFormat(
        lambda info: not {"Camera.fx", "Camera1.fx"}.isdisjoint(info), _read_orb_slam
    ),
    "EuRoC": CameraFormat(lambda info: "intrinsics" in info, _read_euroc),
    "ROS": CameraFormat(lambda info: "distortion_model" in info, _read_ros),
    "OpenCV": CameraFormat(lambda info: not set(MATRIX_KEYS).isdisjoint(info), _read_opencv),
}


def _width_and_height(info: Mapping[Any, Any]) -> tuple[Any, Any] | None:
    if "image_width" not in info and "image_height" not in info:
        return None
    return _key(info, "image_width"), _key(info, "image_height")


def _checked_size(size: Any, image_size: ImageSize | None) -> tuple[int, int]:
    """Width and height from the file, else from the images."""
    if size is None:
        if image_size is None:
            raise CameraError("the image size is missing: add image_width and image_height")
        return image_size()
    is_pair = isinstance(size, tuple | list) and len(size) == 2
    if not is_pair or not all(type(side) is int for side in size):
        raise CameraError(
            f"the image size (image_width, image_height) is {size!r:.80}, not two integers"
        )
    return size[0], size[1]


def _key(info: Mapping[Any, Any], key: str) -> Any:
    if key not in info:
        raise CameraError(f"the key '{key}' is missing; {CALIBRATE}")
    return info[key]


def _data(info: Mapping[Any, Any], key: str) -> Any:
    """The numbers of a `{rows, cols, data}` matrix; OpenCV's Python users also write lists."""
    matrix = _key(info, key)
    if isinstance(matrix, list) and "distortion_model" not in info:
        return matrix
    if not isinstance(matrix, Mapping) or "data" not in matrix:
        raise CameraError(f"the key '{key}' must contain rows, cols and data")
    return matrix["data"]

"""Keypoints and descriptors: extractors by name or ONNX file, and features read from files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from lgc_ros.errors import FeatureError

# With `spread`, the image is cut into square cells that get about this many keypoints each.
KEYPOINTS_PER_CELL = 4
# Learned extractors with a free input size still need whole cells of their coarsest feature map.
ONNX_SIZE_MULTIPLE = 32
# Kinds whose bytes are bits; other stored descriptors are numbers, whatever type holds them.
BINARY_KINDS = ("orb", "akaze")
# What the name of an ONNX output contains, and what the output then is.
ONNX_ROLES = {
    "keypoint": "keypoints",
    "kpt": "keypoints",
    "desc": "descriptors",
    "score": "scores",
}


@dataclass(frozen=True, eq=False)
class Features:
    """Keypoints of one image; sizes are 1 and angles and responses 0 where not known."""

    points: np.ndarray  # (N, 2) float32, x and y in pixels
    descriptors: np.ndarray  # (N, D) float32, or uint8 with 8 bits a byte for binary ones
    sizes: np.ndarray  # (N,) float32, diameter in pixels
    angles: np.ndarray  # (N,) float32, degrees
    responses: np.ndarray  # (N,) float32, strength, only comparable within one extractor
    kind: str  # what the descriptors are: only equal kinds can be matched
    sharpness: np.ndarray = field(default_factory=lambda: np.eye(2))  # of the image: sharpness.py

    def __len__(self) -> int:
        return len(self.points)

    def subset(self, selection: np.ndarray) -> Features:
        """The features a boolean mask or an index array selects, in its order."""
        of_image = ("kind", "sharpness")
        by_keypoint = [f.name for f in fields(self) if f.name not in of_image]
        return replace(self, **{name: getattr(self, name)[selection] for name in by_keypoint})


Extractor = Callable[[np.ndarray], Features]


def make_extractor(name: str, max_keypoints: int = 2000, spread: bool = False) -> Extractor:
    """The extractor with this name, for uint8 images, gray (H, W) or BGR (H, W, 3).

    `name` is a key of EXTRACTORS or an ONNX file (`onnx:model.onnx` or `model.onnx`, see
    `_onnx_extractor`). The extractor returns at most `max_keypoints`, strongest first. `spread`
    takes the strongest of each part of the image instead, so that one textured corner cannot claim
    all; OpenCV's detectors then run once to find and once more to describe (SIFT: a quarter more
    time). Equal images give equal features. Several threads may use an extractor at once.
    """
    if max_keypoints < 1:
        raise FeatureError(f"max_keypoints is {max_keypoints}; ask for at least one keypoint")
    if name.startswith("onnx:") or name.endswith(".onnx"):
        extract = _onnx_extractor(Path(name.removeprefix("onnx:")), max_keypoints, spread)
    elif name in EXTRACTORS:
        extract = EXTRACTORS[name](max_keypoints, spread)
    else:
        raise FeatureError(
            f"unknown extractor '{name}'; known are {', '.join(EXTRACTORS)} and ONNX files by "
            "path (onnx:model.onnx)"
        )

    def checked(image: np.ndarray) -> Features:
        _check_image(image)
        return extract(image)

    return checked


def read_features(
    path: str | Path, max_keypoints: int | None = None, kind: str | None = None
) -> Features:
    """Read features from an hdf5 file with `keypoints` and `descriptors`.

    The columns of `keypoints` are x, y, size, angle, response, as far as they are there: OANet's
    `<image>.sift-2000.hdf5` has four, LIFT's `<image>.desc.h5` thirteen. Without responses the
    first `max_keypoints` are taken, in the order of the file. The kind comes from the file name
    unless given.
    """
    path = Path(path)
    keypoints, descriptors = _read_hdf5(path)
    if keypoints.ndim != 2 or keypoints.shape[1] < 2 or descriptors.ndim != 2:
        raise FeatureError(
            f"{path}: keypoints of shape {keypoints.shape} and descriptors of shape "
            f"{descriptors.shape}, but both must have one row per keypoint; extract them again"
        )
    if len(keypoints) != len(descriptors):
        raise FeatureError(
            f"{path}: {len(keypoints)} keypoints but {len(descriptors)} descriptors; the file is "
            "damaged, extract it again"
        )
    kind = kind or kind_of_file(path)
    dtype = np.uint8 if kind in BINARY_KINDS else np.float32
    features = _features(kind, keypoints, descriptors.astype(dtype))
    return features.subset(_strongest(features.responses, max_keypoints))


def to_gray(image: np.ndarray) -> np.ndarray:
    """A gray version of a gray or BGR image."""
    return image if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)


def _strongest(responses: np.ndarray, count: int | None) -> np.ndarray:
    """Indices of the `count` largest responses, largest first; the first of equals goes first."""
    return np.argsort(-responses, kind="stable")[:count]


def _strongest_spread(points: np.ndarray, count: int, size: tuple[int, int]) -> np.ndarray:
    """Indices of `count` keypoints spread over an image of this width and height.

    The cells of a grid take turns, each giving the first it has left of `points`, which come
    strongest first. The cost is a few sorts, far below that of a detection.
    """
    side = np.sqrt(size[0] * size[1] * KEYPOINTS_PER_CELL / count)
    column, row = (points // side).astype(np.int64).T
    cells = row * (int(size[0] // side) + 1) + column
    by_cell = np.argsort(cells, kind="stable")
    _, starts, counts = np.unique(cells[by_cell], return_index=True, return_counts=True)
    turn = np.empty_like(cells)
    turn[by_cell] = np.arange(len(cells)) - np.repeat(starts, counts)
    return np.sort(np.argsort(turn, kind="stable")[:count])


def _opencv_extractor(
    kind: str,
    make_detector: Callable[[int], Any],
    finish: Callable[[np.ndarray], np.ndarray],
    max_keypoints: int,
    spread: bool,
) -> Extractor:
    """Wrap an OpenCV detector, made for a number of keypoints (0: all there are)."""
    detector = make_detector(0 if spread else max_keypoints)

    def extract(image: np.ndarray) -> Features:
        gray = to_gray(image)
        try:
            if spread:
                found = detector.detect(gray)
                rows = _rows(found)
                order = _ordered(rows)
                chosen = _strongest_spread(rows[order, :2], max_keypoints, gray.shape[::-1])
                found = [found[i] for i in order[chosen]]
                keypoints, descriptors = detector.compute(gray, found)
            else:
                keypoints, descriptors = detector.detectAndCompute(gray, None)
        except cv2.error as error:
            raise FeatureError(
                f"OpenCV cannot extract {kind} features from an image of "
                f"{gray.shape[1]}x{gray.shape[0]} pixels ({error.err}); use a larger image"
            ) from error
        if descriptors is None:
            dtype = np.uint8 if kind in BINARY_KINDS else np.float32
            descriptors = np.empty((0, detector.descriptorSize()), dtype)
        rows = _rows(keypoints)
        order = _ordered(rows)[:max_keypoints]
        return _features(kind, rows[order], finish(descriptors[order]))

    return extract


def _rows(keypoints: Sequence[cv2.KeyPoint]) -> np.ndarray:
    rows = [(*k.pt, k.size, k.angle, k.response) for k in keypoints]
    return np.array(rows, np.float32).reshape(-1, 5)


def _ordered(rows: np.ndarray) -> np.ndarray:
    """Strongest first, in an order that depends neither on OpenCV's threads nor its version."""
    x, y, size, angle, response = rows.T
    return np.lexsort((angle, size, x, y, -response))


def _sift(count: int) -> Any:
    """SIFT as in the paper: a contrast threshold so low that `count` are nearly always found."""
    return cv2.SIFT_create(nfeatures=count, contrastThreshold=1e-5)


def _orb(count: int) -> Any:
    return cv2.ORB_create(nfeatures=count or 100_000)


def _akaze(count: int) -> Any:
    """AKAZE has no limit of its own in older OpenCV; what is too much is cut afterwards."""
    # OpenCV 5 moved it to the contrib modules.
    module = cv2 if hasattr(cv2, "AKAZE_create") else getattr(cv2, "xfeatures2d", None)
    if not hasattr(module, "AKAZE_create"):
        raise FeatureError(
            f"OpenCV {cv2.__version__} is built without AKAZE; install "
            "opencv-contrib-python-headless in place of opencv-python, or use another extractor"
        )
    return module.AKAZE_create()


def _as_they_are(descriptors: np.ndarray) -> np.ndarray:
    return descriptors


def _root(descriptors: np.ndarray) -> np.ndarray:
    """RootSIFT: the Euclidean distance of the result is the Hellinger distance of histograms."""
    total = descriptors.sum(axis=1, keepdims=True)
    return np.sqrt(descriptors / np.maximum(total, np.finfo(np.float32).tiny))


EXTRACTORS: dict[str, Callable[[int, bool], Extractor]] = {
    "sift": partial(_opencv_extractor, "sift", _sift, _as_they_are),
    "rootsift": partial(_opencv_extractor, "rootsift", _sift, _root),
    "orb": partial(_opencv_extractor, "orb", _orb, _as_they_are),
    "akaze": partial(_opencv_extractor, "akaze", _akaze, _as_they_are),
}


def _onnx_extractor(path: Path, max_keypoints: int, spread: bool) -> Extractor:
    """A learned extractor (ALIKED, DISK, SuperPoint, XFeat, ...) exported to ONNX.

    Input: one image, float (1, C, H, W) in [0, 1]; C = 1 is gray, C = 3 is RGB. A fixed H and W
    resizes the image, and the keypoints back; a free size pads it at the right and the bottom.

    Outputs: keypoints (N, 2) as x and y, descriptors (N, D) or (D, N), and, if there are any,
    scores (N,), all with or without a batch dimension of 1; told apart by "keypoint" or "kpt",
    "desc" and "score" in their names, else by shape. Keypoints are pixels of the input; if none
    lies beyond [-1, 1] they are fractions of it, -1 and 1 being the centres of the first and last
    pixels, as ALIKED gives them. Without scores, the order of the keypoints ranks them.
    """
    session = _onnx_session(path)
    source, channels, fixed_size, dtype = _onnx_input(session, path)
    names = [output.name for output in session.get_outputs()]

    def extract(image: np.ndarray) -> Features:
        tensor, scaled_size = _onnx_image(image, channels, fixed_size)
        try:
            values = session.run(names, {source: tensor.astype(dtype)})
        except Exception as error:  # onnxruntime's errors have no base class but this one
            raise FeatureError(
                f"model {path} fails on an image of {image.shape[1]}x{image.shape[0]} pixels "
                f"({error}); use another size, or export it for this one"
            ) from error
        points, descriptors, scores = _onnx_outputs(dict(zip(names, values, strict=True)), path)
        if len(points) and np.abs(points).max() <= 1:
            points = (points + 1) / 2 * (np.array(tensor.shape[:1:-1]) - 1)
        size = np.array(image.shape[1::-1])
        points = (points + 0.5) * (size / scaled_size) - 0.5
        rows = np.column_stack([points, np.ones_like(scores), np.zeros_like(scores), scores])
        on_image = np.all((points > -0.5) & (points < size - 0.5), axis=1)
        features = _features(path.stem.lower(), rows, descriptors.astype(np.float32))
        features = features.subset(on_image)
        features = features.subset(_strongest(features.responses, None))
        if spread:
            return features.subset(_strongest_spread(features.points, max_keypoints, size))
        return features.subset(slice(max_keypoints))

    return extract


def _onnx_session(path: Path) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise FeatureError(
            f"model {path} needs onnxruntime; install it (pip install lgc_ros[onnx]) or use one "
            f"of {', '.join(EXTRACTORS)}"
        ) from error
    if not path.is_file():
        raise FeatureError(f"there is no model {path}; check the path")
    available = onnxruntime.get_available_providers()
    providers = [p for p in ("CUDAExecutionProvider", "CPUExecutionProvider") if p in available]
    try:
        return onnxruntime.InferenceSession(str(path), providers=providers)
    except Exception as error:  # onnxruntime's errors have no base class but this one
        raise FeatureError(
            f"{path} cannot be loaded as an ONNX model ({error}); export or copy it again"
        ) from error


def _onnx_input(session: Any, path: Path) -> tuple[str, int, tuple[int, int], type]:
    """Name, channels, width and height (0 where free) and type of the model's only input."""
    inputs = session.get_inputs()
    shapes = ", ".join(f"{i.name} {i.shape} {i.type}" for i in inputs)
    dtypes = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    first = inputs[0]
    fits = len(inputs) == 1 and len(first.shape) == 4 and first.type in dtypes
    if not fits or first.shape[1] not in (1, 3):
        raise FeatureError(
            f"model {path} takes {shapes}; an extractor takes one float image (1, C, H, W) with "
            "1 (gray) or 3 (RGB) channels"
        )
    height, width = (side if isinstance(side, int) else 0 for side in first.shape[2:])
    return first.name, first.shape[1], (width, height), dtypes[first.type]


def _onnx_image(
    image: np.ndarray, channels: int, fixed_size: tuple[int, int]
) -> tuple[np.ndarray, tuple[int, int]]:
    """The network's input, and the size of the image in it before padding."""
    if channels == 1:
        image = to_gray(image)
    else:
        image = cv2.cvtColor(image, cv2.COLOR_GRAY2RGB if image.ndim == 2 else cv2.COLOR_BGR2RGB)
    own_size = image.shape[1::-1]
    size = tuple(fixed or own for fixed, own in zip(fixed_size, own_size, strict=True))
    if size != own_size:
        shrinks = size[0] * size[1] < own_size[0] * own_size[1]
        image = cv2.resize(
            image, size, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
        )
    right, bottom = (
        0 if fixed else -side % ONNX_SIZE_MULTIPLE
        for fixed, side in zip(fixed_size, size, strict=True)
    )
    image = cv2.copyMakeBorder(image, 0, bottom, 0, right, cv2.BORDER_REPLICATE)
    image = image.reshape(*image.shape[:2], channels)
    return np.float32(image.transpose(2, 0, 1)[None] / 255), size


def _onnx_outputs(
    outputs: dict[str, np.ndarray], path: Path
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keypoints (N, 2), descriptors (N, D) and scores (N,) among the outputs."""
    found: dict[str, np.ndarray] = {}
    for name, value in outputs.items():
        value = value[0] if value.ndim == 3 and len(value) == 1 else value
        found.setdefault(_onnx_role(name.lower(), value), value)
    if "keypoints" in found and "descriptors" in found:
        points, descriptors = found["keypoints"].astype(np.float64), found["descriptors"]
        count = len(points)
        scores = found.get("scores", np.zeros(count)).astype(np.float64).reshape(-1)
        if descriptors.ndim == 2 and len(descriptors) != count:
            descriptors = descriptors.T
        if points.shape == (count, 2) and len(descriptors) == len(scores) == count:
            return points, descriptors, scores
    shapes = ", ".join(f"{name} {value.shape}" for name, value in outputs.items())
    raise FeatureError(
        f"model {path} gives {shapes}; an extractor gives keypoints (N, 2), descriptors (N, D) "
        "and scores (N): export it with its keypoint selection, not only its network"
    )


def _onnx_role(name: str, value: np.ndarray) -> str:
    for part, role in ONNX_ROLES.items():
        if part in name:
            return role
    if value.ndim != 2 or len(value) == 1:
        return "scores"
    return "keypoints" if value.shape[1] == 2 else "descriptors"


def _read_hdf5(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        import h5py
    except ImportError as error:
        raise FeatureError(
            f"feature file {path} needs h5py; install it (pip install 'lgc_ros[features]')"
        ) from error
    if not path.is_file():
        raise FeatureError(f"there is no feature file {path}; check the path")
    try:
        with h5py.File(path, "r") as file:
            return file["keypoints"][()], file["descriptors"][()]
    except KeyError as error:
        raise FeatureError(
            f"feature file {path} lacks 'keypoints' or 'descriptors'; extract it again"
        ) from error
    except OSError as error:
        raise FeatureError(
            f"{path} cannot be read as hdf5 ({error}); extract or copy it again"
        ) from error


def stored_beside(image: Path, suffix: str) -> Path:
    """The feature file of an image: `a.jpg` has `a.jpg.sift-2000.hdf5`, or `a.desc.h5`."""
    appended = image.with_name(image.name + suffix)
    return appended if appended.is_file() else image.with_name(image.stem + suffix)


def kind_of_file(path: Path) -> str:
    """`a.jpg.sift-2000.hdf5` is sift; `a.desc.h5` is LIFT, the only one who names files so."""
    kind = Path(path.stem).suffix.removeprefix(".").split("-")[0].lower()
    return "lift" if kind == "desc" else kind or path.stem.lower()


def _features(kind: str, rows: np.ndarray, descriptors: np.ndarray) -> Features:
    """Features from rows of x, y, size, angle and response, as far as these are there."""
    complete = np.tile(np.float32([0, 0, 1, 0, 0]), (len(rows), 1))
    known = min(rows.shape[1], 5)
    complete[:, :known] = rows[:, :known]
    _, _, sizes, angles, responses = complete.T.copy()
    return Features(complete[:, :2].copy(), descriptors, sizes, angles, responses, kind)


def _check_image(image: np.ndarray) -> None:
    if image.size == 0:
        raise FeatureError("the image is empty; check where it comes from")
    if image.dtype != np.uint8:
        raise FeatureError(f"the image is {image.dtype}; convert it to 8 bits a channel (uint8)")
    if image.ndim != 2 and not (image.ndim == 3 and image.shape[2] == 3):
        raise FeatureError(
            f"the image has the shape {image.shape}; give a gray (H, W) or BGR (H, W, 3) one"
        )

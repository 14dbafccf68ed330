"""What all sources share: frames are read one at a time, and damaged ones are skipped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from lgc_ros.errors import CameraError, ConfigError, ImageError, LgcError, SourceError
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import Frame
from lgc_ros.sources.trajectory import read_trajectory

log = logging.getLogger(__name__)

DEPTH_WINDOW_NS = 20_000_000  # maximum time between an image and its depth image

Loader = Callable[[], Frame]
"""Reads one frame; raises ImageError if that frame is missing or damaged."""


class GroundTruth(NamedTuple):
    """Origin of the ground-truth poses of frames, and the orientation of their world frame."""

    where: str  # file or topic
    ground: str | None = None  # horizontal axes, such as "xy"; None if unknown


class Source:
    """A sequence of frames of one camera, read lazily; it can be iterated over repeatedly.

    Frames come in recorded order; `index` also counts frames that are left out. `errors` lists
    what the latest iteration could not read, and `skipped` counts the frames among that.
    `ground_truth` is None if no ground-truth poses are known. `loaders` starts a pass over the
    frames; it raises SourceError where the rest cannot be read.
    """

    def __init__(
        self,
        name: str,
        camera: Camera,
        loaders: Callable[[], Iterable[Loader]],
        length: int | None,
        ground_truth: GroundTruth | None = None,
    ):
        self.name = name
        self.camera = camera
        self.ground_truth = ground_truth
        self.errors: list[str] = []
        self.skipped = 0
        self._warned: set[str] = set()
        self._loaders = loaders
        self._length = length

    def __len__(self) -> int:
        """Number of frames, including skipped ones."""
        if self._length is None:
            raise TypeError(f"the length of {self.name} is unknown until it has been read")
        return self._length

    @property
    def known_length(self) -> int | None:
        """Number of frames, including skipped ones; None if unknown."""
        return self._length

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Frame]:
        self.errors, self.skipped = [], 0
        readable = False
        loaders = iter(self._loaders())
        while True:
            try:
                frame = next(loaders)()
            except StopIteration:
                break
            except ImageError as error:
                self._report("skipped a frame", error)
                self.skipped += 1
                continue
            except SourceError as error:
                self._report("stopped reading", error)
                break
            if not readable:
                self.camera.check_image(frame.image, frame.name)
            readable = True
            yield frame
        if not readable:
            reason = (self.errors or ["it is empty, or its format cannot be decoded"])[0]
            raise SourceError(f"{self.name} has no readable frame: {reason}")

    def _report(self, consequence: str, error: LgcError) -> None:
        self.errors.append(str(error))
        # A comparison of methods reads the same frames repeatedly: warn once.
        if str(error) not in self._warned:
            self._warned.add(str(error))
            log.warning("%s: %s", consequence, error)

    def first(self) -> Frame:
        """The first readable frame."""
        for loader in self._loaders():
            with suppress(ImageError):
                return loader()
        raise SourceError(f"{self.name} has no readable frame")

    def select(self, every: int = 1, limit: int | None = None) -> Source:
        """Every `every`-th frame, at most `limit` of them; other frames are not decoded."""
        if every < 1 or (limit is not None and limit < 1):
            raise ConfigError(f"every ({every}) and limit ({limit}) must be at least 1")
        stop = None if limit is None else every * (limit - 1) + 1
        length = self._length
        if length is not None:
            length = len(range(length)[:stop:every])
        return Source(
            self.name,
            self.camera,
            lambda: islice(self._loaders(), 0, stop, every),
            length,
            self.ground_truth,
        )

    def with_ground_truth(self, path: str | Path) -> Source:
        """The same frames with ground-truth camera poses from a TUM file."""
        trajectory = read_trajectory(path)

        def load(loader: Loader) -> Frame:
            frame = loader()
            return replace(frame, T_wc=trajectory.pose_at(frame.stamp_ns))

        return self._with_loader(load, self.camera, GroundTruth(str(path)))

    def with_camera(self, camera: Camera) -> Source:
        """The same frames with another camera."""

        def load(loader: Loader) -> Frame:
            return replace(loader(), camera=camera)

        return self._with_loader(load, camera, self.ground_truth)

    def _with_loader(
        self, load: Callable[[Loader], Frame], camera: Camera, ground_truth: GroundTruth | None
    ) -> Source:
        return Source(
            self.name,
            camera,
            lambda: (partial(load, loader) for loader in self._loaders()),
            self._length,
            ground_truth,
        )


def camera_beside(*candidates: Path, rectified: bool = False) -> Camera:
    """The camera from the first of these files that exists."""
    for path in candidates:
        if path.exists():
            return Camera.from_yaml(path, rectified)
    raise CameraError(
        f"no camera: {' or '.join(map(str, candidates))} does not exist; give the camera of these "
        "images with --camera CAM.yaml, or guess it with --camera fov:70 (horizontal field of "
        "view in degrees); see docs/cameras.md"
    )

"""A folder of images, with camera.yaml inside or in the parent folder."""

from __future__ import annotations

import logging
import re
from collections import Counter
from functools import partial
from pathlib import Path

from lgc_ros.errors import ConfigError, SourceError
from lgc_ros.geometry.camera import Camera
from lgc_ros.images.frame import Frame, read_image
from lgc_ros.sources.base import Loader, Source, camera_beside
from lgc_ros.sources.files import images_in
from lgc_ros.sources.trajectory import parse_stamp

log = logging.getLogger(__name__)

RATE_HZ = 30.0
NANOSECONDS = re.compile(r"\d{19}")  # since 1970, years 2001 to 2286
SECONDS = re.compile(r"\d{10}\.\d+")


def is_folder(path: Path) -> bool:
    return path.is_dir() and bool(images_in(path))


def open_folder(
    path: Path,
    camera: Camera | None = None,
    rate_hz: float | None = None,
    pattern: str | None = None,
    rectified: bool = False,
) -> Source:
    """Images in natural order of their names, optionally only those matching `pattern` (`*.png`).

    Stamps follow from `rate_hz`, else from names such as 1403636579763555584.png (ns) or
    1305031102.175304.png (s), else from a rate of 30 Hz.
    """
    path = Path(path)
    if rate_hz is not None and rate_hz <= 0:
        raise ConfigError(f"the rate must be positive, but is {rate_hz:g} Hz")
    if not path.is_dir():
        raise SourceError(f"{path} is not a folder of images; check the path")
    images = [image for image in images_in(path) if pattern is None or image.match(pattern)]
    if not images:
        raise SourceError(
            f"{path} contains no images" + (f" that match '{pattern}'" if pattern else "")
        )
    suffixes = Counter(image.suffix.lower() for image in images)
    if len(suffixes) > 1:
        found = ", ".join(f"{count} {suffix}" for suffix, count in sorted(suffixes.items()))
        raise SourceError(
            f"{path} mixes several image formats ({found}), perhaps color and depth; choose one "
            f"with a pattern in quotes, such as '{path / f'*{images[0].suffix}'}', or move the "
            "others away"
        )
    camera = camera or camera_beside(
        path / "camera.yaml", path.resolve().parent / "camera.yaml", rectified=rectified
    )
    named_ns = stamps_from_names([image.stem for image in images])
    if named_ns is not None:
        images = [image for _, image in sorted(zip(named_ns, images, strict=True))]
    if rate_hz is None and named_ns is not None:
        stamps_ns = sorted(named_ns)
    else:
        if rate_hz is None:
            log.warning(
                "%s: no stamps, assuming %g images per second; give their rate with --fps",
                path,
                RATE_HZ,
            )
        interval_ns = 1e9 / (rate_hz or RATE_HZ)
        stamps_ns = [round(index * interval_ns) for index in range(len(images))]

    def load(index: int) -> Frame:
        image = read_image(images[index])
        return Frame(index, stamps_ns[index], image, camera, name=images[index].name)

    def loaders() -> list[Loader]:
        return [partial(load, index) for index in range(len(images))]

    return Source(path.resolve().name, camera, loaders, len(images))


def stamps_from_names(names: list[str]) -> list[int] | None:
    """Stamps in ns if every name is a stamp, otherwise None."""
    if all(NANOSECONDS.fullmatch(name) for name in names):
        return [int(name) for name in names]
    if all(SECONDS.fullmatch(name) for name in names):
        return [parse_stamp(name) for name in names]
    return None

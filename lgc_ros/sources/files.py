"""Text files and folders of images; errors name the file and its expected content."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from lgc_ros.errors import ImageError, SourceError
from lgc_ros.images.frame import read_image

IMAGE_SUFFIXES = {".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}


def read_lines(path: Path, remedy: str) -> list[str]:
    """Stripped lines of a text file without empty lines and comments (`#`)."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise SourceError(f"{path} is missing: {remedy}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path} cannot be read as text ({error}): {remedy}") from error
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def images_in(folder: Path) -> list[Path]:
    """Image files of a folder in natural order (2 before 10)."""
    paths = [path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES]
    return sorted(paths, key=_natural)


def first_image_size(paths: Iterable[Path]) -> tuple[int, int]:
    """Width and height of the first readable image."""
    first_error = None
    for path in paths:
        try:
            height, width = read_image(path).shape[:2]
        except ImageError as error:
            first_error = first_error or error
            continue
        return width, height
    raise SourceError(f"no image is readable: {first_error}")


def _natural(path: Path) -> tuple[list[tuple[int, str]], str]:
    parts = re.findall(r"\d+|\D+", path.stem)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts], path.name

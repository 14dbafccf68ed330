"""Output files: complete under their names or absent, and failures explained in one sentence.

Everything is written under a temporary name in the same folder and renamed when complete, so that
a full disk, an error or a kill never leaves half a file where users and programs look for one.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO

from lgc_ros.errors import OutputError

REASONS = {
    errno.ENOSPC: "the disk is full; free some space or choose another disk",
    errno.EDQUOT: "your disk quota is used up; free some space or choose another disk",
    errno.EFBIG: "the file is larger than this system allows; raise the limit (`ulimit -f`)",
    errno.EROFS: "the file system is read-only; choose another folder",
    errno.EACCES: "permission denied; choose another folder",
    errno.EPERM: "permission denied; choose another folder",
    errno.EEXIST: "it already exists, as a file or as a folder; choose another path",
    errno.ENOTDIR: "part of its path is a file, not a folder; choose another path",
    errno.EISDIR: "it is a folder; choose the name of a file",
    errno.ENOTEMPTY: "that folder is not empty; choose another one",
}

CHUNK = 1 << 16  # bytes


def reason(error: OSError) -> str:
    """Cause and remedy of a failure to write, in user terms."""
    number = error.errno
    if number is None:  # h5py mentions it in its message only
        found = re.search(r"errno = (\d+)", str(error))
        number = int(found[1]) if found else 0
    return REASONS.get(number, error.strerror or str(error))


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Raise OutputError, with cause and remedy, if writing `path` or a file in it fails."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot write {path}: {reason(error)}") from error
    except OutputError as error:
        if isinstance(error.__cause__, OSError):  # of a file with a temporary name
            raise OutputError(f"cannot write {path}: {reason(error.__cause__)}") from error
        raise


def make_folder(folder: Path) -> None:
    """Create a folder with its parents, unless it exists.

    Raises:
        OutputError: it cannot be created.
    """
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file, and its folder if needed; text is UTF-8.

    Raises:
        OutputError: it cannot be written; what was there before is unchanged.
    """
    data = content.encode() if isinstance(content, str) else content
    with complete_file(path) as temporary:
        temporary.write_bytes(data)


def write_json(path: Path, content: Any) -> None:
    """Write machine-readable results, see `write_file`."""
    write_file(path, json.dumps(content, indent=2) + "\n")


@contextmanager
def complete_file(path: Path) -> Iterator[Path]:
    """A temporary file name with the suffix of `path`, renamed to `path` at the end.

    An error in the block removes the temporary file. Devices and pipes are written directly.

    Raises:
        OutputError: writing failed.
    """
    make_folder(path.parent)
    if path.exists() and not (path.is_file() or path.is_dir()):
        with explained(path):
            yield path
        return
    target = path.resolve()  # a link stays a link
    temporary = target.with_name(f".{target.stem}.{os.getpid()}{target.suffix}")
    try:
        with explained(path):
            yield temporary
            temporary.replace(target)
    finally:
        with suppress(OSError):
            temporary.unlink()


@contextmanager
def piped_file(path: Path) -> Iterator[str]:
    """A name under which a library writes the file `path` while Python notices what fails.

    For libraries that only log a full disk, or wait for ever. The library must have closed its end
    when the block ends. Use it with `complete_file`.

    Raises:
        OSError: writing failed; the library was not disturbed by it.
    """
    failures: list[OSError] = []

    def copy(pipe: BinaryIO, file: FileIO) -> None:
        while data := memoryview(pipe.read(CHUNK)):
            try:
                while data and not failures:
                    data = data[file.write(data) :]
            except OSError as error:
                failures.append(error)
                file.truncate(0)  # what else is being written may still find room

    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as pipe, path.open("wb", buffering=0) as file:
        thread = Thread(target=copy, args=(pipe, file), daemon=True)
        thread.start()
        try:
            yield f"/dev/fd/{writer}"
        finally:
            os.close(writer)
            thread.join()
    if failures:
        raise failures[0]


@contextmanager
def complete_folder(path: Path) -> Iterator[Path]:
    """A place for a new folder of the same name, moved to `path` at the end.

    An error in the block removes the unfinished folder.

    Raises:
        OutputError: writing failed, or `path` exists and is not an empty folder.
    """
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with explained(path):
            make_folder(hidden)
            yield hidden / path.name
            (hidden / path.name).replace(path)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)

"""Folders of results: one run at a time writes to a folder, and files of two runs never mix."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lgc_ros.errors import OutputError
from lgc_ros.runtime.output_files import explained, make_folder

FindResults = Callable[[Path], Sequence[Path]]
"""The files and folders in a folder that an earlier run left there."""


@contextmanager
def result_folder(folder: Path, earlier: FindResults, force: bool = False) -> Iterator[None]:
    """Create a folder for results, or reuse one, and keep other runs out of it.

    The folder is created before the work starts, so that no work is lost. If the work fails before
    it writes anything, what was created is removed again.

    Args:
        earlier: finds the results of an earlier run.
        force: remove these.

    Raises:
        OutputError: there are results and `force` is not given, another run is writing to the
            folder, or it cannot be written.
    """
    created = [place for place in (folder, *folder.parents) if not place.exists()]
    make_folder(folder)
    try:
        with locked_folder(folder):
            _clear(folder, earlier(folder), force)
            yield
    except BaseException:
        for place in created:  # innermost first
            if place.exists() and not any(place.iterdir()):
                place.rmdir()
        raise


def _clear(folder: Path, results: Sequence[Path], force: bool) -> None:
    if results and not force:
        names = [str(path.relative_to(folder)) for path in results[:3]]
        raise OutputError(
            f"{folder} already holds results ({', '.join(names)}{', …' if results[3:] else ''}): "
            "replace them with --force, or choose another folder"
        )
    for path in results:
        with explained(path):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Keep other runs out of an existing folder; the lock ends with this process at the latest.

    Raises:
        OutputError: another run has locked the folder.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            os.close(descriptor)
            raise OutputError(
                f"another run is writing to {folder}: wait for it, or choose another folder"
            ) from error
        # Some network file systems have no locks.
    try:
        yield
    finally:
        os.close(descriptor)
